"""Lets a model play against a person: `slimrl play matching-game --model.name ...`.

Each side is an episode of the same game (`rollout/games.py`). The agent loop of training plays the model's episode in
the same asyncio event loop, while the person waits for an answer.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from slimrl.config.play import PlayConfig
from slimrl.config.rollout import InferenceConfig, LimitsConfig
from slimrl.environments.base import new_episode
from slimrl.errors import RolloutError, UserError
from slimrl.launch.parts import make_context, open_policy
from slimrl.monitor.console import RunConsole
from slimrl.rollout.answers import close_episode
from slimrl.rollout.episode import EpisodeSpec, RolloutContext, run_episode
from slimrl.rollout.games import self_play_specs
from slimrl.types import Environment, Message, Rollout, StopReason, Task, Taskset, Turn

T = TypeVar("T")
NO_LIMIT = 10**6  # the model's maximal number of turns: so high that only the game's rules limit it
DAY_S = 86_400.0  # seconds: time limit of the model's episode, which waits for the person's moves
LAST_WORDS_S = 5.0  # wait this long for the model's episode to finish by itself, so that it can report the reason


def seat_model(taskset: Taskset, config: PlayConfig) -> Callable[[Task], Environment]:
    """Load the model, and return a function that makes the person's episode of a task against this model. Raises
    UserError if the environment has only one role."""
    mine = own_place(taskset, config)
    policy = open_policy(config.model, RunConsole())
    limits = LimitsConfig(max_turns=NO_LIMIT, episode_timeout_s=DAY_S)
    context = make_context(policy.module, policy.chat, InferenceConfig(), limits, config.seq_len)
    sampling = config.sampling.params(config.sampling.temperature, config.seed)
    return lambda task: Opposed(self_play_specs(EpisodeSpec(taskset, task, sampling)), mine, context)


def own_place(taskset: Taskset, config: PlayConfig) -> int:
    """Return the index, from 0, of the person's role. The setting `args.role` counts roles from 1. Raises UserError if
    the setting is out of range, or if the environment has only one role."""
    roles = taskset.roles
    if len(roles) < 2:
        raise UserError(
            f"model.name = {config.model.name} cannot sit down: `{config.id}` has no other side with these `args`. For "
            "matching-game set `--args.partner self`; to watch a model play alone, use `slimrl eval`."
        )
    role = config.args.get("role", 1)
    if not isinstance(role, int) or not 1 <= role <= len(roles):
        raise UserError(f"args.role = {role!r} is none of 1 to {len(roles)} ({', '.join(roles)}).")
    return role - 1


class Opposed:
    """The person's episode of a game in which the model plays all other roles."""

    def __init__(self, seats: Sequence[EpisodeSpec], mine: int, context: RolloutContext) -> None:
        self._context = context
        self._others = [seat for place, seat in enumerate(seats) if place != mine]
        self._episode = new_episode(seats[mine].taskset, seats[mine].task)
        self._playing: list[asyncio.Task[Rollout]] = []

    async def start(self) -> list[Message]:
        # The model's episodes run as tasks of the same event loop, and wait for the person's moves.
        self._playing = [asyncio.create_task(run_episode(seat, self._context)) for seat in self._others]
        return await self._explain_errors(self._episode.start())

    async def step(self, reply: str) -> Turn:
        return await self._explain_errors(self._episode.step(reply))

    async def close(self) -> None:
        # Cancel the model's episodes first: one of them may wait for a move that will never be made.
        for playing in self._playing:
            playing.cancel()
        await asyncio.gather(*self._playing, return_exceptions=True)
        await close_episode(self._episode)

    async def _explain_errors(self, work: Coroutine[Any, Any, T]) -> T:
        """Await a call of the person's episode, and return its result. If the call raises RolloutError, add the reason
        why the model's episode ended."""
        try:
            return await work
        except RolloutError as error:
            # This error states only that the other player has left. The model's episode is about to finish, and has the
            # reason.
            if self._playing:
                await asyncio.wait(self._playing, timeout=LAST_WORDS_S)
            ended = [playing.result() for playing in self._playing if playing.done() and not playing.cancelled()]
            for rollout in ended:
                if rollout.failure:
                    why = f"failed: {rollout.failure}: {rollout.failure_detail}"
                elif rollout.stop_reason is StopReason.CONTEXT_FULL:
                    why = f"has read seq_len = {self._context.seq_len} tokens, and can read no further"
                else:
                    continue
                raise RolloutError(error.reason, f"{error.detail}; the model {why}") from error
            raise
