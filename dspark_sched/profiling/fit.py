"""Cells of step times to a profile: a plain curve, or fixed + alpha(R) + theta(B)."""

import math

import numpy as np

from .. import checks
from ..checks import InputError
from ..profile import RequestCost, SpsProfile
from .cells import OUTLIER_MADS, OUTLIER_ROWS, cells_of, relative_noise

__all__ = ["MODELS", "NOISE", "fit_profile"]

MODELS = ("additive", "curve")
#: Relative differences of step times below this are taken for noise.
NOISE = 0.01
#: More would say nothing new about a 95 % interval, and take memory for every cell.
MOST_RESAMPLES = 10_000
#: So is the range of the medians that luck alone makes: 2 sqrt(2 log n) standard errors is what n
#: equal cells span, the rest is the margin.
NOISE_ERRORS = 2.0


def fit_profile(
    timings,
    model="additive",
    *,
    lookup="ceil",
    warmup=None,
    noise=NOISE,
    gamma=None,
    max_requests=None,
    identity=None,
    resamples=200,
    seed=0,
):
    """Fit a profile to raw step timings.

    Parameters
    ----------
    timings : Timings
    model : {"additive", "curve"}
        fixed + alpha(R) + theta(B), or one curve over B for every R.
    lookup : {"ceil", "linear", "floor"}
        Cost between two probes of the result.
    warmup : int, optional
        First rows of each cell left out; default: a tenth, rounded down.
    noise : float
        Relative differences below it are no differences.
    gamma, max_requests : int, optional
        What the engine will run: cells past R * (1 + gamma) or max_requests * (1 + gamma) tokens
        are tagged as out of the decode domain and left out.
    identity : dict, optional
        Where it was measured.
    resamples, seed : int
        Bootstrap over the rows of each cell, for 95 % intervals.

    Returns
    -------
    SpsProfile
        ``details["fit"]`` holds every cell (median, fitted, interval, rows left out), every repair
        and the rules, as plain numbers in the unit of the timings.

    Raises
    ------
    InputError
        A setting out of its range; another gamma in ``identity``; times that move less than noise
        while the batch grows; cells that do not identify the additive model (with the reason).

    Notes
    -----
    T(R,B) = fixed + alpha(R) + theta(B): weighted least squares over cell medians, weights = rows;
    the first alpha and the first theta are 0. A falling part is repaired by isotonic regression,
    and every repair is listed.
    """
    checks.check_choice(model, MODELS, "model")
    warmup = None if warmup is None else checks.as_count(warmup, "warmup")
    resamples = checks.as_count(resamples, "resamples")
    seed = checks.as_count(seed, "seed")
    if resamples > MOST_RESAMPLES:
        raise InputError(f"resamples must be at most {MOST_RESAMPLES}; got {resamples}")
    if not (math.isfinite(noise) and 0.0 <= noise < 1.0):
        raise InputError(f"noise must be a relative difference in 0..1, such as 0.01; got {noise}")
    identity = _identity(identity, gamma)
    cells, outside, largest = _in_domain(cells_of(timings, warmup), gamma, max_requests, timings)
    noise_level = max(noise, _span_of_luck(cells))
    _check_moves(cells, noise_level, timings.source)
    if model == "additive":
        _check_identified(cells, timings.source)
    weights = np.array([len(kept) for kept in cells.samples], dtype=np.float64)
    solve = (_Additive if model == "additive" else _Curve)(cells, weights)
    fitted = solve(cells.medians)
    low, high = _intervals(cells, solve, resamples, seed)
    described = {
        "model": model,
        "source": timings.source,
        "unit": timings.unit,
        "rules": {
            "warmup": "a tenth of each cell's rows" if warmup is None else f"{warmup} rows",
            "outliers": (
                f"farther than {OUTLIER_MADS:g} scaled median deviations from the median, in cells "
                f"of at least {OUTLIER_ROWS} rows"
            ),
            "noise": noise_level,
            "resamples": resamples,
            "seed": seed,
        },
        "cells": _table(cells, fitted.at_cells, low, high),
        "repairs": fitted.repairs,
        "max_relative_residual": float(np.abs(fitted.at_cells / cells.medians - 1.0).max()),
        "out_of_domain": _table(outside),
    }
    return SpsProfile(
        **solve.parts(fitted, timings.unit),
        lookup=lookup,
        max_batch_tokens=largest,
        identity=identity,
        details={"fit": described},
        notes=_notes(described, cells),
    )


def _identity(identity, gamma):
    identity = dict(identity or {})
    if gamma is not None and identity.setdefault("gamma", gamma) != gamma:
        raise InputError(
            f"identity says gamma = {identity['gamma']!r}, the argument gamma {gamma}; the timings "
            f"are of one of them. Pass the same"
        )
    return identity


