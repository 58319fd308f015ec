"""Tables of settings among an environment's `args`, which the configuration does not know: names and types checked."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeVar, get_type_hints

from pydantic import TypeAdapter, ValidationError

from slimrl.errors import UserError, nearest

T = TypeVar("T")


def read_settings(kind: type[T], given: Mapping[str, Any], who: str) -> T:
    """A dataclass of what was given. Raises UserError for a name that it does not have, or a value of another type,
    and leaves to the class what the values may be."""
    known = [one.name for one in fields(kind)]  # type: ignore[arg-type]  # a dataclass
    for name in given:
        if name not in known:
            raise UserError(f"the {who} has no setting `{name}`.{nearest(name, known)}")
    types = get_type_hints(kind)
    for name, value in given.items():
        try:
            TypeAdapter(types[name]).validate_python(value, strict=True)
        except ValidationError as error:
            raise UserError(f"{who}: `{name}` cannot be {value!r:.100}: {error.errors()[0]['msg']}.") from error
    return kind(**given)
