"""Checks the types of an environment's `args`. The configuration does not know the names of these arguments, so it
cannot check them."""

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any, TypeVar, get_type_hints

from pydantic import TypeAdapter, ValidationError

from slimrl.errors import UserError, nearest

T = TypeVar("T")

# The types that are checked, by the text of the annotation: `from __future__ import annotations` keeps only the text.
PLAIN: dict[str, Any] = {
    **{kind.__name__: kind for kind in (bool, int, float, str)},
    **{f"{kind.__name__} | None": kind | None for kind in (bool, int, float, str)},
    "list[str]": list[str],
    "dict[str, Any]": dict[str, Any],
}


def check_args(signature: inspect.Signature, args: Mapping[str, Any], who: str) -> None:
    """Raise UserError if a value in `args` lacks the type of its parameter. Otherwise "False" would count as true.

    Only the types in `PLAIN` are checked. `who` is the start of the message.
    """
    for name, parameter in signature.parameters.items():
        annotation = parameter.annotation
        text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
        if name in args and (kind := PLAIN.get(text.replace("typing.", ""))):
            _check(kind, args[name], who, name)


def read_settings(kind: type[T], given: Mapping[str, Any], who: str) -> T:
    """Build an instance of the dataclass `kind` with the given fields. Raise UserError for an unknown name or a value
    of the wrong type. The class checks the range of its values."""
    known = [one.name for one in fields(kind)]  # type: ignore[arg-type]  # a dataclass
    for name in given:
        if name not in known:
            raise UserError(f"the {who} has no setting `{name}`.{nearest(name, known)}")
    types = get_type_hints(kind)
    for name, value in given.items():
        _check(types[name], value, who, name)
    return kind(**given)


def refuse_idle(settings: Any, names: Iterable[str], who: str, why: str) -> None:
    """Raise UserError if one of the fields `names` of the dataclass `settings` differs from its default. The caller
    knows that these fields have no effect. `why` is the reason in the message."""
    defaults = {one.name: one.default for one in fields(settings)}
    for name in names:
        if getattr(settings, name) != defaults[name]:
            raise UserError(f"{who}: `{name}` has no effect {why}. Leave it out.")


def refuse_less(settings: Any, least: Mapping[str, float], who: str) -> None:
    """Raise UserError if a field of `settings` is a number below its bound in `least`. A field that is None passes."""
    for name, bound in least.items():
        value = getattr(settings, name)
        if value is not None and not value >= bound:  # also for nan
            raise UserError(f"{who}: `{name}` must be {bound:g} or more, not {value}.")


def _check(kind: Any, value: Any, who: str, name: str) -> None:
    try:
        TypeAdapter(kind).validate_python(value, strict=True)
    except ValidationError as error:
        # On the command line `2024` is a number; it is a text only in quotes that the shell keeps.
        takes_text = (kind is str or kind == str | None) and isinstance(value, (bool, int, float))
        hint = f""" A text is written in quotes: '"{value}"'.""" if takes_text else ""
        raise UserError(f"{who}: `{name}` cannot be {value!r:.100}: {error.errors()[0]['msg']}.{hint}") from error
