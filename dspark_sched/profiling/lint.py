"""What to doubt about a profile before an engine relies on it."""

import msgspec
import numpy as np

from .. import checks
from ..checks import InputError

__all__ = ["LintFinding", "lint_profile", "non_finite"]


#: Every number of requests up to this one is looked at.
EVERY_LOAD = 512


class LintFinding(msgspec.Struct, frozen=True):
    """One doubt: its name, "error", "warning" or "note", what is so, and what to do."""

    kind: str
    severity: str
    message: str
    remedy: str = ""


def lint_profile(profile, gamma=None, max_requests=None, captures=None, identity=None):
    """List what is wrong or doubtful about a profile.

    Parameters
    ----------
    profile : SpsProfile
    gamma : int, optional
        Drafts per request; default: what the profile's identity says.
    max_requests : int, optional
        Largest R that will run.
    captures : list of int, optional
        Batch sizes that the engine captures; others are padded up to the next.
    identity : dict, optional
        What is running now; see ``SpsProfile.check_identity``.

    Returns
    -------
    tuple of LintFinding
        Errors first. Kinds: "flat", "inert", "floor-trap", "rising-rate", "too-few-probes",
        "out-of-domain", "extrapolated", "captures", "identity", "not-checked", "note".
    """
    running = dict(identity or {})
    for key, value in (("gamma", gamma), ("captures", captures)):
        if value is not None and key in profile.identity:
            running.setdefault(key, value)
    stated = profile.identity.get("gamma")
    gamma = gamma or (stated if isinstance(stated, int) else None)
    found = [*_identity(profile, running), *_shape(profile)]
    if gamma is None:
        found.append(
            LintFinding(
                "not-checked",
                "note",
                "inert ranges and the decode domain were not checked: gamma is not known",
                "give gamma and the largest number of requests (--gamma, --max-requests)",
            )
        )
    else:
        gamma = checks.as_count(gamma, "gamma", 1)
        found += _per_load(profile, gamma, max_requests)
        found += _domain(profile, gamma, max_requests)
    found += _captures(profile, captures)
    found += [LintFinding("note", "note", note) for note in profile.notes]
    return tuple(sorted(found, key=lambda f: ("error", "warning", "note").index(f.severity)))


def non_finite(error):
    """Return the finding for a file whose numbers cannot be."""
    message, _, remedy = str(error).rpartition(". ")
    return LintFinding("non-finite", "error", message, remedy)


def _identity(profile, running):
    try:
        profile.check_identity(running)
    except InputError as error:
        message, _, remedy = str(error).rpartition(". ")
        return [LintFinding("identity", "error", message, remedy)]
    return []


def _probes(profile):
    count = len(profile.batch_tokens) - len(profile.out_of_domain)
    tokens = profile.batch_tokens[:count]
    return tokens, profile.step_seconds(tokens, _first_load(profile))


def _first_load(profile):
    """Return a number of requests for which every part is known."""
    parts = [p for p in (profile.fixed, profile.alpha, profile.draft) if p is not None]
    return int(max((part.requests[0] for part in parts), default=1))


def _shape(profile):
    tokens, seconds = _probes(profile)
    found = []
    if len(tokens) < 3:
        found.append(
            LintFinding(
                "too-few-probes",
                "error" if len(tokens) == 1 else "warning",
                f"{len(tokens)} measured batch size{'s' if len(tokens) > 1 else ''}",
                "measure every captured size, at least three",
            )
        )
    if profile.is_flat:
        found.append(
            LintFinding(
                "flat",
                "error",
                f"every step takes {seconds[0]:.6g} s: every schedule verifies everything",
                "measure again, and check that the batches really ran (executed tokens)",
            )
        )
    for i in np.flatnonzero(np.diff(seconds) < 0.0):
        gain = seconds[i] / seconds[i + 1] - 1.0
        found.append(
            LintFinding(
                "rising-rate",
                "warning",
                f"{tokens[i + 1]} batch tokens take less time than {tokens[i]}: the rate rises by "
                f"{gain:.1%}",
                "measure both again with more rows; `profile fit` repairs what is noise",
            )
        )
    if len(profile.out_of_domain):
        found.append(
            LintFinding(
                "out-of-domain",
                "note",
                f"probes at {_listed(profile.out_of_domain)} batch tokens lie past "
                f"max_batch_tokens = {profile.max_batch_tokens}; nothing is priced from them",
            )
        )
    return found


