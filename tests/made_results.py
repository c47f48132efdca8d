"""Replay results in closed form, for pictures and pages: no log is needed to draw one."""

import numpy as np
import pandas as pd

from dspark_sched.types import SimulationResult

GAMMA = 7
#: Drafts verified per request by load: the schedules answer to the load.
_LENGTHS = {
    "none": lambda load: 0.0,
    "threshold:0.6": lambda load: 2.6,
    "early-stop": lambda load: 6.0 * 4 / (4 + load),
    "delayed": lambda load: 5.0 * 24 / (24 + load),
}
POLICIES = ("none", "fixed:1", "fixed:3", "fixed:7", "threshold:0.6", "early-stop", "delayed")
LOADS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


def made_result(policies=POLICIES, loads=LOADS, *, measured_tokens=1024, labels=None, **settings):
    """Result of policies on a head with a conditional acceptance of 0.8 (0.85 where chosen)."""
    policies, loads = list(policies), list(loads)
    cells = [(policy, load) for policy in policies for load in loads]
    labels = {policy: (labels or {}).get(policy, policy) for policy in policies}
    return SimulationResult(
        rows=pd.DataFrame([_row(*cell, measured_tokens) for cell in cells]),
        repeats=pd.DataFrame(
            [
                _row(*cell, measured_tokens) | {"repeat": repeat}
                for cell in cells
                for repeat in (0, 1)
            ]
        ),
        positions=pd.DataFrame([row for cell in cells for row in _positions(*cell)]),
        predicted=pd.DataFrame([row for cell in cells for row in _predicted(*cell)]),
        verdicts=(
            "delayed against the best unscheduled policy: from 8 on it wins, by up to 6.4%; up "
            "to 2 it loses, by up to 1.1%",
            "up to 4: fixed:7 wins, +2.1% (repeats +1.9% to +2.2%) over delayed",
            "from 8 on: delayed wins, +6.4% over fixed:1",
        ),
        notes=(
            "assumed: a policy that verifies less meets the request's logged blocks in the same "
            "order, from the first again when they are used up",
            "profile, from 128 on: steps are longer than the last probe; measure up to 2048",
        ),
        settings={
            "seed": 0,
            "repeats": 5,
            "steps": 1000,
            "policies": policies,
            "concurrency": loads,
            "labels": labels,
            "gamma": GAMMA,
            "log": {"source": "held_out.parquet", "digest": "3f1c"},
            "profile": {
                "batch_tokens": [1, 64, 1024],
                "step_ms": [20.0, 30.0, 150.0],
                "lookup": "ceil",
                "identity": {},
            },
            "plain_profile": None,
            "temperatures": [1.0] * GAMMA,
            "versions": {"dspark-sched": "0.1.0", "numpy": "2", "numba": "0", "python": "3"},
            **settings,
        },
        best=_best(policies, loads),
    )


def _length(policy, load):
    kind, _, number = policy.partition(":")
    return float(number) if kind == "fixed" else _LENGTHS[policy](load)


def _rate(policy):
    return 0.85 if policy in ("early-stop", "delayed", "threshold:0.6") else 0.8


def _row(policy, load, measured_tokens):
    length = _length(policy, load)
    accepted = sum(_rate(policy) ** k * min(1.0, length - k + 1) for k in _admitted(length))
    batch = load * (1 + length)
    seconds = 0.02 + 0.00012 * batch
    user = (1 + accepted) / seconds
    return {
        "policy": policy,
        "concurrency": load,
        "tokens_per_second": load * user,
        "tokens_per_second_low": load * user * 0.97,
        "tokens_per_second_high": load * user * 1.02,
        "user_tokens_per_second": user * 1.01,
        "user_tokens_per_second_p5": user * 0.7,
        "tpot_ms_p50": 1000 / user,
        "tpot_ms_p95": 1400 / user,
        "tpot_ms_p99": 1700 / user,
        "inter_step_ms_p50": 1000 * seconds,
        "inter_step_ms_p95": 1000 * seconds,
        "acceptance_length": 1 + accepted,
        "accepted_drafts": accepted,
        "verified_per_request": length,
        "accepted_per_verified": accepted / length if length else np.nan,
        "conditional_acceptance": _rate(policy) if length else np.nan,
        "wasted_verification": 1 - accepted / length if length else np.nan,
        "predicted_tokens_per_second": load * user * 1.05,
        "extrapolated_share": float(batch > measured_tokens),
        "lossless": policy != "global",
        "batch_tokens": batch,
        "step_seconds": seconds,
    }


def _admitted(length):
    return range(1, int(np.ceil(length)) + 1)


def _positions(policy, load):
    length = _length(policy, load)
    for k in range(1, GAMMA + 1):
        share = float(np.clip(length - k + 1, 0.0, 1.0))
        yield {
            "policy": policy,
            "concurrency": load,
            "position": k,
            "verified_share": share,
            "survival_drafted": 0.8**k,
            "survival_verified": share * _rate(policy) ** k,
        }


def _predicted(policy, load):
    row = _row(policy, load, 1 << 30)
    mean = load * row["acceptance_length"]
    for i, factor in enumerate((0.7, 0.9, 1.0, 1.1, 1.3)):
        yield {
            "policy": policy,
            "concurrency": load,
            "predicted_tokens": mean * factor * 1.05,
            "realised_tokens": mean * (0.6 + 0.4 * factor),
            "num_steps": (60, 200, 380, 200, 60)[i],
        }


def _best(policies, loads):
    rows = []
    for load in loads:
        rates = {policy: _row(policy, load, 0)["tokens_per_second"] for policy in policies}
        first, *others = sorted(rates, key=lambda policy: -rates[policy])
        second = others[0] if others else None
        gain = rates[first] / rates[second] - 1.0 if others else np.nan
        rows.append(
            {
                "concurrency": load,
                "policy": first,
                "runner_up": second,
                "gain": gain,
                "gain_low": gain - 0.02,
                "gain_high": gain + 0.02,
                "clear": gain > 0.02,
            }
        )
    return pd.DataFrame(rows)
