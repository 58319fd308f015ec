"""Reads and writes tool calls as Python calls with literal arguments. Calls are parsed, never evaluated."""

import ast
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

PythonCall = tuple[str, list[Any], dict[str, Any]]  # name, positional arguments, keywords
MAX_LENGTH = 1 << 16  # characters of a program; its syntax tree takes a hundred times their memory


def parse_python_call(text: str) -> PythonCall:
    """Return a call. Raise ValueError for any other text.

    >>> parse_python_call('math.root(16, digits=2)')
    ('math.root', [16], {'digits': 2})
    """
    with _only_value_errors(text):
        return _read(ast.parse(text.strip(), mode="eval").body)


def parse_python_calls(program: str) -> list[PythonCall]:
    """Return the calls of a program of calls, or of lists of calls. Raise ValueError for any other text.

    >>> parse_python_calls('[add(a=1), root(b=16)]')
    [('add', [], {'a': 1}), ('root', [], {'b': 16})]
    """
    with _only_value_errors(program):
        statements = ast.parse(program.strip()).body
        values = [statement.value for statement in statements if isinstance(statement, ast.Expr)]
        if len(values) < len(statements):
            raise ValueError("not only calls")
        return [_read(call) for value in values for call in (value.elts if isinstance(value, ast.List) else [value])]


@contextmanager
def _only_value_errors(text: str) -> Iterator[None]:
    """Context manager: convert the errors of the parser to ValueError, and refuse a text of extreme length."""
    if len(text) > MAX_LENGTH:
        raise ValueError(f"more than {MAX_LENGTH} characters")
    try:
        yield
    except (SyntaxError, TypeError, MemoryError, RecursionError) as error:
        raise ValueError(str(error)) from error


def _read(call: ast.expr) -> PythonCall:
    if not isinstance(call, ast.Call):
        raise ValueError("no call")
    name = ast.unparse(call.func)
    if not all(part.isidentifier() for part in name.split(".")):
        raise ValueError("a call of no name")
    positional = [ast.literal_eval(argument) for argument in call.args]
    keywords = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords if keyword.arg}
    if len(keywords) < len(call.keywords):  # `**` has no name
        raise ValueError("`**`, or a keyword twice")
    return name, positional, keywords


def python_call(tool: str, positional: Sequence[Any], keywords: Mapping[str, Any]) -> str:
    """Return the call in Python, with literals as its arguments.

    >>> print(python_call("price", ["apple"], {"pieces": 18}))
    price("apple", pieces=18)
    """
    written = [*map(_literal, positional), *(f"{name}={_literal(value)}" for name, value in keywords.items())]
    return f"{tool}({', '.join(written)})"


def _literal(value: Any) -> str:
    # A text is written as JSON, whose strings Python reads as the same text, on one line.
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)
