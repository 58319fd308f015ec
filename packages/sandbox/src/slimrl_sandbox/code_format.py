"""Implements the call format `code`: a policy writes programs that call tools, and a sandbox runs the programs.

The policy writes `<code>print(search_pages("query"))</code>`, and reads the program's output. The programs of an
episode share the files in their working directory (a session of the sandbox) but no variables.
"""

import inspect
import math
import os
import re
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from textwrap import dedent
from typing import Annotated, Any, Literal

from pydantic import Field, FiniteFloat

from slimrl.errors import UserError
from slimrl.io.settings import read_settings
from slimrl.io.text import spans_between
from slimrl.models.chat.python_calls import python_call
from slimrl.tools.base import CallAttempt, Frame, Tool, example_call, purpose, usage
from slimrl.tools.formats import END, LOOK, Reaction
from slimrl.types import Message
from slimrl_sandbox.base import Execution, Limits, Sandbox
from slimrl_sandbox.client import HttpSandbox
from slimrl_sandbox.local import BubblewrapSandbox

TAGS = "<code>", "</code>"
FENCE = re.compile(r"```[a-z]*\n")  # models often put a fence around a program
ERROR_CHARS = 3000  # of a traceback; its last lines, at most about 2000 characters, describe the error


@dataclass(frozen=True, slots=True)
class SandboxSettings:
    """The settings of the sandbox. It runs on this machine with bubblewrap, or on the server at `url`. The environment
    variable SANDBOX_TOKEN holds the server's token.

    A program may run for `wall_s` seconds. On this machine it may use `memory_mb` MB. `isolation = "none"` runs a
    model's programs with all rights of this user.
    """

    url: str = ""
    wall_s: Annotated[FiniteFloat, Field(gt=0)] = 10.0
    memory_mb: Annotated[int, Field(gt=0)] = 512
    isolation: Literal["bubblewrap", "none"] = "bubblewrap"


class Programs:
    """The call format `code`. The package slimrl-sandbox registers this class as an entry point."""

    def check(self, sandbox: Mapping[str, Any]) -> None:
        """Raise UserError for invalid settings of the sandbox."""
        settings_of(sandbox)

    def make(
        self, tools: Mapping[str, Tool], max_tokens: int, sandbox: Mapping[str, Any]
    ) -> Callable[[], "CodeFormat"]:
        """Return a function that makes the format of one episode. Raises UserError as `check` does, or if programs
        cannot be isolated."""
        chosen = settings_of(sandbox)
        if chosen.url:  # connections belong to an event loop, so each episode has its own client
            token = os.environ.get("SANDBOX_TOKEN", "")
            return lambda: CodeFormat(tools, max_tokens, HttpSandbox(chosen.url, token), chosen.wall_s)
        limits = Limits(wall_s=chosen.wall_s, cpu_s=math.ceil(chosen.wall_s), memory_mb=chosen.memory_mb)
        shared = BubblewrapSandbox(tools, limits, isolation=chosen.isolation)
        return lambda: CodeFormat(tools, max_tokens, shared, chosen.wall_s)


PROGRAMS = Programs()


def settings_of(given: Mapping[str, Any]) -> SandboxSettings:
    """Return the settings as `SandboxSettings`. Raises UserError for a setting that is unknown or has no effect."""
    chosen = read_settings(SandboxSettings, given, "sandbox")
    if chosen.url and (own := [name for name in ("memory_mb", "isolation") if name in given]):
        raise UserError(f"the sandbox's `{own[0]}` is for this machine; with a `url` its server decides.")
    return chosen


class CodeFormat:
    """The call format `code` of one episode. If a reply has several programs, only the first program is run."""

    def __init__(self, tools: Mapping[str, Tool], max_tokens: int, sandbox: Sandbox, wall_s: float) -> None:
        self._tools = tools
        self._frame = Frame("user", max_tokens, "<output>\n", "\n</output>")
        self._sandbox = sandbox
        self._wall_s = wall_s
        self._session_id = uuid.uuid4().hex

    def opening(self, task: str, question: str, what: str = LOOK) -> list[Message]:
        lines = [
            f"{task} {what} with Python, one program in <code> tags at a time: you read what it prints. It has",
            *(_description(tool) for tool in self._tools.values()),
            "For example:",
            f"<code>\nprint({example_call(next(iter(self._tools.values())))})\n</code>",
            END,
        ]
        return [{"role": "system", "content": "\n".join(lines)}, {"role": "user", "content": question}]

    def call_start(self, reply: str) -> int:
        program = next(spans_between(reply, *TAGS), None)
        return program[0] - len(TAGS[0]) if program else len(reply)

    async def react(self, reply: str) -> Reaction:
        program = next(spans_between(reply, *TAGS), None)
        if program is None:
            error = "there was neither a program in <code> tags nor an answer in <answer> tags."
            return Reaction([self._frame.message(f"Error: {error}")], (CallAttempt("", error=error),))
        execution = await self._sandbox.run(program_of(reply[slice(*program)]), self._session_id, self._wall_s)
        calls = [CallAttempt(call.tool, (call.argument,), call.error) for call in execution.calls]
        if execution.error and not any(call.error for call in calls):
            # This error is the program's own. A failed call also stops a program, but is in `calls` already.
            calls.append(CallAttempt("", error=execution.error))
        output, error = output_text(execution), error_text(execution.error)
        return Reaction([self._frame.message(output, f"\n{error}" if output and error else error)], tuple(calls))

    def write_call(self, tool: str, /, *positional: Any, **keywords: Any) -> str:
        return f"<code>\nprint({python_call(tool, positional, keywords)})\n</code>"

    async def close(self) -> None:
        await self._sandbox.end_session(self._session_id)


def program_of(text: str) -> str:
    """Return the program in `text`, the content of the tags. Remove a common indentation, and a Markdown fence.

    >>> program_of("```python\\nprint(1)\\n```")
    'print(1)\\n'
    """
    begun = text.lstrip()
    if fence := FENCE.match(begun):
        text = begun[fence.end() :].rstrip().removesuffix("```")
    return dedent(text).strip() + "\n"


def output_text(execution: Execution) -> str:
    """Return the output of a program, or a remark if it printed nothing."""
    text = "\n".join(part.rstrip("\n") for part in (execution.stdout, execution.stderr) if part.strip())
    if execution.truncated:
        text += "\n[more output was left out]"
    return text or ("" if execution.error else "(nothing was printed)")


def error_text(error: str) -> str:
    """Return a program's error as text for the policy; empty without an error. It follows the output as an appendix, so
    it is complete even if the output is cut."""
    shown = error if len(error) <= ERROR_CHARS else f"[...] {error[-ERROR_CHARS:]}"
    return f"Error: {shown}" if error else ""


def _description(tool: Tool) -> str:
    rest = " ".join((inspect.getdoc(tool) or "").splitlines()[1:]).strip()
    return f"{usage(tool)} {purpose(tool)} {rest}".strip()
