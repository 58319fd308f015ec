"""Reads the tools in a config: the user's functions, and the tools of MCP servers."""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from slimrl.errors import UserError, nearest
from slimrl.io.rows import preview
from slimrl.io.settings import read_settings
from slimrl.io.user_code import call_user_code, load_named
from slimrl.tools.base import TypedTool, tool_of
from slimrl.tools.mcp_server import McpServer, McpSettings
from slimrl.types import Task

KINDS = '{ python = "path/to/file.py:function" } or { mcp = "command or URL" }'


def read_toolbox(given: Sequence[Any], loaded: dict[str, Any]) -> tuple[dict[str, TypedTool], list[McpServer]]:
    """Read the setting `tools`. Return the user's functions by name, and the MCP servers, not yet started. `loaded`
    caches the user's modules. Raise UserError for an entry of another kind."""
    tools: dict[str, TypedTool] = {}
    servers = []
    for entry in given:
        if not isinstance(entry, Mapping) or ("python" in entry) == ("mcp" in entry):
            raise UserError(f"dataset: a tool is {KINDS}, not {entry!r:.100}.")
        if "mcp" in entry:
            servers.append(McpServer(read_settings(McpSettings, entry, "tool")))
            continue
        if more := [name for name in entry if name != "python"]:
            raise UserError(f"dataset: a Python tool has no setting `{more[0]}`.")
        add_tool(tools, _tool_of(str(entry["python"]), loaded))
    return tools, servers


def add_tool(tools: dict[str, TypedTool], tool: TypedTool) -> None:
    """Add a tool to `tools`. Raise UserError if its name is already used or is not a Python identifier."""
    name = tool.__name__
    if name in tools:
        raise UserError(f"dataset: two tools are called `{name}`.")
    if not name.isidentifier():
        raise UserError(f"dataset: a tool cannot be called {name!r:.80}: policies call tools by Python's names.")
    tools[name] = tool


def check_calls(task: Task, tools: Mapping[str, TypedTool]) -> None:
    """Raise UserError if the task's column `calls` is not a list of calls of these tools."""
    calls = task.data.get("calls")
    if calls is None:
        return
    for call in calls if isinstance(calls, list) else [calls]:
        if not (
            isinstance(call, dict) and isinstance(call.get("arguments", {}), dict) and isinstance(call.get("tool"), str)
        ):
            example = '{"tool": "name", "arguments": {"parameter": value}}'
            raise UserError(f"task `{task.id}`: `calls` is a list of calls such as {example}, not {preview(calls)}")
        if call["tool"] not in tools:
            raise UserError(
                f"task `{task.id}`: `calls` has a call of `{call['tool']:.80}`, and there is no such tool."
                + nearest(call["tool"], tools)
            )


def _tool_of(where: str, loaded: dict[str, Any]) -> TypedTool:
    function = load_named(where, "tool", loaded)
    if not inspect.isroutine(function):
        raise UserError(f"tool `{where}` is not a function, but the {type(function).__name__} {function!r:.80}.")
    # A type hint may be any expression, so this runs the user's code too.
    return call_user_code(f"tool `{where}` failed", lambda: tool_of(function, f"tool `{where}`"))
