"""Makes the grammar that a reply must follow, from the format or the tools in the request. Many requests need no
grammar.

A grammar's source is a text of limited length. It is compiled off the event loop within a limited time. The most recent
grammars are cached, because clients often send the same schema or tools again.
"""

import asyncio
import functools
import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from slimrl.models.chat.tags import CLOSE, CLOSE_THOUGHTS, OPEN, OPEN_THOUGHTS
from slimrl_serve.bodies import ChatBody, FunctionSpec, Generation, Sampling, StructuredOutputs, Tool
from slimrl_serve.errors import ApiError, bad_request
from slimrl_serve.grammar import Grammar, GrammarCompiler, lark_source, literal, regex_source
from slimrl_serve.grammar_trial import GrammarError, is_costly, try_to_compile

MAX_SOURCE = 2**17  # characters
COMPILE_S = 15.0  # includes the trial and the wait for other grammars; a grammar within the limits takes up to 2 s
NUM_TRIALS = 2  # trials at the same time; each may take gigabytes
NUM_KEPT = 32
# Allow only one space, or one line break with indentation. Otherwise a small model could write white space for ever.
SPACES = {"whitespace_flexible": True, "whitespace_pattern": r"( |\n {0,32})?"}
# Text without the opening tag of thoughts.
PLAIN_RULE = f"PLAIN: TEXT & ~/{OPEN_THOUGHTS}(.|\\n)*/"
OWN = (json.dumps(PLAIN_RULE)[1:-1], json.dumps(SPACES["whitespace_pattern"]))  # escaped as in a source
CALL_END = "}\n" + CLOSE
ANY_OBJECT = {"type": "object"}
NO_ARGUMENTS = {"type": "object", "properties": {}, "additionalProperties": False}


class Formats:
    """Compiles the grammars of one model."""

    def __init__(self, make_compiler: Callable[[], GrammarCompiler]) -> None:
        self._compiler = functools.cache(make_compiler)  # reading the vocabulary takes a second or two
        self._grammars: dict[str, asyncio.Task[Grammar]] = {}  # by source; the latest one is the last
        # One thread compiles at a time. A task that is cancelled leaves its thread running.
        self._compiles, self._trials = ThreadPoolExecutor(1, "grammar"), ThreadPoolExecutor(NUM_TRIALS, "grammar")

    async def grammar_of(self, body: Sampling, in_thoughts: bool = False) -> Grammar | None:
        """Return the grammar for the reply to `body`; None without constraints. `in_thoughts` is True if the prompt
        ends within thoughts. Raises ApiError 400 if the format cannot be used, and 503 after the time limit."""
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
                return await asyncio.shield(self._find(source))
        except GrammarError as error:
            raise bad_request(f"{param} cannot be obeyed: {error}.", param) from error
        except TimeoutError as error:
            raise ApiError(503, f"{param} was not compiled within {COMPILE_S:g} s.", param=param) from error

    def _find(self, source: str) -> "asyncio.Task[Grammar]":
        """Return the task that compiles a source. Requests with the same source share it. Only a failed task is
        replaced, because on a busy machine a trial may exceed its time limit by chance."""
        task = self._grammars.pop(source, None)
        if task is None or (task.done() and (task.cancelled() or task.exception())):
            task = asyncio.create_task(self._compile(source))
            # Read a failure, because asyncio warns of one that nobody has read.
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._grammars[source] = task
        for old in [*self._grammars][:-NUM_KEPT]:
            del self._grammars[old]
        return task

    async def _compile(self, source: str) -> Grammar:
        run = asyncio.get_running_loop().run_in_executor
        if is_costly(source.replace(OWN[0], "").replace(OWN[1], "")):
            await run(self._trials, try_to_compile, source)
        return await run(self._compiles, lambda: self._compiler().compile(source))


def source_of(body: Sampling, in_thoughts: bool) -> tuple[str, str]:
    """Return the field that constrains the reply, and the source of its grammar. Without constraints, return two empty
    texts."""
    formats = _formats(body)
    tools = constrained_tools(body) if isinstance(body, ChatBody) else []
    if len(formats) > 1 or (formats and tools and formats[0][0] != "response_format"):
        both = [name for name, _ in formats] if len(formats) > 1 else [formats[0][0], "tools"]
        raise bad_request(f"{both[0]} and {both[1]} both say what the reply must be; leave one out.", both[0])
    if tools and isinstance(body, ChatBody):
        return _calls_source(body, tools, formats[0][1] if formats else None, in_thoughts)
    if not formats:
        return "", ""
    name, form = formats[0]
    return name, json.dumps({"grammars": [{"json_schema": _with_spaces(form)}]}) if isinstance(form, dict) else form


