"""Makes the grammar that a request's reply must follow, from the request's format or tools. A request may have none.

A grammar's source is a text of limited length. It is compiled off the event loop within a limited time. The latest
grammars are kept, since clients send the same schema or tools with each request.
"""

import asyncio
import json
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from slimrl.models.chat.tags import CLOSE, CLOSE_THOUGHTS, OPEN, OPEN_THOUGHTS
from slimrl_serve.bodies import (
    ChatBody,
    FunctionSpec,
    Generation,
    NamedTool,
    ResponseFormat,
    Sampling,
    StructuredOutputs,
)
from slimrl_serve.errors import ApiError, bad_request
from slimrl_serve.grammar import (
    Grammar,
    GrammarCompiler,
    GrammarError,
    json_source,
    lark_source,
    literal,
    regex_source,
)
from slimrl_serve.grammar_trial import TrialError, is_costly, try_to_compile

MAX_SOURCE = 2**17  # characters
COMPILE_S = 15.0  # includes the wait for other grammars and the trial; one within llguidance's limits takes up to 2 s
NUM_TRIALS = 2  # at the same time; each may take gigabytes
NUM_KEPT = 32
# One space or one line break with its indentation, because a small model could write white space for ever.
SPACES = {"whitespace_flexible": True, "whitespace_pattern": r"( |\n {0,32})?"}
# Text without the opening tag of thoughts.
PLAIN_RULE = f"PLAIN: TEXT & ~/{OPEN_THOUGHTS}(.|\\n)*/"
PLAIN = json.dumps(PLAIN_RULE)[1:-1]  # the rule as it is written in a source
CALL_END = "}\n" + CLOSE
ANY_OBJECT = {"type": "object"}
NO_ARGUMENTS = {"type": "object", "properties": {}, "additionalProperties": False}


class Formats:
    """Compiles the grammars of one model. All calls must come from one event loop."""

    def __init__(self, make_compiler: Callable[[], GrammarCompiler]) -> None:
        self._make_compiler = make_compiler
        self._compiler: GrammarCompiler | None = None
        self._lock = asyncio.Lock()  # one thread compiles at a time; the other tasks wait without a thread
        self._trials = asyncio.Semaphore(NUM_TRIALS)
        self._tasks: OrderedDict[str, asyncio.Task[Grammar]] = OrderedDict()  # keyed by source

    async def grammar_of(self, body: Sampling, in_thoughts: bool = False) -> Grammar | None:
        """Return the grammar for the reply to `body`; None without constraints. `in_thoughts` is True if the prompt has
        opened the thoughts. Raises ApiError 400 if the format cannot be used, and 503 after the time limit."""
        param, source = source_of(body, in_thoughts)
        if not source:
            return None
        if body.ignore_eos or body.min_tokens:
            other = "ignore_eos" if body.ignore_eos else "min_tokens"
            raise bad_request(f"{other} would go on behind the end of what {param} asks for; leave it out.", other)
        if len(source) > MAX_SOURCE:
            raise bad_request(
                f"{param} comes to {len(source)} characters of grammar; {MAX_SOURCE} are the most.", param
            )
        try:
            async with asyncio.timeout(COMPILE_S):
                # Requests with the same source share a task. The task and its thread continue if these requests are
                # cancelled.
                return await asyncio.shield(self._task_of(source))
        except (GrammarError, TrialError) as error:
            raise bad_request(f"{param} cannot be obeyed: {error}.", param) from error
        except TimeoutError as error:
            raise ApiError(503, f"{param} was not compiled within {COMPILE_S:g} s.", param=param) from error

    def _task_of(self, source: str) -> "asyncio.Task[Grammar]":
        task = self._tasks.get(source)
        if task is None or (task.done() and (task.cancelled() or task.exception())):
            task = self._tasks[source] = asyncio.create_task(self._compile(source))
        self._tasks.move_to_end(source)
        if len(self._tasks) > NUM_KEPT:
            self._tasks.popitem(last=False)
        return task

    async def _compile(self, source: str) -> Grammar:
        if is_costly(source.replace(PLAIN, "").replace(json.dumps(SPACES["whitespace_pattern"]), "")):
            async with self._trials:
                await try_to_compile(source)
        async with self._lock:
            return await asyncio.to_thread(self._compile_now, source)

    def _compile_now(self, source: str) -> Grammar:
        if self._compiler is None:  # reading the vocabulary takes a second or two
            self._compiler = self._make_compiler()
        return self._compiler.compile(source)


def source_of(body: Sampling, in_thoughts: bool) -> tuple[str, str]:
    """Return the field that constrains the reply, and the source of its grammar. Without constraints, return two empty
    texts."""
    formats = _formats(body)
    tools = _tools(body) if isinstance(body, ChatBody) else []
    if len(formats) > 1 or (formats and tools and formats[0][0] != "response_format"):
        both = [name for name, _ in formats] if len(formats) > 1 else [formats[0][0], "tools"]
        raise bad_request(f"{both[0]} and {both[1]} both say what the reply must be; leave one out.", both[0])
    if tools and isinstance(body, ChatBody):
        return _calls_source(body, tools, formats[0][1] if formats else None, in_thoughts)
    if not formats:
        return "", ""
    name, form = formats[0]
    return name, json_source(_with_spaces(form)) if isinstance(form, dict) else form


