"""`simulate --report`: the folder it writes, and the page in a real browser."""

import html
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from dspark_sched_cli.main import cli

FILES = ["forecast.png", "frontier.png", "pruning.png", "report.html", "throughput.png"]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A small log and a profile, as a user would bring them."""
    folder = tmp_path_factory.mktemp("user")
    blocks = range(240)
    columns = {
        "confidence_logits": [[1.5 - (7 * i + j) % 5 for j in range(3)] for i in blocks],
        "accepted": [(5 * i) % 4 for i in blocks],
        "request_id": [i // 8 for i in blocks],
        "step": [i % 8 for i in blocks],
    }
    pq.write_table(pa.table(columns), folder / "log.parquet")
    (folder / "sps.csv").write_text("batch_tokens,step_ms\n4,10\n8,11\n16,14\n32,20\n")
    return folder


def run(files, *options):
    arguments = ["simulate", "--sps", files / "sps.csv", "--log", files / "log.parquet"]
    small = ["--steps", "40", "--repeats", "2", "--concurrency", "1,4,16"]
    return CliRunner().invoke(cli, [str(part) for part in (*arguments, *small, *options)])


@pytest.fixture(scope="module")
def report(files):
    """Folder of a report with two requirements, written into a name with a space."""
    folder = files / "my report"
    done = run(files, "--sla", "40,5000", "--report", folder)
    assert done.exit_code == 0, done.stderr
    return folder


def test_the_folder_holds_the_page_and_the_pictures(files, report):
    assert sorted(path.name for path in report.iterdir()) == FILES


def test_every_file_is_said_to_be_written(files):
    done = run(files, "--report", files / "said")
    written = [Path(line.removeprefix("wrote ")) for line in done.stdout.splitlines()[-5:]]
    assert sorted(path.name for path in written) == FILES


def test_the_command_stands_in_the_page_as_typed(files, report):
    page = html.unescape((report / "report.html").read_text())
    (command,) = re.findall("<pre>(.*)</pre>", page)
    assert command.startswith(f"dspark-sched simulate --sps {files}/sps.csv --log ")
    assert command.endswith(f"--sla 40,5000 --report '{report}'")


def test_the_same_command_gives_the_same_bytes(files, report):
    before = {path.name: path.read_bytes() for path in report.iterdir()}
    assert run(files, "--sla", "40,5000", "--report", report).exit_code == 0
    assert {path.name: path.read_bytes() for path in report.iterdir()} == before


def test_a_replay_in_which_no_request_ended_is_reported_all_the_same(files):
    options = ["--steps", "10", "--sla", "20", "--report", files / "short", "-o", files / "s.csv"]
    pq.write_table(
        pa.table(
            {
                "confidence_logits": [[0.5, -0.5, 0.0]] * 400,
                "accepted": [i % 4 for i in range(400)],
                "request_id": [0] * 400,
                "step": range(400),
            }
        ),
        files / "long.parquet",
    )
    done = run(files, "--log", files / "long.parquet", *options)
    assert done.exit_code == 0, done.stderr
    assert sorted(path.name for path in (files / "short").iterdir()) == FILES
    page = html.unescape((files / "short" / "report.html").read_text())
    assert "nan" not in re.sub("<img[^>]*>", "", page).lower()


@pytest.mark.parametrize("speeds", ["fast", "20,,40", "0", "-5", "nan", "inf"])
def test_a_requirement_that_is_no_speed_is_refused_before_anything_is_written(files, speeds):
    done = run(files, "--sla", speeds, "--report", files / "refused")
    assert done.exit_code == 2
    assert len(done.stderr.splitlines()) == 1
    assert "--sla must be positive numbers separated by commas" in done.stderr
    assert not (files / "refused").exists()


# ---- the page in headless Chromium ----

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--hide-scrollbars",
    # Nothing is there: a request would fail, and be seen below.
    "--proxy-server=127.0.0.1:9",
)
#: Reads what a visitor of each width would get; the page itself forbids scripts.
PROBE = """
<script>
addEventListener("load", () => {
  const seen = [...document.querySelectorAll("iframe")].map(frame => {
    const page = frame.contentDocument, root = page.documentElement;
    const boxes = [...page.querySelectorAll(".scroll")];
    return {
      width: root.clientWidth,
      scrollWidth: root.scrollWidth,
      words: page.body.innerText,
      pictures: [...page.images].map(image => image.naturalWidth),
      requests: frame.contentWindow.performance.getEntriesByType("resource")
        .map(entry => entry.name).filter(name => !name.startsWith("data:")),
      stays: boxes.map(box => {
        const cell = box.querySelector("tbody th");
        if (!cell) return true;
        box.scrollLeft = 50;
        return cell.getBoundingClientRect().left >= box.getBoundingClientRect().left - 1;
      }),
      smallest: Math.min(...[...page.querySelectorAll("p, li, td, th, dd")]
        .map(e => parseFloat(frame.contentWindow.getComputedStyle(e).fontSize))),
    };
  });
  document.getElementById("seen").textContent = JSON.stringify(seen);
});
</script>
"""


@pytest.fixture(scope="module")
def browser():
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None and os.environ.get("REQUIRE_CHROMIUM") != "1":
        pytest.skip(f"no {' or '.join(BROWSERS)} on the path; on Debian: apt-get install chromium")
    assert found, "REQUIRE_CHROMIUM=1, but no browser is on the path"
    return found


@pytest.fixture(scope="module")
def seen(browser, report, tmp_path_factory):
    """What the page looks like at 1280 and at 400 pixels."""
    folder = tmp_path_factory.mktemp("browser")
    page = html.escape((report / "report.html").read_text())
    frames = [f'<iframe width="{w}" height="900" srcdoc="{page}"></iframe>' for w in (1280, 400)]
    style = "<meta charset='utf-8'><style>iframe { border: 0; display: block; }</style>"
    (folder / "probe.html").write_text(f'{style}{"".join(frames)}<pre id="seen"></pre>{PROBE}')
    done = subprocess.run(
        [
            browser,
            *FLAGS,
            f"--user-data-dir={folder / 'profile'}",
            "--dump-dom",
            (folder / "probe.html").as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    (found,) = re.findall('<pre id="seen">(.*?)</pre>', done.stdout, re.DOTALL)
    assert found, done.stderr
    return json.loads(html.unescape(found))


def test_in_a_browser_the_page_is_as_wide_as_the_window(seen):
    assert [view["width"] for view in seen] == [1280, 400]
    assert [view["scrollWidth"] for view in seen] == [1280, 400]


def test_in_a_browser_the_verdict_is_the_first_thing_to_read(files, seen):
    verdict = json.loads(run(files, "--json").stdout)["verdicts"][0]
    for view in seen:
        lines = [line for line in view["words"].splitlines() if line]
        assert lines[:2] == ["Is scheduling worth switching on?", verdict]


def test_in_a_browser_all_pictures_are_there(seen):
    for view in seen:
        assert len(view["pictures"]) == 4
        assert min(view["pictures"]) >= 720


def test_in_a_browser_nothing_is_requested(seen):
    assert [view["requests"] for view in seen] == [[], []]


def test_in_a_browser_the_first_column_stays_when_a_table_scrolls(seen):
    for view in seen:
        assert len(view["stays"]) >= 11
        assert all(view["stays"])


def test_in_a_browser_no_text_is_tiny(seen):
    assert min(view["smallest"] for view in seen) >= 12