def _formats(body: Sampling) -> list[tuple[str, Any]]:
    """Return the names of the fields that request a format, each with its JSON schema or its grammar's source."""
    found: list[tuple[str, Any]] = []
    if isinstance(body, Generation) and (given := body.response_format) and given.type != "text":
        if given.type == "json_schema" and given.json_schema is None:
            raise bad_request("response_format of the type json_schema needs its json_schema.", "response_format")
        schema = given.json_schema.schema_ if given.type == "json_schema" and given.json_schema else None
        found.append(("response_format", ANY_OBJECT if schema is None else schema))
    if body.structured_outputs is not None:
        found += [("structured_outputs", form) for form in _of_structured_outputs(body.structured_outputs)]
    return found


def _of_structured_outputs(given: StructuredOutputs) -> list[Any]:
    name, schema = "structured_outputs", given.json_
    try:
        schema = json.loads(schema) if isinstance(schema, str) else schema
    except (ValueError, RecursionError) as error:
        raise bad_request(f"{name}: the schema is not JSON: {error}.", name) from None
    if not isinstance(schema, dict | None):
        raise bad_request(f"{name}: a schema must be a JSON object.", name)
    forms = [
        schema,
        ANY_OBJECT if given.json_object else None,
        regex_source(given.regex) if given.regex is not None else None,
        lark_source([f"start: {' | '.join(map(literal, given.choice))}"]) if given.choice is not None else None,
        given.grammar,
    ]
    found = [form for form in forms if form is not None]
    if not found:
        raise bad_request(f"{name} needs one of json, json_object, regex, choice and grammar.", name)
    return found


def _with_spaces(schema: dict[str, Any]) -> dict[str, Any]:
    return {**schema, "x-guidance": SPACES}


def constrained_tools(body: ChatBody) -> list[FunctionSpec]:
    """Return the functions with constrained calls; an empty list if calls are unconstrained or forbidden."""
    choice, functions = body.tool_choice, [tool.function for tool in body.tools or []]
    if isinstance(choice, Tool):
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
    forced = isinstance(body.tool_choice, Tool) or body.tool_choice == "required"
    several = body.parallel_tool_calls is not False and not isinstance(body.tool_choice, Tool)
    calls = [_call_rule(function, forced or bool(function.strict)) for function in functions]
    lines = [f"tail: ({' | '.join(calls)}) {literal(CALL_END)}"]
    call = f"{literal(OPEN)} tail"
    if forced or schema is not None:
        rule = f'{call} ("\\n" {call})*' if several else call
        lines.append(f"reply: {rule}" + ("" if forced else f" | %json {json.dumps(_with_spaces(schema or {}))}"))
    else:
        # The text up to the next tag is lazy, so that only a call can follow a tag. The text contains no thoughts,
        # because calls within thoughts do not count.
        lines.append("reply: " + ("(head tail)* TEXT" if several else "TEXT | head tail"))
        lines += [PLAIN_RULE, f"head[lazy]: PLAIN {literal(OPEN)}"]
    if in_thoughts:
        lines += ["start: thoughts reply", f"thoughts[lazy]: TEXT {literal(CLOSE_THOUGHTS)} /\\n{{0,2}}/"]
    elif forced or schema is not None:
        lines.append("start: reply")
    else:
        lines += ["start: thoughts? reply", f"thoughts[lazy]: {literal(OPEN_THOUGHTS)} TEXT {literal(CLOSE_THOUGHTS)}"]
    param = "tool_choice" if forced else "tools"
    return param, lark_source([*lines, "TEXT: /(.|\\n)*/"])


def _call_rule(function: FunctionSpec, obeys: bool) -> str:
    """Return the grammar's rule for a call of the function: the text after the opening tag, except the last brace. With
    `obeys`, the arguments follow the function's schema; otherwise any object is allowed."""
    schema: dict[str, Any] = ANY_OBJECT
    if obeys:
        schema = NO_ARGUMENTS if function.parameters is None else {"type": "object", **function.parameters}
        if schema["type"] != "object":
            raise bad_request(f"The parameters of {function.name!r:.80} must be an object's schema.", "tools")
    head = f'\n{{"name": {json.dumps(function.name, ensure_ascii=False)}, "arguments": '
    return f"{literal(head)} %json {json.dumps(_with_spaces(schema))}"
