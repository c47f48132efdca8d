"""Why was anything trimmed, or not? Decisions in words, the answer first."""

import math

import msgspec
import numpy as np

from ..types import Status
from .fields import NOT_KNOWN, SOURCES, has

__all__ = ["Explanation", "Reason", "explain"]

#: Relative error of a prediction from which on it is called wrong.
OFF = 0.05
#: A gain that is not 0 by rounding alone is not further from 0 than this.
_ROUNDING = 1e-9

#: Why a step did what it did; the first kind that applies is its reason. First those without a
#: choice, then those that verified everything (or that stand before them), then those that trimmed.
WORDS = {
    "no-requests": "there were no requests",
    "no-emitting": "no request emitted a token",
    "not-drafted": "the step was told not to draft",
    "bounds": "the bounds left no choice: max_lengths (with assign_max_lengths the smaller of the "
    "two) equalled min_lengths for every request, or in uniform mode those of one request fixed "
    "the length of all",
    "cut": "bounds that came after the plan (assign_max_lengths) left no more drafts than its "
    "capacity",
    "flat": "the profile is flat: every step takes the same time, so drafts cost nothing; measure "
    "larger batches, until the time rises",
    "inert": "the profile is inert here: the step takes the same time whatever is chosen; measure "
    "probes inside the range of these batches, or expect no trimming at this load",
    "explored": "the step explored: it verified one request in full (in uniform mode all), "
    "whatever its drafts promised, to learn about it",
    "cold-start": "nothing was known yet (cold start), so every draft of a request without history "
    "counted as certain; it ends when a step with usable confidences is as old as the lag",
    "unknown-rows": "no request had old enough confidences of its own, so a prior stood in for "
    "them (unknown=, the estimator's or the running mean); check that request_ids stay the same "
    "from step to step",
    "kept-all": "the predicted gain of trimming did not exceed min_gain, so the baseline ran; "
    "lower min_gain to trim for less",
    "unmeasured": "no larger size that this step could have had was measured, and lookup='exact' "
    "offers no others; measure more sizes, or use lookup='ceil'",
    "overhead": "every other choice, the time of the scheduling path included, would have lost "
    "against the baseline, so that ran",
    "worth-it": "the capacity covered everything offered: the drafts promised more tokens than "
    "their step time costs",
    "covered": "the capacity covered everything offered; if it was searched and not given, the "
    "drafts promised more tokens than their step time costs",
    "kept-none": "the predicted gain of verifying more did not exceed min_gain, so nothing was "
    "planned beyond what had to be verified (minimum lengths, exploring); lower min_gain to verify "
    "more for less",
    "invalid-rows": "capacity was left over, and some rows held confidences that are NaN or "
    "outside [0, 1], which end their drafts; find out where they come from",
    "no-survival": "capacity was left over, but no other draft within the bounds had a survival "
    "above 0",
    "survival": "survival was too low: beyond the capacity, drafts promised fewer tokens than "
    "their step time costs",
    "capacity": "the capacity ended before the drafts did; if it was searched and not given, "
    "further drafts promised fewer tokens than their step time costs, or their sizes were not "
    "measured (lookup='exact')",
}
NO_CHOICE = ("no-requests", "no-emitting", "not-drafted", "bounds")

#: What else to know about steps that carry a flag.
NOTES = {
    Status.ONE_PROBE: "the profile has one measured batch size; measure at least two",
    Status.COLD_START: "were planned in part on a cold start, unknown survivals taken as 1",
    Status.UNKNOWN_ROWS: "had requests without confidences of their own",
    Status.INVALID_ROWS: "had confidences that are NaN or outside [0, 1]",
    Status.EXTRAPOLATED: "were larger than the last measured batch; measure up to there",
    Status.SURPLUS_CAPACITY: "had capacity that found no eligible draft",
    Status.NO_BUCKET: "were larger than every captured size and ran unpadded",
    Status.EXPLORING: "verified one request in full (in uniform mode all) to learn about it",
    Status.ANTICIPATING: "searched their own confidences: not lossless under rejection sampling",
    Status.BLOCK_MISMATCH: "ran with a gamma that is not the checkpoint's block",
}


