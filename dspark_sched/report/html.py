"""One page about a replay, for who decides: the answer in words, pictures, tables, assumptions.

Everything is inside the file: pictures as data URIs, the style inline, no script, no request.
"""

import base64
import struct
from html import escape
from importlib.resources import files
from string import Template

from .frontier import sla_choice
from .html_tables import best_table, every_figure, matrices
from .series import num_requests, rate

__all__ = ["report_html", "sla_sentence"]

TITLE = "Is scheduling worth switching on?"
#: Per picture: heading, and how to read it.
_SECTIONS = {
    "throughput.png": (
        "Throughput, and how much is verified",
        "Left: tokens per second of the whole engine. Right: drafts verified per request and step.",
    ),
    "frontier.png": (
        "Throughput against the speed a user sees",
        "Farther up: the engine serves more. Farther right: each user waits less. At a required "
        "speed, the highest line wins.",
    ),
    "pruning.png": (
        "What is cut",
        "Pruning is worth something where the survival of what is verified lies above the grey "
        "line of all drafts.",
    ),
    "forecast.png": (
        "How far the policies' own forecasts hold",
        "On the diagonal a step gave what the policy expected. Below it the confidences promise "
        "too much: calibrate.",
    ),
}


def report_html(result, pictures, command, sla=()):
    """Return the page as one HTML text; equal arguments give equal text.

    Parameters
    ----------
    result : SimulationResult
    pictures : dict
        {file name: PNG bytes}; the names of ``report_files``.
    command : str
        What was typed, quoted for a shell.
    sla : sequence of float
        Tokens per second that 95 % of requests must get.

    Returns
    -------
    str
    """
    reasons = [*(sla_sentence(result, required) for required in sla), *result.verdicts[1:]]
    sections = [_picture_section(result, name, png) for name, png in pictures.items()]
    sections += [
        _section("Assumptions and notes", _list(result.notes)),
        _section("Every figure", every_figure(result.rows)),
        _section("Reproduce it", _origin(result.settings, command)),
    ]
    template = files(__package__).joinpath("report.html").read_text(encoding="utf-8")
    return Template(template).substitute(
        title=TITLE,
        answer=escape(result.verdicts[0]),
        best=best_table(result.best, result.rows),
        reasons=_list(reasons),
        sections="\n".join(sections),
    )


def sla_sentence(result, required):
    """Say who serves most with 95 % of requests at ``required`` tokens per second or faster."""
    choice = sla_choice(result, required)
    start = f"for at least {required:g} tokens/s in 95 % of requests"
    if choice.policy is None:
        return f"{start}: no policy reaches it at any concurrency"
    place = "at " + num_requests(choice.between[0])
    if len(choice.between) == 2:
        low, high = choice.between
        place = f"between {low} and {num_requests(high)} (linear)"
    throughput = rate(choice.tokens_per_second)
    marks = dict(zip(result.rows["policy"], result.rows["lossless"], strict=True))
    found = (choice.policy, *choice.close[:2])
    names = " or ".join(_in_prose(name, marks[name]) for name in found)
    more = f" or {len(choice.close) - 2} more" if len(choice.close) > 2 else ""
    serves = "serve most (no clear difference)" if choice.close else "serves most"
    return f"{start}: {names}{more} {serves}, {throughput} tokens/s {place}"


def _in_prose(name, lossless):
    return "'none'" if name == "none" else f"{name} (?)" if lossless is None else name


def _section(heading, *parts):
    return "\n".join([f"<section>\n<h2>{escape(heading)}</h2>", *parts, "</section>"])


def _list(sentences):
    items = "\n".join(f"<li>{escape(sentence)}</li>" for sentence in sentences)
    return f"<ul>\n{items}\n</ul>" if items else ""


def _picture_section(result, name, png):
    heading, reading = _SECTIONS[name]
    width, height = struct.unpack(">II", png[16:24])
    image = (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(heading)}">'
        f'<img width="{width}" height="{height}" alt="{escape(heading)}" '
        f'src="data:image/png;base64,{base64.b64encode(png).decode()}"></div>'
    )
    return _section(heading, f"<p>{escape(reading)}</p>", image, matrices(name, result.rows))


def _origin(settings, command):
    """The command, the versions and the inputs that give the same figures again."""
    log = settings["log"]
    entries = {
        "versions": ", ".join(f"{name} {v}" for name, v in settings["versions"].items()),
        "seed, repeats, steps": ", ".join(str(settings[n]) for n in ("seed", "repeats", "steps")),
        "log": f"{log['source']} (digest {log['digest']})",
        "temperatures": _words(settings["temperatures"]),
        "step-time profile": _words(settings["profile"]),
        "profile without a drafter": _words(settings["plain_profile"]),
    }
    rows = "\n".join(
        f"<dt>{escape(name)}</dt><dd>{escape(str(value))}</dd>" for name, value in entries.items()
    )
    return f"<pre>{escape(command)}</pre>\n<dl>\n{rows}\n</dl>"


def _words(value):
    if isinstance(value, dict):
        return "; ".join(f"{name}: {_words(part)}" for name, part in value.items()) or "none"
    if isinstance(value, list):
        return ", ".join(_words(part) for part in value)
    return f"{value:.6g}" if isinstance(value, float) else "none" if value is None else str(value)
