"""The report page as text: the answer first, nothing from outside, nothing unescaped."""

from html.parser import HTMLParser

import msgspec
import numpy as np
import pytest
from made_results import POLICIES, made_result

from dspark_sched.report.folder import report_files
from dspark_sched.report.series import rate

COMMAND = "dspark-sched simulate --sps 'my profile.csv' --report report"


class Page(HTMLParser):
    """Tags with their attributes, and the visible words in order."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.words, self._hidden = [], [], False
        self.feed(text)
        self.words = " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        self._hidden = tag in ("style", "title")

    def handle_endtag(self, tag):
        self._hidden = False

    def handle_data(self, data):
        if not self._hidden:
            self.words.append(data)


def page(result, command=COMMAND, sla=()):
    return Page(report_files(result, command, sla)["report.html"].decode())


@pytest.fixture(scope="module")
def files():
    return report_files(made_result(), COMMAND, (40, 900))


@pytest.fixture(scope="module")
def shown(files):
    return Page(files["report.html"].decode())


def test_the_folder_holds_the_page_and_its_pictures(files):
    pictures = ["throughput.png", "frontier.png", "pruning.png", "forecast.png"]
    assert list(files) == ["report.html", *pictures]
    assert all(files[name].startswith(b"\x89PNG") for name in pictures)


def test_the_verdict_comes_before_everything_else(shown):
    question, answer = "Is scheduling worth switching on?", made_result().verdicts[0]
    assert shown.words.startswith(f"{question} {answer}")


def test_nothing_is_loaded_from_anywhere(files, shown):
    loading = ("src", "srcset", "href", "data", "action", "background", "poster")
    links = [value for _, held in shown.tags for name, value in held.items() if name in loading]
    assert len(links) == 5  # four pictures, and an empty icon so that none is asked for
    assert all(link.startswith("data:") for link in links)
    names = {tag for tag, _ in shown.tags}
    assert names.isdisjoint({"script", "iframe", "object", "embed", "base", "form"})
    text = files["report.html"]
    assert b"url(" not in text
    assert b"@import" not in text


def test_the_page_forbids_requests_itself(shown):
    (policy,) = [held["content"] for tag, held in shown.tags if "http-equiv" in held]
    assert policy.startswith("default-src 'none'")


def test_every_policy_and_concurrency_stands_in_every_matrix(shown):
    for name in POLICIES:
        assert shown.words.count(f" {name} ") >= 6


def test_the_fold_holds_every_row_and_column(shown):
    result = made_result()
    rows = len(result.rows)
    cells = sum(tag == "td" for tag, _ in shown.tags)
    best, matrices, fold = 3 * 9, 6 * rows, (len(result.rows.columns) - 2) * rows
    assert cells == best + matrices + fold


def test_requirements_are_answered_in_words(shown):
    assert "for at least 40 tokens/s in 95 % of requests: threshold:0.6 serves most" in shown.words
    assert "for at least 900 tokens/s in 95 % of requests: no policy reaches it" in shown.words


def test_who_serves_as_much_is_named_beside_the_first():
    result = made_result(["fixed:1", "delayed"], [8])
    result.rows["tokens_per_second"] = [100.0, 99.7]
    result.rows["user_tokens_per_second_p5"] = 50.0
    result.repeats["tokens_per_second"] = [99.0, 101.0, 98.7, 100.7]
    result.repeats["user_tokens_per_second_p5"] = 50.0
    assert (
        "for at least 40 tokens/s in 95 % of requests: fixed:1 or delayed serve most (no clear "
        "difference), 100.0 tokens/s at 8 requests"
    ) in page(result, sla=(40,)).words


def test_how_to_get_it_again_is_said(shown):
    versions = "dspark-sched 0.1.0, numpy 2, numba 0, python 3"
    for words in (COMMAND, versions, "held_out.parquet (digest 3f1c)", "0, 5, 1000"):
        assert words in shown.words


def test_notes_are_shown(shown):
    for note in made_result().notes:
        assert note in shown.words


def test_equal_results_give_equal_bytes(files):
    assert report_files(made_result(), COMMAND, (40, 900)) == files


def test_what_users_name_is_escaped():
    evil = "<script>alert('&')</script>"
    result = made_result(["none", "fixed:3"], [1, 8])
    tables = result.rows, result.repeats, result.positions, result.predicted, result.best
    for table in tables:
        table["policy"] = table["policy"].replace("fixed:3", evil)
    result = msgspec.structs.replace(
        result,
        verdicts=(evil, evil),
        notes=(evil,),
        settings=result.settings
        | {
            "policies": ["none", evil],
            "labels": {"none": "none", evil: evil},
            "log": {"source": evil, "digest": evil},
            "profile": {"identity": {evil: evil}},
        },
    )
    shown = page(result, command=f"dspark-sched simulate --log {evil}", sla=(20,))
    assert "script" not in {tag for tag, _ in shown.tags}
    # verdicts 2, best 2 rows, requirement, matrices 6, note, fold 2, command, log 2, identity 2.
    assert shown.words.count(evil) == 19


def test_a_policy_that_changes_the_output_is_marked():
    result = made_result(["delayed", "fixed:1", "fixed:3"], [8])
    result.rows["lossless"] = np.array([True, False, None], object)
    words = page(result).words
    assert "fixed:1 (not lossless)" in words
    assert words.count("fixed:3 (not known to be lossless)") == 7  # best table and 6 matrices
    assert "delayed (not" not in words
    result.rows["tokens_per_second"] = [1.0, 2.0, 3.0]
    assert "fixed:3 (?) or delayed serve most" in page(result, sla=(5,)).words


def test_how_sure_a_lead_is_is_said_in_the_first_table():
    for gain, low, high, words in (
        (0.06, 0.05, 0.07, "+6.0% +5.0% to +7.0%"),
        (0.06, -0.01, 0.13, "+6.0% unclear: -1.0% to +13.0%"),
        (0.003, 0.002, 0.004, "+0.3% below 0.5 %: +0.2% to +0.4%"),
        (0.0, 0.0, 0.0, "8 fixed:3 equal none"),
        (0.06, np.nan, np.nan, "+6.0% no interval: one repeat"),
        (np.nan, np.nan, np.nan, "– no other policy"),
    ):
        result = made_result(["none", "fixed:3"], [8])
        clear = bool(low > 0 and gain >= 0.005)
        for name, value in (("gain", gain), ("gain_low", low), ("gain_high", high)):
            result.best[name] = value
        result.best["clear"] = clear
        assert words in page(result).words


def test_the_best_of_a_column_is_marked_unless_it_changes_the_output():
    result = made_result(["none", "fixed:1", "fixed:3"], [8])
    result.rows["lossless"] = [True, True, False]
    text = report_files(result, COMMAND)["report.html"].decode()
    totals, users = (
        [f"{rate(value)}<small>" for value in result.rows[column]]
        for column in ("tokens_per_second", "user_tokens_per_second")
    )
    for _, second, fastest in (totals, users):
        assert f'<td class="best">{second}' in text
        assert f'<td class="best">{fastest}' not in text


def test_what_is_not_known_is_a_dash_not_a_number():
    result = made_result(["delayed", "none"], [8])
    result.rows["user_tokens_per_second"] = [np.nan, 10.0]
    result.rows["user_tokens_per_second_p5"] = [np.nan, 10.0]
    words = page(result, sla=(5,)).words
    assert "nan" not in words.lower()
    assert "for at least 5 tokens/s in 95 % of requests: 'none' serves most" in words
