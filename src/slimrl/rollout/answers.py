"""Calls into an environment, with checks of what it returns: environments are other people's code, often without types.

A wrong answer raises RolloutError, which fails the episode alone and says what to correct.
"""

import math
from collections.abc import Awaitable, Iterable
from typing import TypeVar, cast

from slimrl.environments.base import Closing, Environment, is_message
from slimrl.errors import RolloutError
from slimrl.types import Message, Turn

T = TypeVar("T")


async def start_episode(environment: Environment) -> list[Message]:
    """The messages that open the episode."""
    return _messages(await _asynchronous(environment.start(), "start(self)"))


def _asynchronous(work: Awaitable[T], method: str) -> Awaitable[T]:
    """What a method of the environment gave, which must be awaited. Raises RolloutError for a method that is no
    coroutine."""
    if not isinstance(work, Awaitable):
        raise RolloutError("environment_error", f"a plain function cannot be awaited: write `async def {method}`")
    return work


async def step_episode(environment: Environment, reply: str) -> Turn:
    """The environment's turn after the policy's reply, with a finite reward and metrics that are floats."""
    turn: object = await _asynchronous(environment.step(reply), "step(self, reply)")
    if not isinstance(turn, Turn):
        raise RolloutError("environment_error", f"step() must return a Turn, not {type(turn).__name__}")
    reward = float(turn.reward)
    if not math.isfinite(reward):
        raise RolloutError("nonfinite_reward", f"the environment gave reward {turn.reward}")
    metrics = {name: float(value) for name, value in turn.metrics.items()}
    return Turn(bool(turn.done), _messages(turn.messages), reward, metrics)


async def close_episode(environment: Environment) -> None:
    """Release what the environment holds, if it holds anything."""
    if isinstance(environment, Closing):
        await environment.close()


def _messages(given: Iterable[object]) -> list[Message]:
    messages = list(given)
    for message in messages:
        if not is_message(message):
            raise RolloutError(
                "environment_error", f"a message needs a role and a text as content, not {message!r:.200}"
            )
    return cast(list[Message], messages)
