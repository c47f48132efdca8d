"""What an engine's loop can ask of the scheduler, and the conflicts that are found at once."""

import msgspec

from .. import checks
from ..checks import InputError
from ..engines.setup import resolve_setup
from ..types import Status
from .buckets import StepCost
from .drafting import Drafting
from .estimator import AcceptanceEstimator, ConstantSurvival

__all__ = ["LoopOptions", "Resolved"]

MODES = ("ragged", "uniform", "auto")
BASELINES = ("all", "none")
_GAMMA_NOTE = "the checkpoint says"
#: What two profiles of one engine have in common.
_SYSTEM = ("model", "gpu", "tp", "dp")


class LoopOptions(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """Options of `DelayedScheduler`; all of them are decided from lagged information only.

    Attributes
    ----------
    captures : array_like of int, optional
        Batch sizes in tokens for which graphs were captured. A step then costs what its padded
        size costs; past the last one it runs unpadded (``Status.NO_BUCKET``).
    fill_padding : bool
        Raise the capacity to the end of the bucket: rows that are paid for anyway verify the next
        best drafts, never beyond ``max_lengths`` and never at survival 0. Without it they do so
        only where the lagged survivals promise something. A baseline that the guard of
        ``min_gain`` keeps runs as it is, unfilled: choosing drafts for it would take the path that
        the guard avoids.
    mode : {"ragged", "uniform", "auto"}
        "uniform": one length for all requests, from lagged survivals. "auto": uniform where
        ``uniform_windows_only``, else ragged; the plan says which.
    uniform_windows_only : bool
        Declares that the engine's kernels need equal windows; "ragged" is then refused.
    min_gain : float, optional
        Choose anything but the baseline only if its predicted throughput is **greater** than
        (1 + min_gain) times the baseline's. None: no such guard. 0 still keeps the baseline at a
        tie.
    baseline : {"all", "none"}
        What the gain is against: verifying everything, or nothing beyond ``min_lengths``.
    overhead_seconds : float
        Time that the scheduling path costs a step (ragged kernels, a synchronisation), whenever
        its own choice runs. A baseline that the guard keeps does not pay it.
    drafting : Drafting, optional
        Allows "do not draft the next step". None: every step drafts.
    source : "head", AcceptanceEstimator or ConstantSurvival
        Where survivals come from. With "head" every step passes its confidences; otherwise none.
    checkpoint : dict or path-like, optional
        The drafter's configuration. A confidence head that it declares must exist, and a gamma
        other than its block is marked in every plan (``Status.BLOCK_MISMATCH``).
    has_confidence : bool
        Whether the loaded weights really hold the head.
    """

    captures: object = None
    fill_padding: bool = False
    mode: str = "ragged"
    uniform_windows_only: bool = False
    min_gain: float | None = None
    baseline: str = "all"
    overhead_seconds: float = 0.0
    drafting: object = None
    source: object = "head"
    checkpoint: object = None
    has_confidence: bool = True

    @property
    def is_default(self):
        """Whether neither a guard, nor a cost of the path, nor drafting is asked for."""
        return self.min_gain is None and self.overhead_seconds == 0.0 and self.drafting is None

    def resolve(self, profile, gamma):
        """Check everything against each other, once; see ``Resolved``."""
        checks.check_choice(self.baseline, BASELINES, "baseline")
        checks.as_amount(self.overhead_seconds, "overhead_seconds")
        if self.min_gain is not None:
            checks.as_amount(self.min_gain, "min_gain")
        for name in ("fill_padding", "uniform_windows_only", "has_confidence"):
            checks.check_flag(getattr(self, name), name)
        if self.fill_padding and self.captures is None:
            raise InputError("fill_padding=True needs captures=: there is no padding without them")
        if self.drafting is not None and not isinstance(self.drafting, Drafting):
            raise InputError(f"drafting must be a Drafting(plain_profile); got {self.drafting!r}")
        mode, notes = self._mode()
        source = self._source(gamma)
        if source is not None:
            notes += (f"source {source.name!r}: lag does not apply, it is older than the drafts",)
        status, found = self._checkpoint(gamma, source)
        cost = StepCost(profile, self.captures)
        self._check_identity(profile, gamma)
        return Resolved(
            cost=cost,
            is_uniform=mode == "uniform",
            source=source,
            source_name="head" if source is None else source.name,
            status=status,
            notes=(*notes, *found, *self._without_effect(cost)),
        )

    def _check_identity(self, profile, gamma):
        """Refuse profiles that were measured with another gamma, or on different systems."""
        if profile.identity.get("gamma") is not None:
            profile.check_identity({"gamma": gamma})
        if self.drafting is None:
            return
        one, other = profile.identity, self.drafting.plain_profile.identity
        differing = [
            f"{key} {one[key]!r} / {other[key]!r}"
            for key in _SYSTEM
            if None not in (one.get(key), other.get(key)) and one[key] != other[key]
        ]
        if differing:
            raise InputError(
                f"the profiles describe two systems (profile / plain_profile): "
                f"{'; '.join(differing)}. Measure both in one engine"
            )

    def _without_effect(self, cost):
        """Settings that change nothing, in words."""
        if self.baseline == "none" and self.min_gain is None:
            yield "baseline='none' is not used: there is no min_gain"
        if self.drafting is not None and getattr(self.source, "explore_every", 0) == 1:
            yield (
                "drafting= hardly ever switches off: with explore_every=1 every drafted step "
                "explores whose bounds leave a choice"
            )
        if cost.unmeasured:
            yield (
                f"captured sizes {', '.join(map(str, cost.unmeasured))} were not measured, so "
                f"lookup='exact' offers none of them; measure them, or use lookup='ceil'"
            )

    def in_force(self, resolved):
        """The options with numbers of Python, and captures that no caller can change."""
        return msgspec.structs.replace(
            self,
            captures=resolved.cost.captures,
            min_gain=None if self.min_gain is None else float(self.min_gain),
            overhead_seconds=float(self.overhead_seconds),
        )

    def _mode(self):
        checks.check_choice(self.mode, MODES, "mode")
        if self.mode == "ragged" and self.uniform_windows_only:
            raise InputError(
                "mode='ragged' and uniform_windows_only=True exclude each other: the engine's "
                "kernels need equal windows. Pass mode='uniform', or mode='auto'"
            )
        if self.mode != "auto":
            return self.mode, ()
        if not self.uniform_windows_only:
            return "ragged", ("mode='auto': ragged",)
        return "uniform", ("mode='auto': uniform, since uniform_windows_only=True",)

    def _source(self, gamma):
        if isinstance(self.source, str) and self.source == "head":
            return None
        if not isinstance(self.source, AcceptanceEstimator | ConstantSurvival):
            raise InputError(
                f"source must be 'head', an AcceptanceEstimator(gamma) or a "
                f"ConstantSurvival(survival); got {self.source!r}"
            )
        checks.check_gamma(
            self.source.gamma, gamma, "the source's survivals", "the scheduler", "make them equal"
        )
        return self.source

    def _checkpoint(self, gamma, source):
        if source is None and not self.has_confidence:
            raise InputError(
                "source='head', but has_confidence=False: nobody supplies confidences. Load "
                "weights that hold the head, or choose source=AcceptanceEstimator(gamma) or "
                "ConstantSurvival(survival)"
            )
        if self.checkpoint is None:
            return Status.OK, ()
        setup = resolve_setup(
            self.checkpoint,
            gamma=gamma,
            has_confidence=self.has_confidence,
            mode="confidence" if source is None else "no-confidence",
        )
        differs = any(_GAMMA_NOTE in note for note in setup.notes)
        return Status.BLOCK_MISMATCH if differs else Status.OK, setup.notes


class Resolved(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """Options as they are in force; ``source`` is None for the head."""

    cost: StepCost
    is_uniform: bool
    source: object
    source_name: str
    status: Status
    notes: tuple

    @property
    def is_default(self):
        """Whether nothing but the survivals of the head decides."""
        is_head = self.source is None and not self.is_uniform and self.cost.captures is None
        return is_head and not self.status and not self.notes
