"""``dspark-sched warmup``."""

import time

import click

from .common import progress


@click.command()
def warmup():
    """Compile every kernel ahead of time, so that no serving step waits for a compiler.

    The compiled kernels are kept on disk (beside the package, or in NUMBA_CACHE_DIR).
    """
    start = time.perf_counter()
    from dspark_sched.warmup import warm_up

    with progress("compiling", 1.0) as advance:
        warm_up(lambda name, done, total: advance(done / total))
    click.echo(f"all kernels are compiled and kept on disk ({time.perf_counter() - start:.1f} s)")
