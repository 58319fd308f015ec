"""Tests a program of the policy in two sandboxes: one runs the program, the other one runs the tests.

The tests call the program's function by messages. So a program cannot read the tests, exit before they fail, or return
an object that equals everything. Arguments and results are Python literals, such as numbers, texts, lists and tuples.
"""

import asyncio
from dataclasses import dataclass
from queue import Queue
from threading import Event

from slimrl.tools.base import ToolError
from slimrl_sandbox.base import Limits
from slimrl_sandbox.local import BubblewrapSandbox
from slimrl_sandbox.process import Program

NUM_CALLS = 10_000  # of the function by the tests

# `prefix` is code such as imports. A program may also continue the last function of the prefix.
PROGRAM = """
import ast
names, prefix, program = {{"__name__": "program"}}, {prefix!r}, {program!r}
try:
    code = compile(program, "program", "exec")
except SyntaxError:
    code = compile(prefix + program, "program", "exec")
def plain(value):
    if isinstance(value, dict):
        return {{plain(key): plain(item) for key, item in value.items()}}
    for kind in (list, tuple, set):
        if isinstance(value, kind):
            return kind(map(plain, value))
    return value
exec(prefix, names)
exec(code, names)
answer = ""
while True:
    positional, keywords = ast.literal_eval(exchange(answer))
    try:
        answer = repr((True, plain(names[{function!r}](*positional, **keywords))))
    except Exception as error:
        answer = repr((False, type(error).__name__))
"""
TESTS = """
import ast, builtins
exec({prefix!r})
def {function}(*positional, **keywords):
    returns, value = ast.literal_eval(ask(repr((positional, keywords))))
    if returns:
        return value
    kind = vars(builtins).get(value)
    # An exception that ends a loop would end the loop of lazy tests, such as `all(map(...))`.
    ends_loops = kind in (StopIteration, StopAsyncIteration)
    raise (kind if isinstance(kind, type) and issubclass(kind, Exception) and not ends_loops else Exception)(value)
exec({tests!r})
"""


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem. `tests` are Python code that calls `function` and raises an exception if a result is wrong. Both the
    program and the tests run after the code `prefix`."""

    prompt: str
    function: str
    tests: str
    prefix: str = ""
    solution: str = ""


class Exchange:
    """Messages between the program and the tests, which run at the same time. Its methods block a sandbox's thread."""

    def __init__(self) -> None:
        self._calls, self._results = Queue[str](), Queue[str]()
        self._closed = Event()

    def ask(self, arguments: str) -> str:
        """Call the program's function for the tests, and return its result."""
        self._calls.put(arguments)
        return self._take(self._results)

    def exchange(self, answer: str) -> str:
        """Send the program's last result, and return the arguments of the next call. The first `answer` is empty."""
        if answer:
            self._results.put(answer)
        return self._take(self._calls)

    def close(self) -> None:
        """End the waits of both sides."""
        self._closed.set()
        self._calls.put("")
        self._results.put("")

    def _take(self, queue: Queue[str]) -> str:
        if self._closed.is_set() or not (message := queue.get()):
            raise ToolError("the other side has ended")
        return message


async def find_failure(sandbox: BubblewrapSandbox, problem: Problem, program: str, wall_s: float) -> str:
    """Return the error of a program that fails the tests; empty if it passes them. The tests have `wall_s` seconds.
    Raise UserError if the sandbox does not work."""
    exchange = Exchange()
    code = PROGRAM.format(prefix=problem.prefix, program=program, function=problem.function)
    tests = TESTS.format(prefix=problem.prefix, tests=problem.tests, function=problem.function)
    # Both start in this order, one right after the other, so that no program waits for tests that have no slot.
    serving = asyncio.create_task(sandbox.run_program(Program(code, {"exchange": exchange.exchange}, 3 * wall_s)))
    testing = asyncio.create_task(sandbox.run_program(Program(tests, {"ask": exchange.ask}, wall_s)))
    serving.add_done_callback(lambda _: exchange.close())
    try:
        tested = await testing
        if tested.error and serving.done():  # the program has ended by itself, so its error is the reason
            return serving.result().error or "the program ended its process"
        return tested.error
    finally:
        exchange.close()
        serving.cancel()
        testing.cancel()


def make_sandbox(wall_s: float, memory_mb: int) -> BubblewrapSandbox:
    """Return the sandbox for programs and tests. Raise UserError if bubblewrap is missing."""
    limits = Limits(wall_s=3 * wall_s, cpu_s=max(1, round(wall_s)), memory_mb=memory_mb, num_calls=NUM_CALLS)
    return BubblewrapSandbox({}, limits)
