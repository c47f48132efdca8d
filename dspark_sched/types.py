"""The records that pass between the layers: frozen, without I/O.

Shapes use the paper's letters: R requests, gamma draft positions, N log rows.
"""

import enum

import msgspec
import numpy as np

from . import checks

__all__ = [
    "Acceptance",
    "AcceptanceSummary",
    "Allocation",
    "Batch",
    "Calibration",
    "CapacityPlan",
    "Finding",
    "Log",
    "SimulationResult",
    "Status",
    "StepPlan",
    "VerifiedBlock",
]


class Status(enum.Flag):
    """What the caller of a decision should know about it."""

    OK = 0
    #: Every probe has the same step time: verifying everything is the only possible answer.
    FLAT = enum.auto()
    #: The profile has a single measured probe (then it is FLAT, too).
    ONE_PROBE = enum.auto()
    #: The step is larger than the last measured probe; its time is a continuation.
    EXTRAPOLATED = enum.auto()
    #: The capacity was larger than what could be admitted; see ``surplus``.
    SURPLUS_CAPACITY = enum.auto()
    #: Some requests had no older confidences; see ``num_unknown_rows``.
    UNKNOWN_ROWS = enum.auto()
    #: Some rows held a value that is NaN or outside [0, 1]; see ``num_invalid_rows``.
    INVALID_ROWS = enum.auto()
    #: Unknown rows met an empty history: their survival was taken as 1.
    COLD_START = enum.auto()
    #: There was nothing to schedule.
    NO_REQUESTS = enum.auto()
    #: A global search over the step's own confidences: not lossless under rejection sampling.
    ANTICIPATING = enum.auto()
    #: The planned batch is larger than every captured size: it runs unpadded, without a graph.
    NO_BUCKET = enum.auto()
    #: The predicted gain did not exceed ``min_gain``: the baseline runs; see ``StepPlan.gain``.
    KEPT_BASELINE = enum.auto()
    #: This step was told not to draft, so nothing is verified.
    NOT_DRAFTED = enum.auto()
    #: One request (in uniform mode: all) is verified in full, to learn about given-up positions.
    EXPLORING = enum.auto()
    #: gamma is not the block that the checkpoint declares it was trained for.
    BLOCK_MISMATCH = enum.auto()


class Batch(msgspec.Struct, frozen=True, eq=False):
    """One decode step as a policy sees it.

    Attributes
    ----------
    request_ids : ndarray of int64, shape (R,)
        Unique, never given to another request later.
    confidence : ndarray of float32 or float64, shape (R, gamma)
        Calibrated conditional acceptance probabilities, in [0, 1].
    max_lengths, min_lengths : ndarray of int32, shape (R,), or None
        Bounds of the verified drafts per request.
    other_tokens : int
        Tokens of the pass that are neither anchors nor drafts (prefill chunks).
    weights : ndarray of float64, shape (R,), or None
        Worth of a token of each request, relative to the others.
    emits : ndarray of bool, shape (R,), or None
        Whether a request emits a token in this step.
    """

    request_ids: np.ndarray
    confidence: np.ndarray
    max_lengths: np.ndarray | None = None
    min_lengths: np.ndarray | None = None
    other_tokens: int = 0
    weights: np.ndarray | None = None
    emits: np.ndarray | None = None


class CapacityPlan(msgspec.Struct, frozen=True, eq=False):
    """How many drafts the coming step should verify, and what that is expected to give.

    Attributes
    ----------
    capacity : int
        Drafts admitted in the whole step; anchors not counted, minimum lengths counted.
    batch_tokens : int
        R + other_tokens + capacity.
    expected_tokens : float
        R + the sum of the admitted survivals.
    step_seconds : float
        Time of the step at ``batch_tokens``.
    throughput : float
        expected_tokens / step_seconds, in tokens per second; 0 without requests.
    status : Status
    num_unknown_rows, num_invalid_rows : int
    """

    capacity: int
    batch_tokens: int
    expected_tokens: float
    step_seconds: float
    throughput: float
    status: Status = Status.OK
    num_unknown_rows: int = 0
    num_invalid_rows: int = 0


