"""JSON that may not say a thing twice, refused in one sentence."""

import json

from .. import checks
from ..checks import InputError

__all__ = ["parse", "parse_file"]


def parse(text, where):
    """Parse one JSON value.

    Parameters
    ----------
    text : str or bytes
    where : str
        File, and line where there are many, for messages.

    Raises
    ------
    InputError
        Not JSON, not UTF-8, or a key that is there twice in one object.
    """
    try:
        value = json.loads(text, object_pairs_hook=checks.unique_keys(where))
        if (b"\\ud" if isinstance(text, bytes) else "\\ud") in text:
            json.dumps(value, ensure_ascii=False).encode()  # half a character is no text
        return value
    except InputError:
        raise
    except json.JSONDecodeError as error:
        line = f"line {error.lineno}, " if error.lineno > 1 else ""
        raise InputError(
            f"{where}: not JSON ({line}column {error.colno}: {error.msg}; truncated?); write it "
            f"again"
        ) from None
    except UnicodeError:
        raise InputError(f"{where}: not UTF-8 text; write it again") from None
    except (ValueError, RecursionError) as error:  # numbers or nesting beyond Python's limits
        raise InputError(f"{where}: cannot be read as JSON ({error})") from None


def parse_file(file):
    """Parse a file that holds one JSON object."""
    content = parse(file.read_bytes().removeprefix(b"\xef\xbb\xbf"), str(file))
    if not isinstance(content, dict):
        raise InputError(f"{file}: must hold a JSON object; got {type(content).__name__}")
    return content
