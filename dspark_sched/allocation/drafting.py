"""Whether the next step should draft at all: hysteresis, dwell, and probes to come back."""

import msgspec

from .. import checks
from ..checks import InputError
from .base import check_profile

__all__ = ["Drafting", "DraftingState", "Hysteresis"]


class Hysteresis(msgspec.Struct, frozen=True, kw_only=True):
    """A two-way switch on a noisy value.

    Attributes
    ----------
    pivot : float
    up, down : float
        It switches on above ``pivot + up`` and off below ``pivot - down``; both at least 0.
    dwell : int
        Steps that it stays after a switch, at least. A band alone does not calm a value that swings
        across it.
    """

    pivot: float = 1.0
    up: float = 0.0
    down: float = 0.0
    dwell: int = 0

    def __post_init__(self):
        checks.as_count(self.dwell, "dwell")
        checks.as_amount(self.up, "up")
        checks.as_amount(self.down, "down")

    def next(self, is_on, held, value):
        """(whether it is on now, steps since the last switch); ``held`` counted up to here."""
        wants = value > self.pivot + self.up if not is_on else not value < self.pivot - self.down
        if wants != is_on and held >= self.dwell:
            return wants, 1
        return is_on, held + 1


class DraftingState(msgspec.Struct, frozen=True):
    """``is_on``: the switch; ``held``: steps since it moved; ``idle``: steps without drafts."""

    is_on: bool
    held: int
    idle: int
    drafts: bool


class Drafting:
    """When to stop drafting, and when to come back.

    The signal is the predicted throughput of a drafted step over that of a plain one, from lagged
    survivals only. Steps that say nothing about it do not count: where no request could verify a
    draft, where one is verified to learn about it, or where no drafted step could be priced.

    What drafting costs is part of the drafted step's time whether or not it is already spent (it is
    the same for every capacity, but it shifts the best one): the only way to avoid it is not to
    draft the next step.

    Parameters
    ----------
    plain_profile : SpsProfile
        Step time without drafting, measured in the same engine: "off" has a cost of its own. It
        has no draft part, and prices every batch (``beyond="extrapolate"``).
    up, down : float
        Drafting resumes above 1 + ``up`` and stops below 1 - ``down``, at least 0.
    dwell : int
        Steps between two switches, at least.
    probe_every : int
        While off, one step in so many drafts all the same, so that survivals stay known; 0: none.
        Then only estimates that fall back to their prior, or newcomers, can bring drafting back.
    """

    def __init__(self, plain_profile, *, up=0.02, down=0.02, dwell=16, probe_every=64):
        self.plain_profile = check_profile(plain_profile, "plain_profile")
        if plain_profile.beyond == "raise":
            raise InputError(
                "plain_profile has beyond='raise', but a step without drafting must always be "
                "possible; use beyond='extrapolate', which marks steps past its end (EXTRAPOLATED)"
            )
        for name in ("fixed", "alpha"):
            part = getattr(plain_profile, name)
            if part is not None and part.lookup == "exact":
                raise InputError(
                    f"plain_profile is measured for single numbers of requests only ({name}), but "
                    f"a step without drafting must always be possible; use a RequestCost with "
                    f"lookup='linear' or 'ceil'"
                )
        if plain_profile.draft is not None:
            raise InputError(
                "plain_profile has a draft part, but a step without drafting does not pay it; "
                "measure the plain engine, or leave draft= out"
            )
        up, down = checks.as_amount(up, "up"), checks.as_amount(down, "down")
        self.switch = Hysteresis(up=up, down=down, dwell=dwell)
        self.probe_every = checks.as_count(probe_every, "probe_every")

    def init(self):
        """State before the first step, which drafts; the switch may move at once."""
        return DraftingState(is_on=True, held=self.switch.dwell, idle=0, drafts=True)

    def next(self, state, ratio):
        """State of the next step; ``ratio``: drafted over plain throughput, None: not known."""
        is_on, held = state.is_on, state.held + 1
        if ratio is not None:
            is_on, held = self.switch.next(state.is_on, state.held, ratio)
        idle = 0 if state.drafts else state.idle + 1
        probes = self.probe_every > 0 and idle + 1 >= self.probe_every
        return DraftingState(is_on=is_on, held=held, idle=idle, drafts=is_on or probes)
