"""What one engine step costs: a measured curve of step time by batch tokens, and its lookup."""

import hashlib
import json
from copy import deepcopy

import numpy as np

from . import checks
from .checks import InputError
from .identity import as_json, differences
from .types import Finding, Status

__all__ = ["RequestCost", "SpsProfile"]

LOOKUPS = ("ceil", "linear", "floor", "exact")
BEYOND = ("extrapolate", "raise")
TABLE_LIMIT = 1 << 20


class RequestCost:
    """A part of the step time that depends on the number of requests only.

    Parameters
    ----------
    requests : array_like of int, shape (P,)
        Measured numbers of requests, strictly increasing. One probe: a constant.
    seconds, ms : array_like of float, shape (P,)
        Exactly one of them; finite. Constant outside the probes.
    lookup : {"linear", "ceil", "floor", "exact"}
        Cost between two probes, as in `SpsProfile`; "exact" refuses any other number of requests.
    """

    def __init__(self, requests, seconds=None, *, ms=None, lookup="linear"):
        if (seconds is None) == (ms is None):
            raise InputError("a request cost needs exactly one of seconds and ms")
        checks.check_choice(lookup, LOOKUPS, "lookup")
        self.lookup = lookup
        self.requests = checks.as_probes(requests, "requests")
        self.unit = "ms" if seconds is None else "seconds"
        values = ms if seconds is None else seconds
        self.values = checks.as_measured(values, self.unit, len(self.requests), positive=False)
        self._seconds = self.values if self.unit == "seconds" else self.values / 1000.0

    @property
    def least_seconds(self):
        """The smallest cost at any number of requests."""
        return float(self._seconds.min())

    @property
    def is_constant(self):
        """Whether every number of requests costs the same."""
        return len(self.requests) == 1 and self.lookup != "exact"

    def seconds(self, num_requests):
        """Cost at ``num_requests`` in seconds."""
        if self.lookup == "exact" and num_requests not in (0, *self.requests.tolist()):
            raise InputError(
                f"this profile was measured for {_listed(self.requests)} requests only; got "
                f"{num_requests}. Measure that number, or use the profile of another one"
            )
        return float(look_up(num_requests, self.requests, self._seconds, self.lookup))

    def content(self):
        """Return what identifies this part, as JSON can hold it."""
        return {
            "requests": self.requests.tolist(),
            "unit": self.unit,
            "values": self.values.tolist(),
            "lookup": self.lookup,
        }