def _loads(profile, max_requests):
    """Numbers of requests to look at: all, from some hundreds on ever fewer."""
    if profile.alpha is not None and profile.alpha.lookup == "exact":
        return profile.alpha.requests.tolist()
    if max_requests is None:
        largest = int(_probes(profile)[0][-1])
    else:
        largest = checks.as_count(max_requests, "max_requests", 1)
    every = range(1, min(largest, EVERY_LOAD) + 1)
    powers = (EVERY_LOAD << i for i in range(1, largest.bit_length()))
    more = [load for load in powers if load < largest]
    return [*every, *more, *([largest] if largest > EVERY_LOAD else [])]


def _choices(profile, load, gamma):
    """Batch sizes of a load between which the step time can change: range, probes, next to them."""
    probes = _probes(profile)[0]
    stop = max(load, min(load * (1 + gamma), int(probes[-1])))
    near = probes if profile.lookup == "exact" else np.r_[load, probes, probes + 1, stop]
    return np.unique(near[(near >= load) & (near <= stop)])


def _per_load(profile, gamma, max_requests):
    """Loads at which no choice of the scheduler changes the step time."""
    if profile.is_flat:
        return []
    inert, num_checked = [], 0
    for load in _loads(profile, max_requests):
        tokens = _choices(profile, load, gamma)
        if len(tokens) < 2 and profile.lookup != "exact":
            continue  # past the last probe: nothing was measured there
        num_checked += 1
        seconds = profile.step_seconds(tokens, load)
        if len(seconds) and (seconds == seconds[0]).all():
            inert.append(load)
    everywhere = len(inert) == num_checked
    if max_requests is None and not everywhere:
        # Loads that may never run are no doubt of this file where their range was not measured.
        last = int(_probes(profile)[0][-1])
        inert = [load for load in inert if load * (1 + gamma) <= last]
    found = []
    if profile.lookup == "floor" and 1 in inert:
        inert.remove(1)
        found.append(
            LintFinding(
                "floor-trap",
                "warning",
                f"lookup 'floor' answers the same on 1..{1 + gamma} batch tokens, so at one "
                f"request every draft seems free and all {gamma} are verified",
                f"measure batch sizes between 1 and {1 + gamma}, or read the file with "
                "--lookup ceil",
            )
        )
    if inert:
        found.append(
            LintFinding(
                "inert",
                "error" if everywhere else "warning",
                f"at {_listed(inert)} requests the step time is the same whatever is verified "
                f"(R..R*{1 + gamma} batch tokens)",
                "measure batch sizes inside these ranges",
            )
        )
    return found


def _domain(profile, gamma, max_requests):
    if max_requests is None:
        return []
    largest, (tokens, _) = max_requests * (1 + gamma), _probes(profile)
    found = []
    outside = tokens[tokens > largest]
    if len(outside):
        found.append(
            LintFinding(
                "out-of-domain",
                "warning",
                f"probes at {_listed(outside)} batch tokens: the largest decode step is "
                f"{max_requests} * (1 + {gamma}) = {largest}",
                f"tag them, so that nothing is priced from them: `profile convert IN OUT "
                f"--max-batch-tokens {largest}`",
            )
        )
    if tokens[-1] < largest:
        found.append(
            LintFinding(
                "extrapolated",
                "warning",
                f"steps of up to {largest} batch tokens will run, measured is up to {tokens[-1]}",
                f"measure up to {largest} batch tokens",
            )
        )
    return found


def _captures(profile, captures):
    if captures is None:
        return []
    tokens = profile.batch_tokens
    missing = [size for size in captures if size not in tokens]
    if not missing:
        return []
    return [
        LintFinding(
            "captures",
            "warning",
            f"captured sizes {_listed(missing)} were not measured: between probes lookup "
            f"{profile.lookup!r} guesses what a graph of that size costs",
            "measure every captured size",
        )
    ]


def _listed(values):
    values = list(map(str, values))
    return ", ".join(values if len(values) <= 10 else [*values[:8], "...", values[-1]])
