"""``dspark-sched warmup``."""

import time

import click


@click.command()
def warmup():
    """Compile every kernel ahead of time, so that no serving step waits for a compiler.

    The compiled kernels are kept on disk (beside the package, or in NUMBA_CACHE_DIR).
    """
    start = time.perf_counter()
    click.echo("loading the compiler ...")
    from dspark_sched.warmup import warm_up

    def report(name, done, total):
        elapsed = time.perf_counter() - start
        click.echo(f"[{done}/{total}] {name:<18} {elapsed:6.1f} s")

    warm_up(report)