class SpsProfile:
    """Steps per second (SPS) of an engine by the tokens of its batch.

    Parameters
    ----------
    batch_tokens : array_like of int, shape (P,)
        Measured batch sizes in tokens (anchors, drafts and other tokens), strictly increasing.
    steps_per_second, step_seconds, step_ms : array_like of float, shape (P,)
        Exactly one of them: the rate in 1/s, or the time of a step in s or ms. Positive, finite.
    lookup : {"ceil", "linear", "floor", "exact"}
        Cost between two probes: the next probe's (a CUDA graph pads the batch up to the next
        captured size), linear in **time**, or the previous probe's. Below the first probe: the
        first probe's time. "exact": only measured sizes are candidates of a search; a step that
        runs at another size is padded, so it costs what "ceil" says.
    beyond : {"extrapolate", "raise"}
        Past the last probe: go on with the last segment's slope in time (at least 0; constant for
        one probe), marked ``Status.EXTRAPOLATED`` in what is decided from it, or refuse.
    fixed, alpha, draft : RequestCost, optional
        The parts of T(R, B) = fixed + alpha(R) + theta(B) + draft(R) that no trimming touches;
        the curve over batch tokens is then theta(B) alone, and only the sum must be positive.
        Leaving them out makes tokens look dearer than they are.
    max_batch_tokens : int, optional
        The largest batch that the engine can build. Measured probes past it are kept, and tagged
        by this number, but nothing is priced from them.
    identity : dict, optional
        Where it was measured: ``model``, ``gpu``, ``tp``, ``gamma``, ``captures``,
        ``context_tokens`` (a number, or [low, high]), ...; see `check_identity`. Kept as JSON holds
        it: NumPy's numbers become Python's, arrays and tuples lists; None: not stated.
    details : dict, optional
        How it was measured or fitted; kept alike, never interpreted.
    notes : sequence of str
        What a reader assumed or doubted.

    Raises
    ------
    InputError
        Probes that do not increase, rates that are not positive and finite (index and value are
        named), no rate or two, an identity or details that JSON cannot hold.

    Notes
    -----
    SPS(B) of section 3.2.2. The numbers are kept in the unit they came in.

    Examples
    --------
    >>> import dspark_sched as ds
    >>> profile = ds.SpsProfile(batch_tokens=[8, 16], step_seconds=[0.010, 0.014])
    >>> profile.step_seconds(9, 4)
    0.014
    """

    def __init__(
        self,
        batch_tokens,
        steps_per_second=None,
        *,
        step_seconds=None,
        step_ms=None,
        lookup="ceil",
        beyond="extrapolate",
        fixed=None,
        alpha=None,
        draft=None,
        max_batch_tokens=None,
        identity=None,
        details=None,
        notes=(),
    ):
        checks.check_choice(lookup, LOOKUPS, "lookup")
        checks.check_choice(beyond, BEYOND, "beyond")
        given = {
            unit: values
            for unit, values in (
                ("steps_per_second", steps_per_second),
                ("step_seconds", step_seconds),
                ("step_ms", step_ms),
            )
            if values is not None
        }
        if len(given) != 1:
            raise InputError(
                f"a profile needs exactly one of steps_per_second, step_seconds and step_ms; got "
                f"{', '.join(given) or 'none'}"
            )
        (self._unit, values), *_ = given.items()
        self._batch_tokens = checks.as_probes(batch_tokens, "batch_tokens")
        self._parts = {"fixed": fixed, "alpha": alpha, "draft": draft}
        self._costs = tuple(item for item in self._parts.items() if item[1] is not None)
        for name, part in self._costs:
            if not isinstance(part, RequestCost):
                raise InputError(
                    f"{name} must be a RequestCost; got {checks.shown(part)}. A constant is "
                    f"RequestCost([1], seconds=[...])"
                )
        is_whole = fixed is None and alpha is None
        positive = is_whole or self._unit == "steps_per_second"
        self._values = checks.as_measured(values, self._unit, len(self._batch_tokens), positive)
        self._max_batch_tokens = max_batch_tokens
        reachable = self._count_reachable()
        self._probes = self._batch_tokens[:reachable]
        self._times = _to_seconds(self._values, self._unit)[:reachable]
        self._last_probe = int(self._probes[-1])
        self._is_rising = lookup != "exact" and bool((np.diff(self._times) >= 0.0).all())
        self._check_total()
        self._lookup = lookup
        self._beyond = beyond
        self._identity = as_json(identity, "identity")
        self._details = as_json(details, "details")
        self._notes = _as_notes(notes)
        self._table = np.empty(0)
        self._status = Status.OK
        if self.is_flat:
            self._status |= Status.FLAT
        if len(self._probes) == 1:
            self._status |= Status.ONE_PROBE
        self._status_bits = self._status.value

    def _count_reachable(self):
        if self._max_batch_tokens is None:
            return len(self._batch_tokens)
        self._max_batch_tokens = checks.as_count(self._max_batch_tokens, "max_batch_tokens", 1)
        reachable = int((self._batch_tokens <= self._max_batch_tokens).sum())
        if not reachable:
            raise InputError(
                f"no probe lies within max_batch_tokens = {self._max_batch_tokens}; the first is "
                f"at {self._batch_tokens[0]}. Measure batch sizes that the engine can build"
            )
        return reachable

    def _check_total(self):
        least = sum(part.least_seconds for _, part in self._costs)
        if not least + self._times.min() > 0.0:
            raise InputError(
                f"the parts of the step time must add up to more than 0 s; the smallest sum is "
                f"{least + self._times.min():.6g} s. Check their signs and units"
            )

    @property
    def batch_tokens(self):
        """Measured batch sizes in tokens, int64 [P], read-only."""
        return self._batch_tokens

    @property
    def steps_per_second(self):
        """Measured rate at each probe in 1/s, float64 [P]."""
        if self._unit == "steps_per_second":
            return self._values
        return 1.0 / _to_seconds(self._values, self._unit)

    @property
    def unit(self):
        """The unit the numbers came in: steps_per_second, step_seconds or step_ms."""
        return self._unit

    @property
    def values(self):
        """The numbers as they came, in ``unit``, float64 [P], read-only."""
        return self._values

    @property
    def lookup(self):
        """How a batch size between two probes is priced."""
        return self._lookup

    @property
    def beyond(self):
        """What happens past the last probe."""
        return self._beyond

    @property
    def max_batch_tokens(self):
        """The largest batch that the engine can build; None: not known."""
        return self._max_batch_tokens

    @property
    def out_of_domain(self):
        """Measured batch sizes past ``max_batch_tokens``, from which nothing is priced."""
        return self._batch_tokens[len(self._probes) :]

    @property
    def identity(self):
        """Where the profile was measured; a copy, as ``details`` is."""
        return deepcopy(self._identity)

    @property
    def details(self):
        """How the profile was measured or fitted."""
        return deepcopy(self._details)

    @property
    def notes(self):
        """What a reader assumed or doubted, tuple of str."""
        return self._notes

    @property
    def digest(self):
        """SHA-256 of everything that decides a lookup, and of the identity."""
        text = json.dumps(self.content(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def content(self):
        """Return what identifies this profile, as JSON can hold it: numbers in their own unit."""
        return {
            "encoding": "decomposed" if any(self._parts.values()) else "whole",
            "unit": self._unit,
            "lookup": self._lookup,
            "beyond": self._beyond,
            "max_batch_tokens": self._max_batch_tokens,
            "batch_tokens": self._batch_tokens.tolist(),
            "values": self._values.tolist(),
            **{name: part.content() for name, part in self._costs},
            "identity": self.identity,
        }

    def check_identity(self, expected):
        """Refuse a profile that was measured somewhere else.

        Parameters
        ----------
        expected : dict
            What is running now: any of the identity's keys. A number against a range
            ``[low, high]`` in the profile (``context_tokens``) must lie in it.

        Raises
        ------
        InputError
            Lists exactly the keys that differ, with both values; a key that the profile does not
            state differs, too. Keys that ``expected`` leaves out or gives as None are not compared.
        """
        differing = differences(self._identity, as_json(expected, "expected"))
        if differing:
            raise InputError(
                f"the profile was measured elsewhere (measured / now): {'; '.join(differing)}. "
                f"Measure again on this system, or load the profile that belongs to it"
            )

    @property
    def fixed(self):
        """Constant part of the step time, a RequestCost; None: part of the curve."""
        return self._parts["fixed"]

    @property
    def alpha(self):
        """Part of the step time by number of requests, a RequestCost; None: part of the curve."""
        return self._parts["alpha"]

    @property
    def draft(self):
        """Time of drafting by number of requests, a RequestCost; None: not known apart."""
        return self._parts["draft"]

    @property
    def is_flat(self):
        """Whether every probe has the same step time (then verifying all always wins)."""
        return bool((self._times == self._times[0]).all())

    @property
    def status(self):
        """``Status.FLAT`` and ``Status.ONE_PROBE`` where they apply; part of every plan."""
        return self._status

    @property
    def status_bits(self):
        """``status`` as an integer; composing flags costs as much as a small allocation."""
        return self._status_bits

    def __repr__(self):
        first, last = self._batch_tokens[0], self._batch_tokens[-1]
        return (
            f"SpsProfile({len(self._batch_tokens)} probes, {first}..{last} batch tokens, "
            f"unit={self._unit!r}, lookup={self._lookup!r}, beyond={self._beyond!r})"
        )

    def is_extrapolated(self, batch_tokens):
        """Whether ``batch_tokens`` (int or array) lies past the last measured probe."""
        return batch_tokens > self._last_probe

    def draft_seconds(self, num_requests):
        """Time of drafting for ``num_requests``; 0 where it is not known apart."""
        return 0.0 if self.draft is None else self.draft.seconds(num_requests)

    def step_seconds(self, batch_tokens, num_requests=None):
        """Time of one engine step: T(R, B), the one lookup.

        Parameters
        ----------
        batch_tokens : int or array_like of int
            Tokens of the pass, B = R + other tokens + drafts; at least 0.
        num_requests : int, optional
            R. Needed where a part of the time depends on it; a curve over batch tokens alone
            does not.

        Returns
        -------
        float or ndarray of float64
            Seconds.

        Raises
        ------
        InputError
            A negative batch, one past the last probe with ``beyond="raise"``, or no
            ``num_requests`` where it is needed.
        """
        tokens = checks.as_array(batch_tokens, "batch_tokens")
        if tokens.dtype.kind not in "iuf" or not (tokens >= 0).all():
            raise InputError(f"batch_tokens must be numbers, at least 0; got {batch_tokens!r}")
        if self._beyond == "raise" and self.is_extrapolated(tokens).any():
            raise self.beyond_error(tokens.max())
        times = self.overhead_seconds(num_requests) + self._interpolate(tokens)
        return float(times) if times.ndim == 0 else times

    def beyond_error(self, batch_tokens):
        """Build the error for a batch past the last probe."""
        return InputError(
            f"the profile ends at {self._probes[-1]} batch tokens and beyond='raise'; got "
            f"{batch_tokens}. Measure a larger batch, or allow beyond='extrapolate'"
        )

    def overhead_seconds(self, num_requests=None):
        """Sum of fixed, alpha(R) and draft(R), in seconds."""
        seconds = 0.0
        for name, part in self._costs:
            if num_requests is None and not part.is_constant:
                raise InputError(
                    f"the step time of this profile depends on the number of requests ({name}); "
                    f"pass num_requests="
                )
            seconds += part.seconds(num_requests or 0)
        return seconds

    def _interpolate(self, tokens):
        probes, times = self._probes, self._times
        seconds = look_up(tokens, probes, times, self._lookup)
        slope = 0.0
        if len(times) > 1:
            slope = max(0.0, (times[-1] - times[-2]) / (probes[-1] - probes[-2]))
        excess = np.maximum(tokens - probes[-1], 0)
        return seconds + slope * excess

    @property
    def last_probe(self):
        """The largest measured batch in tokens that the engine can build."""
        return self._last_probe

    @property
    def is_rising(self):
        """Whether the step time never falls as the batch grows."""
        return self._is_rising

    def curve(self, first_batch_tokens, num_drafts, num_requests, granted=0):
        """Step times in the two parts that the kernels add up.

        Parameters
        ----------
        first_batch_tokens, num_drafts, num_requests : int
        granted : int
            Drafts that the step has in any case: only from there on is there a choice.

        Returns
        -------
        overhead : float
            fixed + alpha(R) + draft(R), seconds.
        theta : ndarray of float64
            theta[n]: the rest, for n = 0..num_drafts drafts on top of ``first_batch_tokens``. With
            ``beyond="raise"`` it ends at the last probe, but is never empty. With
            ``lookup="exact"`` sizes that were not measured are no candidates: inf, except
            theta[granted], which can always run. Possibly a view into a table that grows as needed:
            do not write into it.
        """
        stop = first_batch_tokens + num_drafts + 1
        if self._beyond == "raise":
            stop = min(stop, self._last_probe + 1)
            if stop <= first_batch_tokens:
                raise self.beyond_error(first_batch_tokens)
        overhead = self.overhead_seconds(num_requests)
        if self._lookup == "exact" or stop > TABLE_LIMIT:
            tokens = np.arange(first_batch_tokens, stop)
            theta = self._interpolate(tokens)
            if self._lookup == "exact":
                is_offered = np.isin(tokens, self._probes)
                is_offered[min(granted, len(tokens) - 1)] = True
                theta[~is_offered] = np.inf
            return overhead, theta
        table = self._table
        if stop > len(table):
            table = self._table = self._interpolate(np.arange(1 << (stop - 1).bit_length()))
        return overhead, table[first_batch_tokens:stop]

    def step_times(self, first_batch_tokens, num_drafts, num_requests):
        """Step times for 0..num_drafts drafts on top of ``first_batch_tokens``; see ``curve``."""
        overhead, theta = self.curve(first_batch_tokens, num_drafts, num_requests)
        return overhead + theta

    def findings(self, num_requests, gamma):
        """What a user should know before relying on this profile at one load.

        Parameters
        ----------
        num_requests : int
            R, at least 1.
        gamma : int
            Drafts per request, at least 1.

        Returns
        -------
        tuple of Finding
            Kinds: "flat", "one-probe", "inert" (the profile moves, but not between any two
            batch sizes that the scheduler can choose between), "extrapolated".
        """
        num_requests = checks.as_count(num_requests, "num_requests", 1)
        gamma = checks.as_count(gamma, "gamma", 1)
        largest = num_requests * (1 + gamma)
        reachable = self.step_times(num_requests, num_requests * gamma, num_requests)
        reachable = reachable[np.isfinite(reachable)]
        span = f"{num_requests}..{largest} batch tokens (R={num_requests}, gamma={gamma})"
        found = []
        if len(self._probes) == 1:
            found.append(Finding("one-probe", "one probe only: measure at least two batch sizes"))
        if self.is_flat:
            found.append(
                Finding(
                    "flat",
                    "flat: every step takes the same time, so all drafts are verified; measure "
                    "larger batches, until the time rises",
                )
            )
        elif (reachable == reachable[0]).all():
            found.append(
                Finding(
                    "inert",
                    f"inert: step time is {reachable[0]:.6g} s everywhere in {span}, so all drafts "
                    f"are verified; measure probes inside that range",
                )
            )
        if largest > self._probes[-1]:
            found.append(
                Finding(
                    "extrapolated",
                    f"extrapolated: {span} goes past the last probe at {self._probes[-1]}; "
                    f"measure up to {largest}",
                )
            )
        return tuple(found)


def look_up(x, probes, values, lookup):
    """Value at ``x`` between and outside measured probes; the end values outside them."""
    if lookup == "linear":
        return np.interp(x, probes, values)
    side = "right" if lookup == "floor" else "left"
    index = np.searchsorted(probes, x, side=side) - (lookup == "floor")
    return values[np.clip(index, 0, len(values) - 1)]


def _listed(values):
    return ", ".join(map(str, values))


def _as_notes(notes):
    if not isinstance(notes, list | tuple) or not all(isinstance(note, str) for note in notes):
        raise InputError(f"notes must be a list of strings; got {checks.shown(notes)}")
    return tuple(notes)


def _to_seconds(values, unit):
    if unit == "steps_per_second":
        return 1.0 / values
    return values if unit == "step_seconds" else values / 1000.0
