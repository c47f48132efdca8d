"""What every file of a log offers, whatever its format."""

import contextlib

__all__ = ["LogFile"]


class LogFile:
    """One file of drafted blocks.

    Parameters
    ----------
    file : Path

    Attributes
    ----------
    schema : pyarrow.Schema
        Its columns, under our names.
    gamma : int or None
        Draft positions, where that is known before the rows are read.
    notes : tuple of str
        What had to be assumed about it.
    """

    schema = None
    gamma = None
    notes = ()

    def __init__(self, file):
        self.file = file

    def tables(self, columns):
        """Yield `pyarrow.Table` pieces of bounded size with these columns."""
        raise NotImplementedError

    def guarded(self):
        """Context in which errors of the format's library become one sentence."""
        return contextlib.nullcontext()
