"""Checks an environment's opening messages, the tools in these messages, and the expert's tool calls."""

import json
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise, takewhile
from typing import Any

from slimrl.models.chat.thoughts import CLOSE, OPEN
from slimrl.types import ROLES, Message, Rollout
from slimrl_tools.check.subjects import note, ok, problem, verdict
from slimrl_tools.check.trial import Played
from slimrl_tools.findings import Finding

NAME = re.compile(r"[A-Za-z_][\w.-]{0,63}")
# A tool result that is an error, in each format: in tags, as a native tool message, and printed by a program.
ERROR = re.compile(r"(?:<(?:result|output)>\n)?(Error: [^\n]*)")
SCHEMA_REMEDY = "Take `slimrl.tools.base.schema_of`, which makes a schema of a typed function."
TYPES = ("string", "number", "integer", "boolean", "object", "array", "null")


def opening_finding(openings: Sequence[Sequence[Message]]) -> Finding:
    """Return a finding on whether the opening messages are valid and leave the next message to the policy."""
    for messages in openings:
        if fault := opening_fault(messages):
            roles = ", ".join(message["role"] for message in messages)
            return problem("opening", f"{fault} (roles: {roles:.100})")
    for messages in openings:
        if same := next((one["role"] for one, two in pairwise(messages) if one["role"] == two["role"] != "tool"), ""):
            text = f"two messages of the role `{same}` follow each other, which some chat templates refuse"
            return note("opening", text, "Make them one, for Mistral's and Gemma's templates.")
    return verdict("opening", "")


def opening_fault(messages: Sequence[Message]) -> str:
    """Describe a fault of opening messages; return an empty text if there is none.

    >>> opening_fault([{"role": "user", "content": "q"}])
    ''
    >>> opening_fault([{"role": "system", "content": "rules"}])
    'the last message is of the role `system`, and leaves nothing to answer'
    """
    roles = [message["role"] for message in messages]
    if unknown := [role for role in roles if role not in ROLES]:
        return f"there is no role `{unknown[0]:.40}`"
    if "system" in roles[1:]:
        return "a system message is not the first one"
    if roles[-1] not in ("user", "tool"):
        return f"the last message is of the role `{roles[-1]}`, and leaves nothing to answer"
    if roles[0] in ("assistant", "tool"):
        return f"the first message is of the role `{roles[0]}`"
    if not messages[-1]["content"].strip():
        return "the last message is empty"
    if any("tools" in message for message in messages[1:]):
        return "tools are not in the first message, where they are read"
    return ""


def schema_fault(tool: Any) -> str:
    """Describe a fault of a tool's schema; return an empty text if there is none."""
    match tool:
        case {"type": "function", "function": {"name": str() as name, **function}} if NAME.fullmatch(name):
            parameters: Any = function.get("parameters", {"type": "object"})
        case _:
            return 'it must be {"type": "function", "function": {"name": the name of a function, ...}}'
    if not isinstance(function.get("description", ""), str):
        return f"the description of `{name}` is no text"
    properties = parameters.get("properties", {}) if isinstance(parameters, dict) else None
    if not isinstance(properties, dict) or parameters.get("type") != "object":
        return f'the parameters of `{name}` must be {{"type": "object", "properties": {{...}}}}'
    for parameter, schema in properties.items():
        kind = schema.get("type", "string") if isinstance(schema, dict) else None
        if not set(kind if isinstance(kind, list) else [kind]) <= set(TYPES):
            return f"the parameter `{parameter}` of `{name}` has no JSON schema"
    required = parameters.get("required", [])
    if not isinstance(required, list) or not set(map(str, required)) <= set(properties):
        return f"`required` of `{name}` names a parameter that it does not have"
    return ""


def tools_of(opening: Sequence[Message]) -> list[Any]:
    """Return the schemas of the tools that the first message offers."""
    return list(opening[0].get("tools", ()))


def wrong_calls(tools: Sequence[Any]) -> dict[str, str]:
    """Return invalid calls of the `tools`. The keys describe the fault of each call."""
    name = tools[0]["function"]["name"]
    return {
        "a call of no tool": _call("no_such_tool", {}),
        "a call without arguments": _call(name, {}),
        "a call with unknown arguments": _call(name, {"no_such_argument": 1, "another": None}),
        "a call with arguments that are none": f'{OPEN}{{"name": "{name}", "arguments": "no"}}{CLOSE}',
        "a call that is no JSON": f"{OPEN}{{name: {name}{CLOSE}",
        "a call of nothing": f"{OPEN}{CLOSE}",
        "two calls of no tool": _call("no_such_tool", {}) * 2,
        **{f"odd arguments for {_name(tool)}": _call(_name(tool), _odd_arguments(tool)) for tool in tools},
    }


def tools_finding(tools: Sequence[Any], played: Sequence[Played]) -> Finding:
    """Return a finding on whether the schemas of `tools` are valid, and whether the environment answers wrong calls
    with messages. `played` has one episode for each wrong call."""
    if fault := next(filter(None, map(schema_fault, tools)), ""):
        return problem("tools", f"the schema of a tool is wrong: {fault}", SCHEMA_REMEDY)
    for one in played:
        if one.rollout.failure:
            detail = one.rollout.failure_detail or one.rollout.failure
            return problem("tools", f"{one.what} breaks the episode: {detail}")
        if len(one.rollout.turns) > 1 and not any(text.strip() for text in _answers(one.rollout)):
            return problem("tools", f"{one.what} is answered by an empty message")
    return ok("tools", f"{len(tools)} with schemas; {len(played)} wrong calls are answered by messages")


def expert_calls(played: Sequence[Played]) -> Iterator[Finding]:
    """Yield a note on the first tool call of the expert that returned an error, if there is such a call."""
    for one in played:
        for message in one.rollout.messages[len(one.opening) :]:
            if message["role"] in ("user", "tool") and (error := ERROR.match(message["content"])):
                text = f"a call of the expert was answered by `{error[1]:.200}` on task `{one.task.id:.60}`"
                remedy = "Mend the call, unless the expert is to show mistakes too: a warm-up learns it."
                yield note("expert's calls", text, remedy)
                return


def _answers(rollout: Rollout) -> list[str]:
    """Return the texts of the messages between the first and the second reply."""
    roles = [message["role"] for message in rollout.messages]
    following = rollout.messages[roles.index("assistant") + 1 :]
    return [message["content"] for message in takewhile(lambda message: message["role"] != "assistant", following)]


def _name(tool: Any) -> str:
    return str(tool["function"]["name"])


def _odd_arguments(tool: Any) -> dict[str, Any]:
    properties = tool["function"].get("parameters", {}).get("properties", {})
    return {parameter: ["\ud83e", {"a": None}, 1e300] for parameter in properties}


def _call(name: str, arguments: dict[str, Any]) -> str:
    return f"{OPEN}{json.dumps({'name': name, 'arguments': arguments})}{CLOSE}"
