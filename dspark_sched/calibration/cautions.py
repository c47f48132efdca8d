"""What a reader of calibration figures must know, in words."""

import numpy as np

__all__ = ["FEWEST_REQUESTS", "FEW_REQUESTS", "cautions_of", "counted", "printable"]

#: Fewer requests than this on a side make its figures rough.
FEW_REQUESTS = 20
#: Resampling fewer requests than this says nothing about others: no interval, no verdict.
FEWEST_REQUESTS = 5
_MOST_NAMES = 5


def cautions_of(log, evaluation):
    """Sentences about the log, the split and the positions, most general first.

    Parameters
    ----------
    log : Log
    evaluation : Evaluation
        Of that log; its own ``cautions`` are not used.

    Returns
    -------
    tuple of str
    """
    cautions = [*log.notes, *_about_split(log, evaluation), *_about_truncation(log)]
    for figures in evaluation.positions:
        where = f"position {figures.position}"
        cautions += [f"{where}: {what}" for what in _about_position(figures)]
    if log.num_infinite is not None:
        cautions += [
            f"position {k + 1}: {count} logits are infinite (confidence 0 or 1); no temperature "
            f"moves them"
            for k, count in enumerate(log.num_infinite)
            if count
        ]
    return tuple(cautions)


def _about_split(log, evaluation):
    if log.request_id is None:
        yield (
            "no request_id: contiguous runs of rows stand for requests; one request may lie on "
            "both sides, and the intervals may be too narrow"
        )
    sides = (("fit", evaluation.num_fit_requests), ("evaluation", evaluation.num_eval_requests))
    for side, count in sides:
        if side == "evaluation" and count < FEWEST_REQUESTS:
            yield (
                f"only {counted(count, 'request')} on the evaluation side (fewer than "
                f"{FEWEST_REQUESTS}): too few to say whether calibration helps; log more requests"
            )
        elif count < FEW_REQUESTS:
            yield (
                f"only {counted(count, 'request')} on the {side} side (fewer than "
                f"{FEW_REQUESTS}): its figures are rough; log more requests"
            )
    few = [group for group in evaluation.domains if group.num_requests < FEW_REQUESTS]
    if few:
        named = [f"{printable(group.name)} ({group.num_requests})" for group in few[:_MOST_NAMES]]
        more = f" and {len(few) - _MOST_NAMES} more" if len(few) > _MOST_NAMES else ""
        yield (
            f"figures of a domain with fewer than {FEW_REQUESTS} requests on the evaluation side "
            f"are rough: {', '.join(named)}{more}"
        )


def _about_truncation(log):
    cut = (log.verified < log.gamma) & ~log.finished
    num_cut = np.count_nonzero(cut)
    if num_cut:
        yield (
            f"a schedule cut {num_cut} of {len(log)} blocks (verified < {log.gamma}): the figures "
            f"describe only what the schedule chose to verify; collect a log with every draft "
            f"verified for the others"
        )
    rejected = cut & (log.accepted < log.verified)
    stops = log.verified[rejected]
    if len(np.unique(stops)) > 1 and (stops == log.accepted[rejected] + 1).all():
        yield (
            "every rejected block has verified = accepted + 1, as if verified were where the "
            "check stopped; it must be how many drafts were sent to the target, or every survival "
            "here is too high"
        )
    finished = np.count_nonzero(log.finished)
    if finished:
        yield (
            f"{finished} of {len(log)} blocks end in an accepted stop token; later positions leave "
            f"them out"
        )


def _about_position(figures):
    if figures.flag == "unfitted":
        yield (
            f"only {figures.num_fit_records} records to fit on (100 are needed): unfitted, T = 1"
        )
    ece = f"ECE {100 * figures.ece_before:.2f} to {100 * figures.ece_after:.2f} %"
    brier = f"Brier score {figures.brier_before:.4f} to {figures.brier_after:.4f}"
    # A rise that four decimals do not show is no rise.
    bought = figures.ece_after < figures.ece_before and (
        round(figures.brier_after, 4) > round(figures.brier_before, 4)
    )
    if figures.flag == "grid-end":
        end = f"T = {figures.temperature:g}, the end of the grid"
        yield f"{end} ({ece}, {brier}); {_shape(figures)}"
    elif bought:
        yield f"{ece} but {brier}; {_shape(figures)}"
    if figures.verdict == "worse":
        yield f"{ece}: worse than T = 1 everywhere; fitting in sequence can do that"


def _shape(figures):
    """Say what a temperature that does not help has done to the predictions."""
    spread = figures.spread_after / figures.spread_before if figures.spread_before else 1.0
    at_end = figures.flag == "grid-end"
    if at_end and figures.temperature < 1.0:
        return (
            "sharpened: all confidences pushed towards 0 or 1; a temperature cannot fix this head"
        )
    if at_end or spread < 0.5:
        return "flattened: all confidences nearly equal; a temperature cannot shift this head"
    if spread < 1.0:
        return "partly flattened: predictions drawn together; the smaller ECE is no better forecast"
    return "the smaller ECE is no better forecast"


def printable(name):
    """Return a name from a log so that a terminal only prints it: no control characters."""
    letters = (letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in name)
    return "".join(letters) or "''"


def counted(number, unit):
    """Say a number of things in plain English."""
    return f"{number} {unit}" if number == 1 else f"{number} {unit}s"
