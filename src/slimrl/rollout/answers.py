"""Calls an environment's methods, checks their results and copies them into plain data.

An invalid result raises a RolloutError with advice, and only the current episode fails.
"""

from collections.abc import Awaitable
from typing import TypeVar

from slimrl.environments.base import Closing, CutOff
from slimrl.environments.plain import plain_messages, plain_turn
from slimrl.errors import RolloutError
from slimrl.types import Environment, Message, Turn

T = TypeVar("T")


async def start_episode(environment: Environment) -> list[Message]:
    """Return the messages that open the episode."""
    messages = plain_messages(await _asynchronous(environment.start(), "start(self)"))
    if not messages:
        raise RolloutError("environment_error", "start() gave no messages to read")
    return messages


def _asynchronous(work: Awaitable[T], method: str) -> Awaitable[T]:
    """Return `work`, the return value of the environment's `method`. Raise RolloutError if it cannot be awaited."""
    if not isinstance(work, Awaitable):
        raise RolloutError("environment_error", f"a plain function cannot be awaited: write `async def {method}`")
    return work


async def step_episode(environment: Environment, reply: str) -> Turn:
    """Return the environment's turn after the policy's reply. The turn's reward is finite and its metrics are
    floats."""
    return plain_turn(await _asynchronous(environment.step(reply), "step(self, reply)"))


async def cut_episode(environment: Environment) -> Turn | None:
    """Return the last turn of an episode that a limit ended. Return None if the environment does not score it."""
    if not isinstance(environment, CutOff):
        return None
    turn = await _asynchronous(environment.cut_off(), "cut_off(self)")
    return turn and plain_turn(turn)


async def close_episode(environment: Environment) -> None:
    """Release the environment's resources, if it has a `close` method."""
    if isinstance(environment, Closing):
        await environment.close()
