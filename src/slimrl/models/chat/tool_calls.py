"""Parses tool calls in the form `<tool_call>{"name": ..., "arguments": {...}}</tool_call>` in replies.

A malformed call stays text, and so does a call inside thoughts. The parser does not know which tools exist: the caller
must answer calls of unknown tools. Sorts the results of parallel calls, too: templates write no ids, so a model can
match the results with the calls only by their order.
"""

import json
import re
import uuid
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, TypeVar

from slimrl.io.rows import DECODER
from slimrl.io.text import is_too_deep
from slimrl.models.chat.thoughts import CALL, CLOSE, CLOSE_THOUGHTS, OPEN, OPEN_THOUGHTS, begins_in_thoughts

M = TypeVar("M", bound=Mapping[str, Any])
KEYS = ("arguments", "parameters")  # names for the arguments of a call
# Matches a call, a malformed call up to the next closing tag, or thoughts.
_PART = re.compile(
    rf"{CALL.pattern}|{OPEN}\s*\{{.*?(?:{CLOSE}|\Z)|{OPEN_THOUGHTS}.*?(?:{CLOSE_THOUGHTS}|\Z)", re.DOTALL
)


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call in OpenAI's form; `arguments` is JSON text."""

    id: str
    name: str
    arguments: str

    @property
    def pair(self) -> tuple[str, str]:
        """The name, and the arguments as JSON text in one spelling: the parts of two equal calls."""
        return self.name, json.dumps(self.values, ensure_ascii=False)

    @property
    def values(self) -> Any:
        """The arguments as an object; their text if they are not an object."""
        with suppress(ValueError, KeyError, RecursionError):
            value = DECODER.decode(self.arguments)
            return value if isinstance(value, dict) else self.arguments
        return self.arguments


def read_calls(reply: str) -> list[str | ToolCall]:
    """Return the texts and calls of a reply, in order, without the white space around calls. A reply without calls is
    one text, exactly as sampled."""
    parts: list[str | ToolCall] = []
    at = 0  # the end of the last call
    begin = reply.index(CLOSE_THOUGHTS) if begins_in_thoughts(reply) else 0
    while part := _PART.search(reply, begin):
        begin = part.end()
        if part["call"] is None:
            continue
        call = _parse(part["call"])
        if call is None:
            begin = reply.index(CLOSE, part.start()) + len(CLOSE)
        else:
            parts += [reply[at : part.start()].rstrip(), call]
            at = part.end()
    rest = reply[at:]
    return [part for part in [*parts, rest.rstrip() if parts else rest] if part]


def _parse(text: str) -> ToolCall | None:
    try:
        call = DECODER.decode(text)  # an object, by the pattern of calls
        if "name" not in call:
            return None
        return call_of(call if call.keys() & {*KEYS} else {**call, "arguments": {}}, ["arguments"])
    except (ValueError, KeyError, RecursionError):
        return None


def call_of(value: Any, keys: Collection[str] = KEYS) -> ToolCall:
    """Return the call that a value describes by its `name`, and by its arguments under one of `keys`. The call may be
    the `function` of the value. Raise ValueError for any other value, for arguments under two keys, and for arguments
    that JSON cannot hold."""
    if isinstance(value, dict) and isinstance(value.get("function"), dict):
        value = value["function"]
    given = {key: value[key] for key in KEYS if key in value} if isinstance(value, dict) else {}
    if len(given) != 1 or not given.keys() <= {*keys} or not isinstance(value.get("name"), str):
        raise ValueError("no call")
    (arguments,) = given.values()
    if not isinstance(arguments, (dict, str)) or is_too_deep(arguments):
        raise ValueError("no arguments, or nested too deeply")
    try:  # a Python literal may be a set, and JSON as Python reads it may be nan or half a surrogate pair
        written = (
            arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False, allow_nan=False)
        )
        f"{value['name']}{written}".encode()
    except TypeError as error:
        raise ValueError(str(error)) from error
    return ToolCall(f"call_{uuid.uuid4().hex}", value["name"], written)


def in_order_of_calls(messages: Sequence[M]) -> list[M]:
    """Return the messages, with the results after each reply in the order of that reply's calls.

    If a call or a result has no id, the order is unchanged. Raises ValueError for a result of an unknown call,
    for two results of one call, and for a call that has no result although a later call of the same reply has one.
    """
    ordered: list[M] = []
    while len(ordered) < len(messages):
        message = messages[len(ordered)]
        ordered.append(message)
        if calls := message.get("tool_calls"):
            results = list(takewhile(lambda one: one["role"] == "tool", messages[len(ordered) :]))
            ordered += _sort(calls, results)
    return ordered


def id_text(given: Any) -> str:
    """Return the id of a call as text; empty if `given` is None."""
    return "" if given is None else str(given)


def _sort(called: Sequence[Mapping[str, Any]], results: list[M]) -> list[M]:
    calls = [id_text(call.get("id")) for call in called]
    ids = [id_text(result.get("tool_call_id")) for result in results]
    if not all(calls) or not all(ids) or len(set(calls)) < len(calls):
        return results
    if unknown := [one for one in ids if one not in calls]:
        raise ValueError(
            f"a result is of the call `{unknown[0]}`, and the reply before it has only `{'`, `'.join(calls)}`"
        )
    if len(set(ids)) < len(ids):
        twice = next(one for one in ids if ids.count(one) > 1)
        raise ValueError(f"the call `{twice}` has two results")
    if missing := [one for one in calls[: max(map(calls.index, ids), default=0)] if one not in ids]:
        raise ValueError(f"the call `{missing[0]}` has no result, and a later call of the same reply has one")
    return sorted(results, key=lambda result: calls.index(id_text(result["tool_call_id"])))
