"""Text and JSON files: read strictly, written whole or not at all."""

import json
from pathlib import Path

from .. import checks
from ..checks import InputError
from .outputs import write_files

__all__ = ["parse_object", "read_text", "write_text"]


def read_text(path, what):
    """Return the text of a UTF-8 file; ``what`` names in messages what was wanted."""
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; pass {what}") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); pass {what}") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: not UTF-8 text; pass {what}") from None


def parse_object(text, where, what):
    """Parse one JSON object; ``what`` ("a profile") names in messages what it should be.

    Raises
    ------
    InputError
        Not JSON, truncated, no object, a key that is there twice.
    """
    try:
        content = json.loads(text, object_pairs_hook=checks.unique_keys(where))
    except json.JSONDecodeError as error:
        raise InputError(
            f"{where}: not JSON (line {error.lineno}: {error.msg}; truncated?); write it again"
        ) from None
    except InputError:
        raise
    except (ValueError, RecursionError) as error:  # a number or a nesting beyond Python's limits
        raise InputError(f"{where}: not {what} ({error})") from None
    if not isinstance(content, dict):
        raise InputError(f"{where}: {what} must hold a JSON object; got {type(content).__name__}")
    return content


def write_text(path, text):
    """Write one file, whole or not at all."""
    write_files({path: text})