#: What to do where the tokens are not as predicted, by the source of the confidences.
_TOKENS_REMEDY = {
    "head": "calibrate the confidences on a log of this traffic",
    "estimator": "the estimator follows the traffic with delay, sooner with a smaller decay",
    "constant": "change the constant survivals to those of this traffic",
}


class Reason(msgspec.Struct, frozen=True):
    """Something that holds for some of the steps.

    Attributes
    ----------
    kind : str
    num_steps : int
    share : float
        Of all steps, 0..1.
    drafts_trimmed : int
        In these steps.
    text : str
    """

    kind: str
    num_steps: int
    share: float
    drafts_trimmed: int
    text: str


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """Decisions in words.

    Attributes
    ----------
    verdict : str
        The answer, one sentence.
    num_steps, trimmed_steps : int
    drafts_offered, drafts_verified, drafts_trimmed : int
    reasons : tuple of Reason
        Each step has exactly one; the most frequent first.
    notes : tuple of Reason
        What else holds; a step can have several.
    step_time_error, tokens_error : float or None
        Realised over predicted, minus 1, of the sums over the steps that were reported.
    """

    verdict: str
    num_steps: int
    trimmed_steps: int
    drafts_offered: int
    drafts_verified: int
    drafts_trimmed: int
    reasons: tuple[Reason, ...]
    notes: tuple[Reason, ...]
    step_time_error: float | None
    tokens_error: float | None


def explain(decisions):
    """Why anything was trimmed, or not.

    Parameters
    ----------
    decisions : ndarray of ``DECISION``

    Returns
    -------
    Explanation
    """
    trimmed = decisions["drafts_offered"] - decisions["drafts_verified"]
    reasons = [
        _reason(kind, WORDS[kind], mask, trimmed)
        for kind, mask in zip(WORDS, _masks(decisions, trimmed), strict=True)
        if mask.any()
    ]
    reasons.sort(key=lambda reason: -reason.num_steps)
    time_error, time_note = _step_times(decisions, trimmed)
    tokens_error, tokens_note = _tokens(decisions, trimmed)
    offered = int(decisions["drafts_offered"].sum())
    return Explanation(
        verdict=_verdict(reasons, len(decisions), offered, int(trimmed.sum())),
        num_steps=len(decisions),
        trimmed_steps=int((trimmed > 0).sum()),
        drafts_offered=offered,
        drafts_verified=offered - int(trimmed.sum()),
        drafts_trimmed=int(trimmed.sum()),
        reasons=tuple(reasons),
        notes=(*time_note, *tokens_note, *_flag_notes(decisions, trimmed)),
        step_time_error=time_error,
        tokens_error=tokens_error,
    )


def _masks(decisions, trimmed):
    """Which steps each kind of ``WORDS`` is the reason of, bool, one array per kind."""
    is_all = trimmed == 0
    kept = has(decisions, Status.KEPT_BASELINE)
    # A gain of 0 or less would not have been taken with any min_gain.
    kept_away = kept & (decisions["gain"] > _ROUNDING)
    is_loss = kept & (decisions["gain"] < -_ROUNDING)
    left_over = decisions["surplus"] > 0
    planned = decisions["planned"] == 1
    applies = {
        "no-requests": decisions["num_requests"] == 0,
        "no-emitting": decisions["num_emitting"] == 0,
        "not-drafted": has(decisions, Status.NOT_DRAFTED),
        "bounds": decisions["drafts_granted"] >= decisions["drafts_offered"],
        "cut": is_all & planned & (decisions["capacity"] < decisions["drafts_plannable"]),
        "flat": is_all & has(decisions, Status.FLAT),
        "inert": is_all & (decisions["inert"] == 1),
        "explored": is_all & (decisions["explored"] == 1),
        "cold-start": is_all & has(decisions, Status.COLD_START),
        "unknown-rows": is_all & (decisions["num_unknown_rows"] >= decisions["num_requests"]),
        "kept-all": is_all & kept_away,
        "unmeasured": ~is_all & ~left_over & planned & (decisions["unmeasured"] == 1),
        "overhead": is_loss & (is_all | ~left_over),
        "worth-it": is_all & planned,
        "covered": is_all,
        "kept-none": kept_away & ~left_over,
        "invalid-rows": left_over & (decisions["num_invalid_rows"] > 0),
        "no-survival": left_over,
        "survival": planned,
        "capacity": np.ones(len(decisions), np.bool),
    }
    free = np.ones(len(decisions), np.bool)
    for kind in WORDS:
        yield free & applies[kind]
        free &= ~applies[kind]


