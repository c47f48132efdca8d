"""A policy of the user's own, named as ``module:function``, and what is checked about it."""

import importlib
import os
import sys

import numpy as np

from ..checks import InputError

__all__ = ["load_user_policy"]


def load_user_policy(text, profile, gamma):
    """Import ``module:function`` (from the current directory, too) and call it.

    Parameters
    ----------
    text : str
        The function takes (profile, gamma) and returns an object with ``name``, ``init()`` and
        ``step(state, batch)``, as in `dspark_sched.allocation.base.Policy`.
    profile : SpsProfile
    gamma : int

    Returns
    -------
    Policy
        Wrapped: whatever goes wrong in it becomes one sentence.

    Raises
    ------
    InputError
        No such module or function, an exception in either, or no policy returned.
    """
    module_name, _, function_name = text.partition(":")
    module = _imported(module_name, text)
    function = getattr(module, function_name, None)
    if not callable(function):
        raise InputError(f"policy {text}: the module {module_name} has no function {function_name}")
    try:
        policy = function(profile, gamma)
    except (Exception, SystemExit) as error:
        raise InputError(f"policy {text}: {function_name}() failed: {_words(error)}") from error
    for needed in ("name", "init", "step"):
        if not hasattr(policy, needed):
            raise InputError(
                f"policy {text}: what {function_name}() returned ({type(policy).__name__}) has no "
                f"{needed}; a policy has name, init() and step(state, batch)"
            )
    return _Watched(policy, text, gamma)


def _imported(name, text):
    here = os.getcwd()
    sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and error.name in (name, name.split(".")[0]):
            raise InputError(
                f"policy {text}: there is no module {name}, neither installed nor in {here}"
            ) from None
        raise InputError(f"policy {text}: importing {name} failed: {_words(error)}") from error
    finally:
        if here in sys.path:
            sys.path.remove(here)


def _words(error):
    return " ".join(f"{type(error).__name__}: {error}".split())


class _Watched:
    """Passes everything on; turns failures and impossible plans into one sentence."""

    def __init__(self, policy, name, gamma):
        self._policy, self.name, self._gamma = policy, name, gamma

    def init(self):
        return self._call("init")

    def step(self, state, batch):
        answer = self._call("step", state, batch)
        try:
            state, plan = answer
            lengths, expected = plan.lengths, float(plan.expected_tokens)
        except (TypeError, ValueError, AttributeError):
            raise InputError(
                f"policy {self.name}: step() must return (state, Allocation); got "
                f"{type(answer).__name__}"
            ) from None
        self._check(lengths, expected, len(batch.request_ids))
        return state, plan

    def _call(self, method, *arguments):
        try:
            return getattr(self._policy, method)(*arguments)
        except (Exception, SystemExit) as error:
            raise InputError(f"policy {self.name}: {method}() failed: {_words(error)}") from error

    def _check(self, lengths, expected, num_requests):
        is_array = isinstance(lengths, np.ndarray) and lengths.dtype.kind in "iu"
        if not is_array or lengths.shape != (num_requests,):
            raise InputError(
                f"policy {self.name}: lengths must be an integer array of shape "
                f"({num_requests},), one per request; got {lengths!r}"
            )
        if lengths.min() < 0 or lengths.max() > self._gamma:
            raise InputError(
                f"policy {self.name}: lengths must lie in 0..gamma = {self._gamma}; got "
                f"{lengths.min()} to {lengths.max()}"
            )
        if not np.isfinite(expected):
            raise InputError(f"policy {self.name}: expected_tokens must be finite; got {expected}")
