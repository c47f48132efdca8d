"""The measurements as text."""

from .bounds import bounded_sizes
from .cases import INPUTS
from .measure import CALLS, RATIO_SEARCH, VALIDATION

__all__ = ["bound_lines", "machine_line", "other_lines", "size_lines", "tail_lines"]

_BESIDE = (CALLS, VALIDATION, RATIO_SEARCH)


def machine_line(found):
    """One line on what it was measured on."""
    return (
        f"{found['cpu']}, {found['simd']}, {found['cpus']} CPUs, {found['system']}; Python "
        f"{found['python']}, NumPy {found['numpy']}, Numba {found['numba']}, dspark-sched "
        f"{found['dspark-sched']}; one thread, median microseconds"
    )


def bound_lines(verdicts):
    """Every bound with the worst kind of input."""
    lines = [
        f"{'public call':<25} {'R':>5} {'gamma':>5} {'ours':>8} {'compared':>9} {'ratio':>6} "
        f"{'bound':>6}  worst input"
    ]
    for verdict in verdicts:
        m = verdict.worst
        lines.append(
            f"{m.decision:<25} {m.num_requests:>5} {m.gamma:>5} {m.ours_us:>8.1f} "
            f"{m.reference_us:>9.1f} {m.ratio:>6.2f} {verdict.bound.ratio:>6.2f}  "
            f"{m.kind:<10} {'holds' if verdict.holds else 'EXCEEDED'}{_torch(m)}"
        )
    return lines


def _torch(m):
    return "" if m.torch_us is None else f"  ({m.ours_us / m.torch_us:.2f} x torch)"


def size_lines(measurements):
    """Microseconds and ratio by size and kind of input."""
    rows = {}
    for m in measurements:
        if m.decision not in _BESIDE:
            rows.setdefault((m.decision, m.gamma, m.num_requests), {})[m.kind] = m
    heading = " ".join(f"{kind:>15}" for kind in INPUTS)
    lines = [f"{'public call':<25} {'gamma':>5} {'R':>5} {heading}"]
    for (decision, gamma, num_requests), kinds in sorted(rows.items()):
        cells = " ".join(f"{m.ours_us:>8.1f} ({m.ratio:.2f})" for m in kinds.values())
        lines.append(f"{decision:<25} {gamma:>5} {num_requests:>5} {cells}")
    return lines


def other_lines(measurements):
    """What has no bound: the check of values, the ratio search, a step beside public calls."""
    lines = [
        f"{'measured beside':<25} {'R':>5} {'gamma':>5} {'first':>8} {'second':>9} {'ratio':>6}"
    ]
    for m in measurements:
        if m.decision in _BESIDE and (m.num_requests, m.gamma) in bounded_sizes():
            lines.append(
                f"{m.decision:<25} {m.num_requests:>5} {m.gamma:>5} {m.ours_us:>8.1f} "
                f"{m.reference_us:>9.1f} {m.ratio:>6.2f}  {m.kind}"
            )
    return lines


def tail_lines(tails):
    """Steps beside a busy thread: the lowest and the highest process of each kind."""
    rows = {}
    for tail in tails:
        figures = tail.p50_ms, tail.p99_ms, tail.late_percent
        rows.setdefault((tail.num_requests, tail.gil), []).append(figures)
    lines = [f"{'R':>5} {'GIL':<9} {'p50 ms':>15} {'p99 ms':>15} {'steps over 1 ms':>18}"]
    for (num_requests, gil), found in rows.items():
        cells = [f"{min(f):.2f} .. {max(f):.2f}" for f in zip(*found, strict=True)]
        lines.append(f"{num_requests:>5} {gil:<9} {cells[0]:>15} {cells[1]:>15} {cells[2]:>16} %")
    return lines
