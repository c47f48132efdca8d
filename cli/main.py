"""The command group: commands load on use, every error is one line and exit code 2."""

import contextlib
import os
import signal
import sys
from importlib import import_module

import click

from dspark_sched import __version__

#: click before 8.2 prints the help itself.
_NO_ARGUMENTS = getattr(click.exceptions, "NoArgsIsHelpError", ())

COMMANDS = {
    "bench": "Time every decision on this machine, as ratios to plain NumPy.",
    "calibrate": "Fit temperatures on a held-out log and say how far to trust them.",
    "convert-log": "Convert any engine's log to parquet; print what totals say about acceptance.",
    "demo": "Run calibrate and simulate on the bundled data.",
    "explain": "Why drafts were trimmed or not, from recorded decisions.",
    "profile": "Step-time profiles: fit, convert, lint, plot, show.",
    "simulate": "Replay a log against a step-time profile: which policy wins at which load?",
    "warmup": "Compile every kernel ahead of time.",
}


class OneLineErrors(click.Group):
    """A group whose commands are imported on use and whose errors are one line on stderr."""

    def list_commands(self, ctx):
        """Return the names, without importing anything."""
        return list(COMMANDS)

    def get_command(self, ctx, name):
        """Import the module of one command."""
        if name not in COMMANDS:
            return None
        module = name.replace("-", "_")
        return getattr(import_module(f".{module}", __package__), module)

    def format_commands(self, ctx, formatter):
        """List the commands from the table above."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def parse_args(self, ctx, args):
        """Keep what was typed, so that a report can say how to get it again."""
        for argument in args:
            argument.encode()  # a name that is not UTF-8 fits into no JSON and no page
        ctx.meta["typed"] = list(args)
        return super().parse_args(ctx, args)

    def main(self, *args, **kwargs):
        """Run, and turn every foreseeable error into one line and exit code 2."""
        kwargs["standalone_mode"] = False
        try:
            code = super().main(*args, **kwargs)
        except _NO_ARGUMENTS as error:
            error.show()
            code = error.exit_code
        except click.exceptions.Exit as stop:
            code = stop.exit_code
        except click.Abort:
            code = _fail("interrupted", 130)
        except click.ClickException as error:
            code = _fail(error.format_message())
        except UnicodeEncodeError as error:
            code = _fail(f"{error.object!r} is not UTF-8 text; rename that file")
        except OSError as error:
            code = _fail(f"{error.filename or 'input/output'}: {error.strerror or error}")
        except ValueError as error:
            from dspark_sched.checks import InputError

            if not isinstance(error, InputError):
                raise
            code = _fail(str(error))
        sys.exit(code if isinstance(code, int) else 0)


def _fail(message, code=2):
    click.echo("dspark-sched: " + " ".join(message.split()), err=True)
    return code


@click.group(cls=OneLineErrors, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="%(version)s")
def cli():
    """Confidence-scheduled speculative decoding: how many drafts are worth verifying now?

    Bring a log of drafted blocks (confidences, how many were accepted) and a curve of engine
    steps per second by batch tokens. Start with `dspark-sched demo`.
    """


def main():
    """Run the command line."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupted)
    cli()


def _interrupted(*_):
    """End at once: an exception would be lost where C code calls Python, as compilers do."""
    written = sys.modules.get("dspark_sched.engines.outputs")
    if written:
        written.abandon()
    with contextlib.suppress(Exception):
        sys.stdout.flush()
    # A progress bar hides the cursor and leaves its line.
    clean = b"\r\x1b[K\x1b[?25h" if os.isatty(2) else b""
    os.write(2, clean + b"dspark-sched: interrupted\n")
    os._exit(130)
