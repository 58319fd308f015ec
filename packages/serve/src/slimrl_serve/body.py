"""The base classes of all bodies, which are JSON objects, and the types of their fields."""

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, WithJsonSchema, model_validator
from pydantic_core import PydanticCustomError

from slimrl.errors import nearest

LONGEST_NAME = 64  # characters of an unknown name that an error repeats

Ignored = Any  # the type of a field that may have any value, since no reply depends on it

T = TypeVar("T")
# Validation stops at the first bad item, because millions of bad items would give millions of errors, in gigabytes.
Items = Annotated[list[T], Field(fail_fast=True)]
Some = Annotated[Items[T], Field(min_length=1)]


def _true(value: bool) -> bool:
    if not value:
        raise ValueError("must be true")
    return value


def _false(value: bool) -> bool:
    if value:
        raise ValueError("must be false")
    return value


# `Literal[True]` would also accept 1, because 1 == True.
OnlyTrue = Annotated[bool, AfterValidator(_true), WithJsonSchema({"type": "boolean", "const": True})]
OnlyFalse = Annotated[bool, AfterValidator(_false), WithJsonSchema({"type": "boolean", "const": False})]


class Body(BaseModel):
    """A JSON object; unknown fields are ignored."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False, protected_namespaces=(), frozen=True)


class Request(Body):
    """The body of a request, or its sampling parameters: unknown fields are refused, unless they are null."""

    model_config = ConfigDict(json_schema_extra={"additionalProperties": {"type": "null"}})

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown(cls, content: Any) -> Any:
        if not isinstance(content, Mapping):
            return content
        known = {field.alias or name for name, field in cls.model_fields.items()}
        unknown = next((key for key in content if key not in known and content[key] is not None), None)
        if unknown is not None:
            name = str(unknown)[:LONGEST_NAME]
            similar, _, _ = nearest(name, known).partition(" Known:")
            raise PydanticCustomError(
                "unknown_field",
                "{name} is not known here, so the reply would be as if it were not there.{similar} Leave it out.",
                {"name": name, "similar": similar},
            )
        return content
