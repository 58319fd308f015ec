"""Makes chat requests of bodies in other forms."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from pydantic import BeforeValidator, ValidationError
from pydantic_core import PydanticCustomError

from slimrl_serve.bodies import ChatBody
from slimrl_serve.body import LONGEST_NAME
from slimrl_serve.errors import bad_request, explain

Plain = dict[str, Any]


def only_types(what: str, known: Collection[str], default: str = "") -> BeforeValidator:
    """A validator that refuses objects whose `type` is not known, by the name of the type. Objects without one have
    the type `default`."""

    def check(item: Any) -> Any:
        kind = item.get("type", default) if isinstance(item, Mapping) else default
        if isinstance(item, Mapping) and (not isinstance(kind, str) or kind not in known):
            raise PydanticCustomError(
                "type_not_supported",
                "{what} of the type {kind} are not supported here, only of {known}",
                {"what": what, "kind": str(kind)[:LONGEST_NAME], "known": ", ".join(known)},
            )
        return item

    return BeforeValidator(check)


def tag_of(default: str) -> Callable[[Any], str]:
    """A discriminator that tells objects by their `type`. Tags are in brackets, as `explain` wants them."""

    def tag(item: Any) -> str:
        kind = item.get("type", default) if isinstance(item, Mapping) else getattr(item, "type", default)
        return f"({kind or default})"

    return tag


def chat_body(content: Plain, names: Mapping[str, str]) -> ChatBody:
    """The chat request of these fields. `names` has the fields whose names differ in the body that was sent, so that
    an error tells the sent one."""
    try:
        return ChatBody.model_validate({name: value for name, value in content.items() if value is not None})
    except ValidationError as error:
        message, param = explain(error.errors())
        for ours, theirs in names.items():
            message = message.replace(ours, theirs)
        field, _, rest = param.partition(".")
        sent = names.get(field, field)
        raise bad_request(message, f"{sent}.{rest}" if rest and sent == field else sent) from None


def with_system(texts: Sequence[str], messages: Sequence[Plain]) -> list[Plain]:
    """The conversation with these texts and its own first system messages as one, which most templates want first."""
    start = 0
    while start < len(messages) and messages[start]["role"] in ("system", "developer"):
        start += 1
    joined = "\n\n".join(text for text in (*texts, *(message["content"] for message in messages[:start])) if text)
    return [*([{"role": "system", "content": joined}] if joined else []), *messages[start:]]


def call(id: str, name: str, arguments: str) -> Plain:
    """A tool call as a chat message has it."""
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def function(
    name: str, description: str | None, parameters: Mapping[str, Any] | None, strict: bool | None = None
) -> Plain:
    """A tool as a chat request has it."""
    described = {"name": name, "description": description, "parameters": parameters, "strict": strict}
    return {"type": "function", "function": {key: value for key, value in described.items() if value is not None}}
