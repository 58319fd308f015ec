"""Loads functions and classes from a user's modules, and converts errors of a user's code to UserError.

A location is `path/to/file.py:NAME` or `package.module:NAME`.
"""

import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from slimrl.errors import RolloutError, UserError, describe, nearest
from slimrl.io.loop_thread import call_outside_loop
from slimrl.io.settings import check_args

T = TypeVar("T")


def call_user_code(failure: str, call: Callable[[], T]) -> T:
    """Call a user's code and return the result. Convert all exceptions to UserError, prefixed with `failure`."""
    try:
        return call_outside_loop(call)
    except (UserError, KeyboardInterrupt):
        raise
    except RolloutError as error:
        raise UserError(f"{failure}: {error.detail}") from error
    except BaseException as error:
        raise UserError(f"{failure}: {describe(error)}") from error


def load_named(
    location: str, what: str, loaded: dict[str, Any], is_kind: Callable[[object], bool] = inspect.isfunction
) -> Any:
    """Return the object at `location` in a user's module. If the object does not exist, raise UserError, prefixed with
    `what`. The message suggests the most similar name among the objects for which `is_kind` returns True. `loaded` is a
    cache of modules, so that each module is run only once."""
    module_name, _, name = location.rpartition(":")
    if not module_name or not name:
        raise UserError(f"{what} `{location}` is named as `path/to/file.py:function` or `package.module:function`.")
    if module_name not in loaded:
        loaded[module_name] = load_module(module_name, what, location)
    module = loaded[module_name]
    if name not in vars(module):
        own = [key for key, value in vars(module).items() if is_kind(value) and value.__module__ == module.__name__]
        raise UserError(f"{what} `{location}`: {module_name} has no `{name}`.{nearest(name, own)}")
    return vars(module)[name]


def load_function(location: str, what: str, args: Mapping[str, Any], num_values: int) -> Callable[..., Any]:
    """Return the function at `location`. Raise UserError, prefixed with `what`, if the function does not exist, or does
    not accept `num_values` positional values and the keyword arguments `args`."""
    function = load_named(location, what, {})
    who = f"{what} `{location}`"
    if not callable(function):
        raise UserError(f"{who} is not a function, but the {type(function).__name__} {function!r:.80}.")
    check_call(function, args, who, num_values)
    found: Callable[..., Any] = function
    return found


def check_call(function: Callable[..., Any], args: Mapping[str, Any], who: str, num_values: int = 0) -> None:
    """Raise UserError, prefixed with `who`, unless a function accepts `num_values` positional values and the keyword
    arguments `args`. Each of `args` must have the type of its parameter."""
    signature = inspect.signature(function)
    try:
        signature.bind(*[None] * num_values, **args)
    except TypeError as error:
        known = [name for name in [*signature.parameters][num_values:] if name not in ("args", "kwargs")]
        unknown = next((name for name in args if name not in known), "")
        raise UserError(f"{who}: {error}.{nearest(unknown, known)}") from error
    check_args(signature, args, who)


def load_module(name: str, what: str, location: str) -> Any:
    """Run the module `path/to/file.py`, or import `package.module`. Raise UserError, prefixed with `what`, if the
    module does not exist or fails. `location` is the full location, for the message."""
    if not name.endswith(".py"):
        return call_user_code(f"{what} `{location}`: {name} failed to load", lambda: importlib.import_module(name))
    path = Path(name)
    if not os.path.isfile(path):  # unlike `Path.is_file`, it accepts an invalid file name
        raise UserError(f"{what} file {path} does not exist (looked in {path.absolute().parent}).")
    name = f"slimrl_user_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickle look up a class's module here
    execute = spec.loader.exec_module
    call_user_code(f"{what} file {path} failed to load", lambda: execute(module))
    return module
