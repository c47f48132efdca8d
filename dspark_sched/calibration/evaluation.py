"""Fit on one side of a log, evaluate on the other: figures, intervals, and words of caution."""

import msgspec
import numpy as np

from .. import checks
from ..checks import InputError
from ..types import Calibration
from . import metrics
from .cautions import FEWEST_REQUESTS, cautions_of, counted
from .split import evaluation_rows, request_keys
from .temperature import as_outcomes, fit_sts

__all__ = [
    "Evaluation",
    "Figures",
    "GroupFigures",
    "PositionFigures",
    "evaluate",
    "evaluation_rows",
]


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of the evaluation side, before (T = 1 everywhere) and after calibration.

    A prediction is the survival at a position; ECE, noise, survivals and Brier score are
    fractions, not per cent. NaN: no records.

    Attributes
    ----------
    observed, predicted_before, predicted_after : float
        Mean survival.
    ece_before, ece_after : float
    noise_before, noise_after : float
        The ECE that a perfectly calibrated model with the same predictions would show.
    change_low, change_high : float
        95 % interval of ``ece_after - ece_before``, requests resampled; NaN with fewer than 5.
    verdict : str
        "better", "worse" or "no clear change", by that interval alone; "too few requests", "no
        records".
    auc_before, auc_after : float
        Area under the ROC curve of the survival against its event.
    brier_before, brier_after : float
        Mean squared error.
    spread_before, spread_after : float
        Standard deviation of the predictions.
    """

    observed: float
    predicted_before: float
    predicted_after: float
    ece_before: float
    ece_after: float
    noise_before: float
    noise_after: float
    change_low: float
    change_high: float
    verdict: str
    auc_before: float
    auc_after: float
    brier_before: float
    brier_after: float
    spread_before: float
    spread_after: float


class PositionFigures(Figures, frozen=True, kw_only=True):
    """One draft position.

    Attributes
    ----------
    position : int
        From 1.
    temperature : float
    flag : str
        "", "unfitted" or "grid-end".
    num_records, num_left_out : int
        Rows of the evaluation side with ``verified >= position``, and the others.
    num_fit_records : int
        Rows the temperature was fitted on.
    """

    position: int
    temperature: float
    flag: str
    num_records: int
    num_left_out: int
    num_fit_records: int


class GroupFigures(Figures, frozen=True, kw_only=True):
    """Means over the positions that have records: of all rows, or of one domain's.

    Attributes
    ----------
    name : str
        "overall" or the domain.
    num_requests, num_rows : int
        Of the evaluation side.
    """

    name: str
    num_requests: int
    num_rows: int


class Evaluation(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """Temperatures with how far they can be trusted.

    Attributes
    ----------
    calibration : Calibration
        Fitted on the fit side; its ECE are those of the evaluation side.
    positions : tuple of PositionFigures
    overall : GroupFigures
    domains : tuple of GroupFigures
        Sorted by name; empty where the log has no domains.
    num_fit_requests, num_fit_rows, num_eval_requests, num_eval_rows : int
    counts_before, counts_after : ReliabilityCounts
        Of the evaluation side.
    cautions : tuple of str
        What the reader of the figures must know.
    """

    calibration: Calibration
    positions: tuple[PositionFigures, ...]
    overall: GroupFigures
    domains: tuple[GroupFigures, ...]
    num_fit_requests: int
    num_fit_rows: int
    num_eval_requests: int
    num_eval_rows: int
    counts_before: metrics.ReliabilityCounts
    counts_after: metrics.ReliabilityCounts
    cautions: tuple[str, ...] = ()


def evaluate(log, *, num_bins=15, eval_fraction=0.3, seed=0, advance=None):
    """Fit temperatures on one side of a log and evaluate them on the other.

    Parameters
    ----------
    log : Log
        Logits [N, gamma] with outcomes. Requests are split, or contiguous runs of rows where
        there are no request ids.
    num_bins : int
        Equal-width bins of every ECE.
    eval_fraction : float
        Share of requests that is kept back, between 0 and 1.
    seed : int
        Of the split, the noise and the resampling.
    advance : callable, optional
        Called with the share of the work that is done, 0..1.

    Returns
    -------
    Evaluation

    Raises
    ------
    InputError
        Counts or logits that cannot be; a side without any row.

    Notes
    -----
    Section 3.2.1. "Better" and "worse" are said only where the 95 % interval of a paired bootstrap
    over requests excludes 0.
    """
    advance = advance or (lambda share: None)
    checks.as_logits(log.logits)  # here, where a row has the number that its owner knows
    as_outcomes(log.accepted, log.verified, len(log), log.gamma)
    split = {
        "method": "contiguous-runs" if log.request_id is None else "request-hash",
        "seed": seed,
        "eval_fraction": eval_fraction,
    }
    held_back = evaluation_rows(log, split)
    keys = request_keys(log, split["method"])
    num_fit_requests = len(np.unique(keys[~held_back]))
    num_eval_requests = len(np.unique(keys[held_back]))
    if not (num_fit_requests and num_eval_requests):
        raise InputError(
            f"{log.source or 'the log'}: {counted(num_fit_requests, 'request')} to fit on, "
            f"{num_eval_requests} to evaluate on; each side needs some. Log more requests, or "
            f"choose another eval_fraction or seed"
        )
    fit_side = (log.logits[~held_back], log.accepted[~held_back], log.verified[~held_back])
    fitted = fit_sts(*fit_side, num_bins)
    advance(0.3)

    side = _Side.of(log, held_back, keys, fitted.temperatures)
    columns, resampled, (counts_before, counts_after) = _measure(side, num_bins, seed)
    advance(0.6)
    positions = [_position(k, columns, resampled, fitted, side) for k in range(log.gamma)]
    overall = _group("overall", columns, resampled, side)
    domains = []
    names = [] if log.domain is None else np.unique(log.domain[held_back])
    for name in names:
        part = side.take(log.domain[held_back] == name)
        domains.append(_group(str(name), *_measure(part, num_bins, seed)[:2], part))
        advance(0.6 + 0.4 * len(domains) / len(names))
    evaluation = Evaluation(
        calibration=msgspec.structs.replace(
            fitted,
            ece_before=counts_before.ece,
            ece_after=counts_after.ece,
            ece_change=np.array([[p.change_low, p.change_high] for p in positions]),
            dataset=log.source,
            split=split,
            log_digest=log.digest,
        ),
        positions=tuple(positions),
        overall=overall,
        domains=tuple(domains),
        num_fit_requests=num_fit_requests,
        num_fit_rows=len(fit_side[1]),
        num_eval_requests=num_eval_requests,
        num_eval_rows=len(side.accepted),
        counts_before=counts_before,
        counts_after=counts_after,
    )
    return msgspec.structs.replace(evaluation, cautions=cautions_of(log, evaluation))


class _Side(msgspec.Struct, frozen=True, eq=False):
    """Rows with both predictions: survivals [n, gamma], counts and request numbers [n]."""

    before: np.ndarray
    after: np.ndarray
    accepted: np.ndarray
    verified: np.ndarray
    request: np.ndarray

    @classmethod
    def of(cls, log, rows, keys, temperatures):
        logits = log.logits[rows]
        return cls(
            before=metrics.survival_at(logits, np.ones(log.gamma)),
            after=metrics.survival_at(logits, temperatures),
            accepted=log.accepted[rows].astype(np.int64),
            verified=log.verified[rows].astype(np.int64),
            request=_numbered(keys[rows]),
        )

    def take(self, rows):
        return _Side(
            before=self.before[rows],
            after=self.after[rows],
            accepted=self.accepted[rows],
            verified=self.verified[rows],
            request=_numbered(self.request[rows]),
        )


def _numbered(keys):
    """Return 0..Q-1 in the order of the keys, every number in use."""
    return np.unique(keys, return_inverse=True)[1].astype(np.int64)


def _measure(side, num_bins, seed):
    """Return the figures by name ([gamma] each), the resampled changes [S, gamma], the counts."""
    outcomes = (side.accepted, side.verified)
    columns, both_counts = {}, []
    for when, survival in (("before", side.before), ("after", side.after)):
        counts = metrics.count_reliability(survival, *outcomes, num_bins)
        both_counts.append(counts)
        columns["observed"] = counts.mean_observed
        columns[f"predicted_{when}"] = counts.mean_predicted
        columns[f"ece_{when}"] = counts.ece
        columns[f"noise_{when}"] = metrics.noise_ece(survival, side.verified, counts, seed)
        columns[f"brier_{when}"] = counts.brier
        columns[f"auc_{when}"], columns[f"spread_{when}"] = _order_and_spread(survival, *outcomes)
    resampled = metrics.ece_changes(
        side.before, side.after, *outcomes, side.request, num_bins, seed
    )
    return columns, resampled, both_counts


def _order_and_spread(survival, accepted, verified):
    gamma = survival.shape[1]
    auc, spread = np.full(gamma, np.nan), np.full(gamma, np.nan)
    for k in range(gamma):
        known = verified > k
        if known.any():
            auc[k] = metrics.area_under_curve(survival[known, k], accepted[known] > k)
            spread[k] = survival[known, k].std()
    return auc, spread


def _position(k, columns, resampled, fitted, side):
    figures = {name: float(column[k]) for name, column in columns.items()}
    num_records = int(np.count_nonzero(side.verified > k))
    return PositionFigures(
        position=k + 1,
        temperature=float(fitted.temperatures[k]),
        flag=fitted.flags[k],
        num_records=num_records,
        num_left_out=len(side.verified) - num_records,
        num_fit_records=int(fitted.num_records[k]),
        **figures,
        **_change(figures, resampled[:, k], side.request[side.verified > k]),
    )


def _group(name, columns, resampled, side):
    figures = {name: _mean(column) for name, column in columns.items()}
    seen = slice(max(int(side.verified.max()), 1))
    return GroupFigures(
        name=name,
        num_requests=int(side.request.max()) + 1,
        num_rows=len(side.accepted),
        **figures,
        **_change(figures, resampled[:, seen].mean(axis=1), side.request[side.verified > 0]),
    )


def _mean(column):
    """Mean of what is known."""
    known = column[~np.isnan(column)]
    return float(known.mean()) if known.size else float("nan")


def _change(figures, resampled, requests):
    """Interval and verdict; ``requests`` has the request of every row that has an outcome."""
    num_requests = len(np.unique(requests))
    if 0 < num_requests < FEWEST_REQUESTS:
        return {
            "change_low": float("nan"),
            "change_high": float("nan"),
            "verdict": "too few requests",
        }
    change = figures["ece_after"] - figures["ece_before"]
    low, high = metrics.change_interval(change, resampled)
    return {"change_low": low, "change_high": high, "verdict": metrics.verdict(low, high)}
