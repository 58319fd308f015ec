"""Calls into an environment, whose answers are copied into plain data: environments are other people's code.

A wrong answer raises RolloutError, which fails the episode alone and says what to correct.
"""

from collections.abc import Awaitable
from typing import TypeVar

from slimrl.environments.base import Closing
from slimrl.environments.plain import plain_messages, plain_turn
from slimrl.errors import RolloutError
from slimrl.types import Environment, Message, Turn

T = TypeVar("T")


async def start_episode(environment: Environment) -> list[Message]:
    """The messages that open the episode."""
    messages = plain_messages(await _asynchronous(environment.start(), "start(self)"))
    if not messages:
        raise RolloutError("environment_error", "start() gave no messages to read")
    return messages


def _asynchronous(work: Awaitable[T], method: str) -> Awaitable[T]:
    """What a method of the environment gave, which must be awaited. Raises RolloutError for a method that is no
    coroutine."""
    if not isinstance(work, Awaitable):
        raise RolloutError("environment_error", f"a plain function cannot be awaited: write `async def {method}`")
    return work


async def step_episode(environment: Environment, reply: str) -> Turn:
    """The environment's turn after the policy's reply, with a finite reward and metrics that are floats."""
    return plain_turn(await _asynchronous(environment.step(reply), "step(self, reply)"))


async def close_episode(environment: Environment) -> None:
    """Release what the environment holds, if it holds anything."""
    if isinstance(environment, Closing):
        await environment.close()
