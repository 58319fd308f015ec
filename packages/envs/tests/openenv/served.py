"""Environments with OpenEnv's own base classes. Its Python imports this file, which needs nothing else from here."""

import os
import random
from typing import Literal

from openenv.core.env_server import (
    Action,
    CallToolAction,
    CallToolObservation,
    Environment,
    MCPEnvironment,
    Observation,
    State,
    create_app,
)


class Word(Action):
    """A word to say."""

    message: str


class Heard(Observation):
    text: str = ""


class Guess(Environment[Word, Heard, State]):
    """Guess the number from 0 to 9."""

    SUPPORTS_CONCURRENT_SESSIONS = True
    state = State()

    def reset(self, seed=None, episode_id=None, number=None, **kwargs) -> Heard:
        self._number = random.Random(seed).randrange(10) if number is None else number
        return Heard(text=f"Guess a number from 0 to 9. Hint: {self._number * 7 % 10}")

    def step(self, action: Word, timeout_s=None, **kwargs) -> Heard:
        if action.message == "die":
            os._exit(3)
        if action.message == "fail":
            raise RuntimeError("the environment is broken")
        if action.message == "long":
            return Heard(text="x" * 100_000)
        right = action.message == str(self._number)
        return Heard(text="no", reward=1.0 if right else -0.25, done=right)


class Move(Action):
    direction: Literal["left", "right"]
    steps: int = 1


class Place(Observation):
    x: int = 0
    goal: int = 3


class Line(Environment[Move, Place, State]):
    """Walk to the goal."""

    SUPPORTS_CONCURRENT_SESSIONS = True
    state = State()

    def reset(self, seed=None, episode_id=None, **kwargs) -> Place:
        self._place = Place()
        return self._place

    def step(self, action: Move, timeout_s=None, **kwargs) -> Place:
        x = self._place.x + (action.steps if action.direction == "right" else -action.steps)
        self._place = Place(x=x, reward=float(x == 3), done=x == 3)
        return self._place


class Tools(MCPEnvironment):
    """Add with a tool."""

    SUPPORTS_CONCURRENT_SESSIONS = True
    state = State()

    def __init__(self) -> None:
        from fastmcp import FastMCP

        server = FastMCP("tools")

        @server.tool
        def add(a: int, b: int) -> int:
            """Add two numbers."""
            return a + b

        super().__init__(server)

    def reset(self, seed=None, episode_id=None, **kwargs) -> Observation:
        return Observation()

    def _step_impl(self, action, timeout_s=None, **kwargs) -> Observation:
        return Observation(done=True)


guess = create_app(Guess, Word, Heard, max_concurrent_envs=100)
two = create_app(Guess, Word, Heard, max_concurrent_envs=2)
alone = create_app(Guess, Word, Heard)
line = create_app(Line, Move, Place, max_concurrent_envs=100)
tools = create_app(Tools, CallToolAction, CallToolObservation, max_concurrent_envs=100)