def _in_domain(cells, gamma, max_requests, timings):
    """Split off the cells that a decode step cannot have; return its largest size, too."""
    if gamma is None:
        if max_requests is not None:
            raise InputError("max_requests needs gamma, to know the largest decode step")
        return cells, cells.where(np.zeros(len(cells), bool)), None
    gamma = checks.as_count(gamma, "gamma", 1)
    inside = cells.batch_tokens <= cells.requests * (1 + gamma)
    largest = None
    if max_requests is not None:
        max_requests = checks.as_count(max_requests, "max_requests", 1)
        largest = max_requests * (1 + gamma)
        inside &= cells.requests <= max_requests
    if not inside.any():
        raise InputError(
            f"{timings.source}: no timing lies in the decode domain (at most 1 + gamma = "
            f"{1 + gamma} tokens per request); check gamma and what batch_tokens counts"
        )
    return cells.where(inside), cells.where(~inside), largest


def _span_of_luck(cells):
    """Relative range that medians of equal cells stay within, at the cell with the fewest rows."""
    errors = relative_noise(cells)
    return float((NOISE_ERRORS + 2.0 * np.sqrt(2.0 * np.log(len(cells)))) * errors.max())


def _check_moves(cells, noise, source):
    """Refuse times that do not move with the tokens: the same thing was measured every time."""
    if len(np.unique(cells.batch_tokens)) < 2:
        raise InputError(f"{source}: one batch size only; measure at least two")
    groups = [cells.medians[cells.requests == r] for r in np.unique(cells.requests)]
    groups = [medians for medians in groups if len(medians) > 1] or [cells.medians]
    spread = max(float(medians.max() / medians.min() - 1.0) for medians in groups)
    if spread < noise:
        first, last = cells.batch_tokens.min(), cells.batch_tokens.max()
        raise InputError(
            f"{source}: over {first}..{last} batch tokens the step time moves by {spread:.2%}, "
            f"less than the noise of {noise:.2%}; a schedule from it would verify everything. "
            f"Perhaps the same batch ran every time: record executed_tokens, or measure larger "
            f"batches"
        )


def _check_identified(cells, source):
    requests = np.unique(cells.requests)
    reason = None
    if len(requests) < 2:
        reason = f"all timings are for {requests[0]} requests"
    elif len(_component(cells)) < len(requests):
        linked = ", ".join(map(str, sorted(_component(cells))))
        reason = (
            f"no batch size links the requests {linked} to the others (each R has its own B, as "
            f"in a sweep of full blocks), so alpha and theta cannot be told apart"
        )
    if reason:
        raise InputError(
            f"{source}: the additive model is not identified: {reason}. Measure several verify "
            f"lengths at several R that share batch sizes, or fit a plain curve (model='curve', "
            f"--model curve)"
        )


def _component(cells):
    """Return the numbers of requests that share batch sizes, step by step, with the smallest."""
    linked = {int(cells.requests.min())}
    while True:
        sizes = cells.batch_tokens[np.isin(cells.requests, list(linked))]
        grown = set(cells.requests[np.isin(cells.batch_tokens, sizes)].tolist())
        if grown == linked:
            return linked
        linked = grown


class _Fitted:
    """Parts of one fit: fixed, alpha at each R, theta at each B, the fit at each cell, repairs."""

    def __init__(self, fixed, alpha, theta, at_cells, repairs):
        self.fixed, self.alpha, self.theta = fixed, alpha, theta
        self.at_cells, self.repairs = at_cells, repairs


class _Additive:
    """Weighted least squares with a level per R and per B, then isotonic repair."""

    def __init__(self, cells, weights):
        self.requests, self.r = np.unique(cells.requests, return_inverse=True)
        self.tokens, self.b = np.unique(cells.batch_tokens, return_inverse=True)
        self.weights = weights
        columns = np.zeros((len(cells), 1 + len(self.requests) + len(self.tokens)))
        rows = np.arange(len(cells))
        columns[:, 0] = 1.0
        columns[rows, 1 + self.r] = 1.0
        columns[rows, 1 + len(self.requests) + self.b] = 1.0
        # The first alpha and the first theta are 0.
        self.free = np.delete(np.arange(columns.shape[1]), [1, 1 + len(self.requests)])
        root = np.sqrt(weights)[:, None]
        self.solver = np.linalg.pinv(columns[:, self.free] * root) * root.T

    def __call__(self, medians):
        levels = np.zeros(1 + len(self.requests) + len(self.tokens))
        levels[self.free] = self.solver @ medians
        alpha, theta = np.split(levels[1:], [len(self.requests)])
        repairs = []
        alpha = _monotone(alpha, self.r, self.weights, "alpha", self.requests, repairs)
        theta = _monotone(theta, self.b, self.weights, "theta", self.tokens, repairs)
        alpha, theta = alpha - alpha[0], theta - theta[0]
        parts = alpha[self.r] + theta[self.b]
        fixed = float(np.average(medians - parts, weights=self.weights))
        return _Fitted(fixed, alpha, theta, fixed + parts, repairs)

    def parts(self, fitted, unit):
        unit_of_part = unit.removeprefix("step_")
        return {
            "batch_tokens": self.tokens,
            unit: fitted.theta,
            "fixed": RequestCost([1], **{unit_of_part: [fitted.fixed]}),
            "alpha": RequestCost(self.requests, **{unit_of_part: fitted.alpha}),
        }