class StepPlan(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """What is decided about a step before its confidences exist. It limits the **target's** pass.

    Attributes
    ----------
    capacity : int
        Drafts to verify in the whole step; anchors not counted, minimum lengths counted.
    batch_tokens : int
        R + other_tokens + capacity.
    padded_batch_tokens : int
        Tokens that the pass runs at: the bucket, or ``batch_tokens`` where there is none.
    bucket : int
        Captured size that the pass is padded to; -1: none (none given, or ``NO_BUCKET``).
    expected_tokens : float
        Tokens that the lagged survivals promise at this capacity, bonus tokens included. With
        weights: weighted, in units of the mean weight.
    step_seconds : float
        Time of the step at ``padded_batch_tokens``, drafting and scheduling path included.
    draft_seconds, overhead_seconds : float
        Of these the time of drafting, and of the scheduling path.
    throughput : float
        expected_tokens / step_seconds; 0 without requests.
    uniform_length : int or None
        The one length of all requests in uniform mode.
    gain : float or None
        Predicted throughput of the best choice over the baseline's, minus 1; None without
        ``min_gain``. Where it is too small, the baseline is what is planned (``KEPT_BASELINE``).
    is_drafted : bool
        Whether this step drafts.
    draft_next : bool
        Whether the **next** step should draft.
    mode : {"ragged", "uniform"}
    source : {"head", "estimator", "constant"}
        Where survivals come from.
    status : Status
    num_unknown_rows : int
    notes : tuple of str
        Settings that were resolved or overruled, in words.
    """

    capacity: int
    batch_tokens: int
    padded_batch_tokens: int
    bucket: int = -1
    expected_tokens: float
    step_seconds: float
    draft_seconds: float = 0.0
    overhead_seconds: float = 0.0
    throughput: float
    uniform_length: int | None = None
    gain: float | None = None
    is_drafted: bool = True
    draft_next: bool = True
    mode: str = "ragged"
    source: str = "head"
    status: Status = Status.OK
    num_unknown_rows: int = 0
    notes: tuple[str, ...] = ()


class Allocation(msgspec.Struct, frozen=True, eq=False):
    """The verification lengths of one step.

    Attributes
    ----------
    lengths : ndarray of int32, shape (R,)
        Drafts of each request to verify, 0..gamma; the anchor is not counted.
    capacity : int
        Drafts that could have been admitted; ``lengths.sum() + surplus``.
    surplus : int
        Capacity that found no eligible draft.
    batch_tokens : int
        R + other_tokens + lengths.sum().
    expected_tokens : float
        R + the sum of the admitted survivals (one bonus token per request).
    step_seconds : float
        Time of the step at ``batch_tokens``, or at ``plan.bucket`` where there is one.
    throughput : float
        expected_tokens / step_seconds, in tokens per second; 0 without requests.
    status : Status
    num_unknown_rows, num_invalid_rows : int
    plan : StepPlan or None
        What was planned beforehand; None where the whole decision was made in one go, which only
        happens with the confidences of a head.
    source : {"head", "estimator", "constant"}
        Where the confidences came from.
    """

    lengths: np.ndarray
    capacity: int
    surplus: int
    batch_tokens: int
    expected_tokens: float
    step_seconds: float
    throughput: float
    status: Status = Status.OK
    num_unknown_rows: int = 0
    num_invalid_rows: int = 0
    plan: StepPlan | None = None

    @property
    def source(self) -> str:
        """Where the confidences came from."""
        return "head" if self.plan is None else self.plan.source


class Finding(msgspec.Struct, frozen=True):
    """Something about a profile that its user should know.

    Attributes
    ----------
    kind : str
        "flat", "one-probe", "inert" or "extrapolated".
    message : str
        What it is, where, and what to do.
    """

    kind: str
    message: str


class VerifiedBlock(msgspec.Struct, frozen=True, eq=False):
    """What the token rule made of one drafted block.

    Attributes
    ----------
    tokens : ndarray of int64, shape (accepted + 1,)
        Accepted drafts, then the residual or the bonus token.
    accepted : int
        Draft tokens accepted, 0..length.
    flagged : bool
        A draft row was NaN: its draft was rejected and the target's own row was used.
    """

    tokens: np.ndarray
    accepted: int
    flagged: bool


class Calibration(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """Temperatures of Sequential Temperature Scaling (section 3.2.1), with how they were found.

    Attributes
    ----------
    temperatures : ndarray of float64, shape (gamma,)
    ece_before, ece_after : ndarray of float64, shape (gamma,)
        ECE of the cumulative product at each position, on the records it was fitted on (or, in a
        file written by the ``calibrate`` command, on the held-back side). NaN: not known.
    ece_change : ndarray of float64, shape (gamma, 2), or None
        95 % interval of ``ece_after - ece_before`` at each position; None: not known.
    num_bins : int
    num_samples : int
        Log rows the fit was given.
    num_records : ndarray of int64, shape (gamma,)
        Rows used at each position (``verified >= k``).
    num_infinite : ndarray of int64, shape (gamma,)
        Logits of -inf or +inf (a probability of 0 or 1), which no temperature moves.
    flags : tuple of str, length gamma
        "" , "unfitted" (fewer than 100 rows) or "grid-end" (first or last grid temperature).
    dataset : str
    split : dict
        How rows were divided into fit and evaluation side; empty where they were not.
    log_digest : str
        ``Log.digest`` of the log, "" where unknown.
    """

    temperatures: np.ndarray
    ece_before: np.ndarray
    ece_after: np.ndarray
    ece_change: np.ndarray | None = None
    num_bins: int = 15
    num_samples: int = 0
    num_records: np.ndarray | None = None
    num_infinite: np.ndarray | None = None
    flags: tuple[str, ...] = ()
    dataset: str = ""
    split: dict = {}
    log_digest: str = ""

    @property
    def gamma(self) -> int:
        """Number of draft positions."""
        return len(self.temperatures)

    def apply(self, logits):
        """Conditional confidences ``sigmoid(logit[k] / T[k])`` (section 3.2.1).

        Parameters
        ----------
        logits : array_like, shape (N, gamma)
            Raw logits; -inf and +inf give 0 and 1.

        Returns
        -------
        ndarray, shape (N, gamma)
            Confidences in [0, 1] in the input's float dtype; conditional, not survivals.

        Raises
        ------
        InputError
            A NaN logit, or another number of positions than ``gamma``.
        """
        logits = checks.as_logits(logits)
        checks.check_gamma(logits.shape[1], self.gamma, "the logits", "the temperatures")
        scaled = logits.astype(np.float64) / self.temperatures
        # exp(-|x|) never overflows; the two branches are the same function.
        small = np.exp(-np.abs(scaled))
        confidence = np.where(scaled >= 0, 1.0, small) / (1.0 + small)
        return confidence.astype(logits.dtype)


class Log(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """Drafted blocks, one row per request and decode step.

    Attributes
    ----------
    logits : ndarray of float32 or float64, shape (N, gamma)
        Raw confidence logits, before any calibration; -inf and +inf allowed, NaN not.
    accepted : ndarray of int64, shape (N,)
        Draft tokens accepted, 0..verified.
    verified : ndarray of int64, shape (N,)
        Positions whose fate is known, 0..gamma. An accepted stop token at position p makes it p.
    finished : ndarray of bool, shape (N,)
        The block ended with an accepted stop token (no bonus token was emitted).
    request_id : ndarray of int64, shape (N,), or None
    step : ndarray of int64, shape (N,), or None
        Decode step within the request.
    domain : ndarray of str, shape (N,), or None
    num_infinite : ndarray of int64, shape (gamma,)
        Logits that are -inf or +inf, per position.
    source : str
        Where the log came from; for messages.
    digest : str
        Digest of the contents, independent of the file format.
    notes : tuple of str
        What the reader assumed (for example: no ``verified`` column).
    """

    logits: np.ndarray
    accepted: np.ndarray
    verified: np.ndarray
    finished: np.ndarray
    request_id: np.ndarray | None = None
    step: np.ndarray | None = None
    domain: np.ndarray | None = None
    num_infinite: np.ndarray | None = None
    source: str = ""
    digest: str = ""
    notes: tuple[str, ...] = ()

    @property
    def gamma(self) -> int:
        """Number of draft positions."""
        return self.logits.shape[1]

    def __len__(self) -> int:
        return len(self.accepted)


class Acceptance(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """How much of what was verified was accepted.

    Attributes
    ----------
    acceptance_length : float
        Tokens emitted per step, bonus token included; a step that ends in an accepted stop token
        emits no bonus token.
    accepted_drafts : float
        Draft tokens accepted per step, bonus token not included.
    accepted_per_verified : float
        Accepted over verified drafts; NaN where nothing was verified.
    survival : ndarray of float64, shape (gamma,)
        P(the first k drafts are accepted), from the rows with ``verified >= k``; NaN without any.
    conditional : ndarray of float64, shape (gamma,)
        P(draft k is accepted, given 1..k-1 were), from rows with ``verified >= k``.
    num_records : ndarray of int64, shape (gamma,)
        Rows with ``verified >= k``.
    """

    acceptance_length: float
    accepted_drafts: float
    accepted_per_verified: float
    survival: np.ndarray
    conditional: np.ndarray
    num_records: np.ndarray


class AcceptanceSummary(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """Acceptance figures that an engine reports as totals, without a record per block.

    Attributes
    ----------
    acceptance_length : float
        Tokens emitted per step, bonus token included (the paper's figure).
    accepted_drafts : float
        Draft tokens accepted per step, bonus token not included.
    accepted_per_verified : float
        Accepted over verified drafts; NaN where the source does not say.
    survival : ndarray of float64, shape (gamma,), or None
        P(the first k drafts are accepted), unconditional; None without per-position data.
    conditional : ndarray of float64, shape (gamma,), or None
        P(draft k is accepted, given 1..k-1 were); NaN behind a survival of 0.
    num_steps : int or None
        Drafted blocks: one per request and decode step.
    num_draft_tokens, num_accepted_tokens : int or None
        Draft tokens verified and accepted, bonus tokens not included.
    name : str
        Which part of a source this is: a subset, an engine, a rank; "" for the whole.
    parts : tuple of AcceptanceSummary
        What the figures were pooled from, where the source has more than one part.
    source : str
        The file, for messages.
    format : str
        Name of the format that was read.
    notes : tuple of str
        What the reader assumed, or what the figures cannot say.
    """

    acceptance_length: float
    accepted_drafts: float
    accepted_per_verified: float
    survival: np.ndarray | None = None
    conditional: np.ndarray | None = None
    num_steps: int | None = None
    num_draft_tokens: int | None = None
    num_accepted_tokens: int | None = None
    name: str = ""
    parts: tuple["AcceptanceSummary", ...] = ()
    source: str = ""
    format: str = ""
    notes: tuple[str, ...] = ()

    @property
    def gamma(self) -> int | None:
        """Number of draft positions; None without per-position data."""
        return None if self.survival is None else len(self.survival)


class SimulationResult(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """A replay: one row per policy and concurrency, with what it was made from.

    Attributes
    ----------
    rows : pandas.DataFrame
        The figures per policy and concurrency; `simulate` says what each column is.
    repeats : pandas.DataFrame
        The same per repeat, for paired comparison.
    positions : pandas.DataFrame
        Per policy, concurrency and draft position (from 1): ``verified_share`` (blocks in which
        it was verified), ``survival_drafted`` (P(the first k drafts are acceptable), whatever was
        verified) and ``survival_verified`` (P(the first k were verified and accepted)).
    predicted : pandas.DataFrame
        Per policy and concurrency up to ten bins of equally many steps by what the policy
        expected: mean ``predicted_tokens`` and ``realised_tokens`` per step, ``num_steps``.
    best : pandas.DataFrame
        Per concurrency the fastest ``policy`` that is not known to change the output, the
        ``runner_up``, and its relative ``gain`` over it with ``gain_low``, ``gain_high`` (95 %,
        paired) and ``clear`` (the interval excludes 0).
    verdicts : tuple of str
        In words: which policy wins where, by how much, and where scheduling loses.
    notes : tuple of str
        Assumptions and warnings that apply to the figures.
    settings : dict
        Seed, repeats, steps, policies, concurrency, labels, versions, log, temperatures,
        profiles.
    """

    rows: object
    repeats: object
    positions: object
    predicted: object
    best: object
    verdicts: tuple[str, ...]
    notes: tuple[str, ...]
    settings: dict