def _formats(body: Sampling) -> list[tuple[str, Any]]:
    """Return the names of the fields that request a format, each with its JSON schema or its grammar's source."""
    found: list[tuple[str, Any]] = []
    if isinstance(body, Generation) and body.response_format and body.response_format.type != "text":
        found.append(("response_format", _schema_of(body.response_format)))
    if body.structured_outputs is not None:
        found += [("structured_outputs", form) for form in _of_structured_outputs(body.structured_outputs)]
    return found


def _schema_of(given: ResponseFormat) -> dict[str, Any]:
    if given.type == "json_schema" and given.json_schema is None:
        raise bad_request("response_format of the type json_schema needs its json_schema.", "response_format")
    schema = given.json_schema.schema_ if given.type == "json_schema" and given.json_schema else None
    return ANY_OBJECT if schema is None else schema


def _of_structured_outputs(given: StructuredOutputs) -> list[Any]:
    name, found = "structured_outputs", list[Any]()
    if given.json_ is not None:
        try:
            schema = json.loads(given.json_) if isinstance(given.json_, str) else given.json_
        except (ValueError, RecursionError) as error:
            raise bad_request(f"{name}: the schema is not JSON: {error}.", name) from None
        if not isinstance(schema, dict):
            raise bad_request(f"{name}: a schema must be a JSON object.", name)
        found.append(schema)
    if given.json_object:
        found.append(ANY_OBJECT)
    if given.regex is not None:
        found.append(regex_source(given.regex))
    if given.choice is not None:
        found.append(lark_source([f"start: {' | '.join(map(literal, given.choice))}"]))
    if given.grammar is not None:
        found.append(given.grammar)
    if not found:
        raise bad_request(f"{name} needs one of json, json_object, regex, choice and grammar.", name)
    return found


def _with_spaces(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {**schema, "x-guidance": SPACES}


def _tools(body: ChatBody) -> list[FunctionSpec]:
    """Return the functions with constrained calls; an empty list if calls are unconstrained or forbidden."""
    choice, functions = body.tool_choice, [tool.function for tool in body.tools or []]
    if isinstance(choice, NamedTool):
        wanted = [function for function in functions if function.name == choice.function.name]
        if not wanted:
            raise bad_request(f"tool_choice names {choice.function.name!r:.80}, which is none of tools.", "tool_choice")
        return wanted[:1]
    if choice == "required":
        if not functions:
            raise bad_request("tool_choice is required, but there are no tools to call.", "tool_choice")
        return functions
    formats = body.response_format is not None and body.response_format.type != "text"
    strict = any(function.strict for function in functions)
    constrained = choice != "none" and (strict or formats or body.parallel_tool_calls is False)
    return functions if constrained else []


def _calls_source(
    body: ChatBody, functions: Sequence[FunctionSpec], schema: dict[str, Any] | None, in_thoughts: bool
) -> tuple[str, str]:
    """Return the constraining field and the source for replies that may call functions. A forced reply has only calls.
    Any other reply is text with calls, or, if there is a `schema`, either calls or JSON."""
    forced = isinstance(body.tool_choice, NamedTool) or body.tool_choice == "required"
    several = body.parallel_tool_calls is not False and not isinstance(body.tool_choice, NamedTool)
    calls = [_call_rule(function, forced or bool(function.strict)) for function in functions]
    lines = [f"tail: ({' | '.join(calls)}) {literal(CALL_END)}"]
    call = f"{literal(OPEN)} tail"
    if forced or schema is not None:
        rule = f'{call} ("\\n" {call})*' if several else call
        lines.append(f"reply: {rule}" + ("" if forced else f" | %json {json.dumps(_with_spaces(schema or {}))}"))
    else:
        # Text up to the next tag is lazy, so that only a call can follow a tag. It contains no thoughts, because calls
        # within thoughts do not count.
        lines.append("reply: " + ("(head tail)* TEXT" if several else "TEXT | head tail"))
        lines.append(PLAIN_RULE)
        lines.append(f"head[lazy]: PLAIN {literal(OPEN)}")
    if in_thoughts:
        lines += ["start: thoughts reply", f"thoughts[lazy]: TEXT {literal(CLOSE_THOUGHTS)} /\\n{{0,2}}/"]
    elif forced or schema is not None:
        lines.append("start: reply")
    else:
        lines += ["start: thoughts? reply", f"thoughts[lazy]: {literal(OPEN_THOUGHTS)} TEXT {literal(CLOSE_THOUGHTS)}"]
    param = "tool_choice" if forced else "tools"
    return param, lark_source([*lines, "TEXT: /(.|\\n)*/"])


def _call_rule(function: FunctionSpec, obeys: bool) -> str:
    """Return the rule of a call between its tags, up to its last brace. With `obeys`, the arguments follow the
    function's schema, else they are any object."""
    schema: dict[str, Any] = ANY_OBJECT
    if obeys:
        schema = NO_ARGUMENTS if function.parameters is None else {"type": "object", **function.parameters}
        if schema["type"] != "object":
            raise bad_request(f"The parameters of {function.name!r:.80} must be an object's schema.", "tools")
    head = f'\n{{"name": {json.dumps(function.name, ensure_ascii=False)}, "arguments": '
    return f"{literal(head)} %json {json.dumps(_with_spaces(schema))}"