class _Curve:
    """The weighted mean of the cells at each B, then isotonic repair."""

    def __init__(self, cells, weights):
        self.tokens, self.b = np.unique(cells.batch_tokens, return_inverse=True)
        self.weights = weights

    def __call__(self, medians):
        total = np.bincount(self.b, self.weights * medians)
        alone = np.bincount(self.b) == 1
        theta = total / np.bincount(self.b, self.weights)
        theta[self.b[alone[self.b]]] = medians[alone[self.b]]  # a single cell: its median, as it is
        repairs = []
        theta = _monotone(theta, self.b, self.weights, "theta", self.tokens, repairs)
        return _Fitted(0.0, None, theta, theta[self.b], repairs)

    def parts(self, fitted, unit):
        return {"batch_tokens": self.tokens, unit: fitted.theta}


def _monotone(levels, which, weights, name, probes, repairs):
    """Isotonic regression; a level that moved is listed with what it was."""
    if (np.diff(levels) >= 0.0).all():
        return levels
    from scipy.optimize import isotonic_regression

    repaired = isotonic_regression(levels, weights=np.bincount(which, weights)).x
    repairs += [
        {"part": name, "at": int(probe), "from": float(before), "to": float(after)}
        for probe, before, after in zip(probes, levels, repaired, strict=True)
        if before != after
    ]
    return repaired


def _intervals(cells, solve, resamples, seed):
    """95 % interval of the fit at each cell, its rows resampled; NaN without resamples."""
    if not resamples:
        return np.full((2, len(cells)), np.nan)
    rng = np.random.default_rng(seed)
    medians = np.stack(
        [
            np.median(kept[rng.integers(0, len(kept), (resamples, len(kept)))], axis=1)
            for kept in cells.samples
        ],
        axis=1,
    )
    fits = np.stack([solve(row).at_cells for row in medians])
    return np.percentile(fits, [2.5, 97.5], axis=0)


def _table(cells, fitted=None, low=None, high=None):
    rows = []
    for i in range(len(cells)):
        row = {
            "requests": int(cells.requests[i]),
            "batch_tokens": int(cells.batch_tokens[i]),
            "median": float(cells.medians[i]),
            "num_rows": len(cells.samples[i]),
            "num_warmup": int(cells.num_warmup[i]),
            "num_outliers": int(cells.num_outliers[i]),
        }
        if fitted is not None:
            row["fitted"] = float(fitted[i])
            bounds = (low[i], high[i])
            row["low"], row["high"] = (None if np.isnan(x) else float(x) for x in bounds)
        rows.append(row)
    return rows


def _notes(described, cells):
    """What to doubt about the fit, in words."""
    notes = []
    outside = [row["batch_tokens"] for row in described["out_of_domain"]]
    if outside:
        notes.append(
            f"left out as no decode step: {len(outside)} cells at "
            f"{', '.join(map(str, sorted(set(outside))))} batch tokens"
        )
    for repair in described["repairs"]:
        notes.append(
            f"repaired: {repair['part']} at {repair['at']} falls with size; "
            f"{repair['from']:.6g} became {repair['to']:.6g}"
        )
    if described["max_relative_residual"] > max(0.02, described["rules"]["noise"]):
        worst = max(described["cells"], key=lambda row: abs(row["fitted"] / row["median"] - 1.0))
        notes.append(
            f"the {described['model']} model misses a cell by "
            f"{described['max_relative_residual']:.1%} (R={worst['requests']}, "
            f"B={worst['batch_tokens']}); between measured loads trust it no further"
        )
    single = sum(len(kept) == 1 for kept in cells.samples)
    if single:
        notes.append(f"{single} cells have one row: no noise is known there, the interval is empty")
    if described["model"] == "additive":
        levels = len(np.unique(cells.requests)) + len(np.unique(cells.batch_tokens)) - 1
        if len(cells) == levels:
            notes.append("as many levels as cells: that the parts add up was not tested")
    return notes