def _reason(kind, text, mask, trimmed):
    steps = int(mask.sum())
    return Reason(
        kind=kind,
        num_steps=steps,
        share=steps / len(mask),
        drafts_trimmed=int(trimmed[mask].sum()),
        text=text,
    )


def _verdict(reasons, num_steps, offered, trimmed):
    if not reasons:
        return "There are no decisions yet."
    if trimmed:
        cause = max(reasons, key=lambda reason: reason.drafts_trimmed)
        part = cause.drafts_trimmed / trimmed
        return (
            f"{trimmed} of {offered} drafts offered were trimmed ({_percent(trimmed / offered)}), "
            f"{'all' if part == 1.0 else _percent(part)} of them because {cause.text}."
        )
    with_choice = [reason for reason in reasons if reason.kind not in NO_CHOICE]
    cause = (with_choice or reasons)[0]
    share = f"in {cause.num_steps} of {num_steps} steps because"
    if not with_choice:
        return f"There was nothing to trim, {share} {cause.text}."
    return f"Nothing was trimmed, all {offered} drafts offered were verified: {share} {cause.text}."


def _step_times(decisions, trimmed):
    """(relative error or None, notes) of the predicted step times."""
    mask = np.isfinite(decisions["realised_step_seconds"]) & (decisions["step_seconds"] > 0.0)
    error = _error(decisions["realised_step_seconds"], decisions["step_seconds"], mask)
    if error is None:
        return None, ()
    text = f"measured step times are {_away(error)} the predicted ones"
    if abs(error) > OFF:
        text += "; the profile does not describe this system, measure it again here"
    return error, (_reason("step-time", text, mask, trimmed),)


def _tokens(decisions, trimmed):
    """(relative error or None, notes) of the predicted tokens."""
    mask = (decisions["realised_tokens"] != NOT_KNOWN) & (decisions["expected_tokens"] > 0.0)
    error = _error(decisions["realised_tokens"], decisions["expected_tokens"], mask)
    if error is None:
        return None, ()
    text = f"emitted tokens are {_away(error)} the predicted ones"
    if abs(error) > OFF:
        sources = np.unique(decisions["source"][mask])
        text += "".join(f"; {_TOKENS_REMEDY[SOURCES[source]]}" for source in sources)
    return error, (_reason("tokens", text, mask, trimmed),)


def _error(realised, predicted, mask):
    if not mask.any():
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        error = float(realised[mask].sum() / predicted[mask].sum() - 1.0)
    return error if math.isfinite(100.0 * error) else None


def _away(error):
    return f"{_percent(abs(error))} {'above' if error >= 0.0 else 'below'}"


def _flag_notes(decisions, trimmed):
    for flag, text in NOTES.items():
        mask = has(decisions, flag)
        if mask.any():
            yield _reason(flag.name.lower().replace("_", "-"), text, mask, trimmed)
    mask = decisions["drafts_cut_by_bounds"] > 0
    if mask.any():
        cut = int(decisions["drafts_cut_by_bounds"].sum())
        yield _reason(
            "cut-by-bounds", f"had drafts cut by max_lengths, {cut} in all", mask, trimmed
        )


def _percent(share):
    return f"{100.0 * share:.1f} %"
