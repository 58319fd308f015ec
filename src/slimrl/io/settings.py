"""Checks an environment's `args` and the tables in them. The configuration does not know the names of these settings,
so it cannot check them."""

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

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
    """Raise UserError if a value in `args` does not fit the type of its parameter. Otherwise "False" would count as
    true.

    Only `Literal` and the types in `PLAIN` are checked, both also with pydantic's bounds, as in `PositiveInt`. `who` is
    the start of the message.
    """
    for name, parameter in signature.parameters.items():
        if name in args and (kind := _type_to_check(parameter.annotation)):
            _check(kind, args[name], who, name)


def read_settings(kind: type[T], given: Mapping[str, Any], who: str) -> T:
    """Build an instance of the dataclass `kind` with the given fields. Raise UserError for an unknown name, or a value
    that does not fit the field's type and bounds."""
    known = [one.name for one in fields(kind)]  # type: ignore[arg-type]  # a dataclass
    for name in given:
        if name not in known:
            raise UserError(f"the {who} has no setting `{name}`.{nearest(name, known)}")
    types = get_type_hints(kind, include_extras=True)
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


def _type_to_check(annotation: Any) -> Any:
    if isinstance(annotation, str):
        return PLAIN.get(annotation.replace("typing.", ""))
    kind = get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation
    is_checked = get_origin(kind) is Literal or inspect.formatannotation(kind).replace("typing.", "") in PLAIN
    return annotation if is_checked else None


def _check(kind: Any, value: Any, who: str, name: str) -> None:
    try:
        TypeAdapter(kind).validate_python(value, strict=True)
    except ValidationError as error:
        if get_origin(kind) is Literal:
            hint = nearest(str(value), get_args(kind))
            raise UserError(f"{who}: there is no `{name}` {value!r:.100}.{hint}") from error
        # On the command line `2024` is a number; it is a text only in quotes that the shell keeps.
        takes_text = (kind is str or kind == str | None) and isinstance(value, (bool, int, float))
        hint = f""" A text is written in quotes: '"{value}"'.""" if takes_text else ""
        raise UserError(f"{who}: `{name}` cannot be {value!r:.100}: {error.errors()[0]['msg']}.{hint}") from error
