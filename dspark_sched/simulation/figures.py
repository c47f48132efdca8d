"""From what happened in a run to the figures that a user reads."""

import numpy as np

from ..intervals import relative_half_width

__all__ = ["position_rows", "prediction_rows", "run_figures", "summary"]

#: Bins of the comparison of expected with realised tokens.
_BINS = 10


def run_figures(trace, contender, num_requests, idle_seconds):
    """Figures of one run, over its counted steps and the requests that ended in them.

    Parameters
    ----------
    trace : Trace
    contender : Contender
        A step costs its profile's time at R + (drafts verified).
    num_requests : int
    idle_seconds : float
        Time of a step without speculation: what drafting has to beat.

    Returns
    -------
    dict of str to float
        In the order of the columns.
    """
    profile, steps = contender.profile, len(trace.emitted)
    first = steps // 10
    batch_tokens = num_requests + trace.verified
    all_seconds = profile.step_seconds(batch_tokens, num_requests)
    step_seconds, batch_tokens = all_seconds[first:], batch_tokens[first:]
    seconds = step_seconds.sum()
    num_blocks = num_requests * len(step_seconds)
    emitted = trace.emitted[first:].sum()
    return {
        "tokens_per_second": emitted / seconds,
        **_request_figures(trace, all_seconds, first),
        **_percentiles("inter_step_ms", 1000.0 * step_seconds, (50, 95)),
        "acceptance_length": emitted / num_blocks,
        "accepted_drafts": trace.accepted[first:].sum() / num_blocks,
        "verified_per_request": trace.verified[first:].sum() / num_blocks,
        **_rates(trace.blocks, contender.caps_after),
        "predicted_tokens_per_second": trace.expected_tokens[first:].sum() / seconds,
        "extrapolated_share": profile.is_extrapolated(batch_tokens).mean(),
        "batch_tokens": batch_tokens.mean(),
        "step_seconds": seconds / len(step_seconds),
        "break_even_accepted": seconds / len(step_seconds) / idle_seconds - 1.0,
    }


def _request_figures(trace, step_seconds, first):
    """Speed as each request saw it, of those completed in a counted step."""
    counted = trace.last_step >= first
    end = trace.last_step[counted] + 1
    tokens = trace.num_tokens[counted]
    elapsed = np.concatenate(([0.0], np.cumsum(step_seconds)))
    seconds = elapsed[end] - elapsed[end - trace.num_steps[counted]]
    rate = tokens / seconds
    return {
        "user_tokens_per_second": rate.mean() if len(rate) else np.nan,
        **_percentiles("user_tokens_per_second", rate, (5,)),
        **_percentiles("tpot_ms", 1000.0 * seconds / tokens, (50, 95, 99)),
    }


def _percentiles(name, values, percents):
    found = np.percentile(values, percents) if len(values) else [np.nan] * len(percents)
    return {f"{name}_p{p}": value for p, value in zip(percents, found, strict=True)}


def _cells(blocks, caps_after):
    """Per cell of ``blocks``: drafts verified, right, kept at most; whether a stop ended it."""
    length, right, ended = np.indices(blocks.shape)
    verified = np.full_like(length, len(blocks) - 1) if caps_after else length
    return verified, right, length, ended.astype(bool)


def _rates(blocks, caps_after):
    """Ratios whose denominators differ from run to run: of sums, never means of ratios."""
    verified, right, limit, ended = _cells(blocks, caps_after)
    # A draft is tried if it is verified and all before it were accepted; behind an accepted stop
    # token nothing is.
    tried = np.minimum(verified, right + 1 - ended)
    per_verified = _ratio(blocks, np.minimum(limit, right), verified)
    return {
        "accepted_per_verified": per_verified,
        "conditional_acceptance": _ratio(blocks, np.minimum(verified, right), tried),
        "wasted_verification": 1.0 - per_verified,
    }


def _ratio(weights, part, whole):
    total = (weights * whole).sum()
    return (weights * part).sum() / total if total else np.nan


def position_rows(blocks, caps_after):
    """Per draft position, from 1: how often it was verified, and survival before and after.

    Parameters
    ----------
    blocks : ndarray of int64, shape (gamma + 1, gamma + 1, 2)
        See `Trace`; may be summed over runs.
    caps_after : bool

    Returns
    -------
    list of dict
    """
    verified, right, limit, ended = _cells(blocks, caps_after)
    found = []
    for k in range(1, len(blocks)):
        # Both survivals are over the blocks whose fate at k the log tells.
        known = blocks * ~(ended & (right < k))
        found.append(
            {
                "position": k,
                "verified_share": _ratio(blocks, verified >= k, np.ones_like(blocks)),
                "survival_drafted": _ratio(known, right >= k, np.ones_like(blocks)),
                "survival_verified": _ratio(
                    known, (right >= k) & (limit >= k), np.ones_like(blocks)
                ),
            }
        )
    return found


def prediction_rows(predicted, realised):
    """Realised tokens per step in bins of equally many steps by what was predicted.

    Parameters
    ----------
    predicted, realised : ndarray of float64, shape (S,)

    Returns
    -------
    list of dict
        Fewer than ten where predictions are equal: equal ones are never divided.
    """
    edges = np.quantile(predicted, np.arange(1, _BINS) / _BINS, method="higher")
    bins = np.searchsorted(np.unique(edges), predicted, side="right")
    return [
        {
            "predicted_tokens": float(predicted[bins == b].mean()),
            "realised_tokens": float(realised[bins == b].mean()),
            "num_steps": int((bins == b).sum()),
        }
        for b in np.unique(bins)
    ]


def summary(repeats, pooled_blocks, contenders, lossless):
    """One row per policy and concurrency.

    Parameters
    ----------
    repeats : pandas.DataFrame
    pooled_blocks : dict
        {(policy, concurrency): blocks summed over repeats}, in the order of the rows.
    contenders : list of Contender
    lossless : dict
        {policy: bool or None}.

    Returns
    -------
    pandas.DataFrame
        Means over repeats; the ratios of `_rates` over the pooled blocks; the interval of the
        throughput.
    """
    import pandas as pd

    caps_after = {contender.name: contender.caps_after for contender in contenders}
    index = pd.MultiIndex.from_tuples(list(pooled_blocks), names=["policy", "concurrency"])
    groups = repeats.drop(columns="repeat").groupby(["policy", "concurrency"], sort=False)
    rows = groups.mean().loc[index]
    rates = [_rates(blocks, caps_after[name]) for (name, _), blocks in pooled_blocks.items()]
    for column in rates[0]:
        rows[column] = [rate[column] for rate in rates]
    half = groups["tokens_per_second"].agg(relative_half_width).loc[index]
    rows.insert(1, "tokens_per_second_low", rows["tokens_per_second"] * np.exp(-half))
    rows.insert(2, "tokens_per_second_high", rows["tokens_per_second"] * np.exp(half))
    marks = [lossless[name] for name, _ in pooled_blocks]
    kind = object if None in marks else bool
    rows.insert(rows.columns.get_loc("batch_tokens"), "lossless", np.array(marks, kind))
    return rows.reset_index()
