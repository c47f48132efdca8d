"""Draw docs/speed_growth.png from measurements.

Run: ``dspark-sched bench --json > speed.json``, then
``python examples/speed/plot_growth.py speed.json docs/speed_growth.png``.
"""

import json
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

DECISIONS = (
    "allocate, capacity given",
    "allocate, early stop",
    "plan_capacity, steps",
    "DelayedScheduler.step",
)
OURS, REFERENCE = "#0072B2", "#999999"


def draw(measurements, path):
    """One panel per decision: microseconds over R * gamma, random input, both axes logarithmic."""
    figure, axes = plt.subplots(1, 4, figsize=(12, 3.4), sharey=True, layout="constrained")
    for ax, decision in zip(axes, DECISIONS, strict=True):
        chosen = [m for m in measurements if (m["decision"], m["kind"]) == (decision, "random")]
        chosen.sort(key=lambda m: m["num_requests"] * m["gamma"])
        candidates = [m["num_requests"] * m["gamma"] for m in chosen]
        other = "its bare kernels" if decision.endswith("step") else "NumPy"
        reference = [m["reference_us"] for m in chosen]
        ax.loglog(candidates, reference, "s", color=REFERENCE, markersize=4, label=other)
        ours = [m["ours_us"] for m in chosen]
        ax.loglog(candidates, ours, "o", color=OURS, markersize=4, label="dspark-sched")
        ax.set_title(decision, fontsize=10)
        ax.set_xlabel("candidates, R · gamma")
        ax.grid(color="0.9")
        ax.legend(frameon=False, fontsize=8)
    axes[0].set_ylabel("median time (µs)")
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: plot_growth.py MEASUREMENTS.json PICTURE.png")
    draw(json.loads(Path(sys.argv[1]).read_text())["measurements"], sys.argv[2])
