"""Plays episodes of the tested environment with given replies, in the agent loop of training."""

import asyncio
import math
import time
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from itertools import pairwise, repeat
from typing import Literal, TypeVar

from slimrl.config.rollout import LimitsConfig
from slimrl.environments.scripts import play_script
from slimrl.errors import UserError
from slimrl.eval.baselines import ReplayClient, make_script_policy, turns_of
from slimrl.inference.client import Completion
from slimrl.models.chat.template import QUESTION, ChatFormat
from slimrl.rollout.episode import EpisodeSpec, RolloutContext, read_opening, run_episode
from slimrl.rollout.games import run_groups, self_play_specs
from slimrl.types import Message, Rollout, SamplingParams, StopReason, Task, Taskset

T = TypeVar("T")
Replies = Sequence[list[int]]  # the token ids of each reply, including its end-of-turn token
# The player of an episode: a script, or a policy with one useless reply (no word, nonsense, a copy of the prompt, or a
# wrong call of a tool).
Kind = Literal["script", "nothing", "garbage", "copy", "call"]
SEQ_LEN = 1 << 23  # tokens, or bytes without a model: high enough that no tested episode reaches it
BEAT_S = 0.001  # seconds between two measurements whether the event loop is blocked
SCRIPT_ERROR = "script_error"  # the failure of an episode whose script failed


@dataclass(frozen=True, slots=True)
class Played:
    """An episode that was played on a task. `what` is the name of the script, or of the useless reply. `hold_s` is the
    longest time in seconds for which a replay blocked the event loop."""

    kind: Kind
    what: str
    task: Task
    rollout: Rollout
    hold_s: float = 0.0

    @property
    def replies(self) -> Replies:
        """Return the token ids of the episode's replies, for a replay."""
        return [list(self.rollout.token_ids_T[turn.start : turn.stop]) for turn in self.rollout.turns]

    @property
    def opening(self) -> Sequence[Message]:
        """Return the messages before the first reply; none if the episode did not start."""
        roles = [message["role"] for message in self.rollout.messages]
        # The opening may contain messages of the assistant, too. Only the last messages, one per turn, are replies.
        replies = [place for place, role in enumerate(roles) if role == "assistant"][-len(self.rollout.turns) :]
        return self.rollout.messages[: replies[0]] if self.rollout.turns else ()

    @property
    def course(self) -> tuple[object, ...]:
        """Return the data that must be equal in two episodes with the same replies. Rewards are converted to texts,
        because nan is not equal to nan."""
        rollout = self.rollout
        return rollout.failure, tuple(map(repr, rollout.turn_rewards)), rollout.stop_reason, rollout.messages

    @property
    def is_finished(self) -> bool:
        """Return True if the episode finished by itself."""
        return not self.rollout.failure and self.rollout.stop_reason is StopReason.DONE

    @property
    def is_breakdown(self) -> bool:
        """Return True if the episode hung or crashed its process."""
        return self.rollout.failure in ("timeout", "environment_died")

    def __str__(self) -> str:
        player = "script" if self.kind == "script" else "reply"
        return f"the {player} `{self.what}` on task `{self.task.id:.60}`"


@dataclass(frozen=True, slots=True)
class Trial:
    """A player of episodes for a check, with the tested environment, and the chat format, limits and seed of the
    episodes."""

    taskset: Taskset
    chat: ChatFormat
    limits: LimitsConfig
    seed: int

    async def play_script(self, name: str, task: Task) -> Played:
        """Play an episode with the taskset's script `name`. If the script raises an error, the rollout is marked as
        failed."""
        policy = make_script_policy(
            lambda taskset, asked, seed: play_script(taskset, name, asked, seed), self._context()
        )
        try:
            rollout = await policy.play(self._spec(self.taskset, task))
        except UserError as error:
            failed, detail = StopReason.FAILED, str(error)
            rollout = Rollout(
                task.id, (), (), (), (), math.nan, failure=SCRIPT_ERROR, failure_detail=detail, stop_reason=failed
            )
        return Played("script", name, task, rollout)

    async def replay(self, first: Played, taskset: Taskset | None = None, task: Task | None = None) -> Played:
        """Play an episode with the replies of `first`. The default is the trial's taskset, and the task of `first`."""
        spec = self._spec(taskset or self.taskset, task or first.task)
        rollout, hold_s = await _with_longest_hold(run_episode(spec, self._context(first.replies)))
        return Played(first.kind, first.what, spec.task, rollout, hold_s)

    async def play_constant(self, kind: Kind, what: str, task: Task, reply: str, first: Replies = ()) -> Played:
        """Play an episode in which the policy gives the replies `first`, and then always `reply`. `kind` and `what`
        describe the reply. In self-play, the policy plays all roles, and the first role's rollout is returned."""
        (constant,) = turns_of(self.chat, [QUESTION, {"role": "assistant", "content": reply}])
        seats = self_play_specs(self._spec(self.taskset, task))
        replies = [*first, *repeat(constant, self.limits.max_turns * len(seats))]
        ((rollout, *_),) = await run_groups([seats], self._context(replies))
        return Played(kind, what, task, rollout)

    async def read(self, task: Task) -> str:
        """Return the first prompt of the policy as text, without control tokens. Raises RolloutError if the episode
        cannot start."""
        return self.chat.text(await read_opening(self._spec(self.taskset, task), self._context()))

    def _context(self, replies: Replies = ()) -> RolloutContext:
        client = _PoliteClient(replies, self.chat.end_of_turn)
        return RolloutContext(client, self.chat, self.limits, SEQ_LEN, num_concurrent=1)

    def _spec(self, taskset: Taskset, task: Task) -> EpisodeSpec:
        return EpisodeSpec(taskset, task, SamplingParams(SEQ_LEN, seed=self.seed))


class _PoliteClient(ReplayClient):
    """A client that lets other episodes run before each of its replies."""

    async def sample(self, prompt: list[int], params: SamplingParams) -> Completion:
        await asyncio.sleep(0)
        return await super().sample(prompt, params)


async def _with_longest_hold(work: Awaitable[T]) -> tuple[T, float]:
    """Await `work`. Return its result, and the longest time in seconds for which it blocked other tasks of the event
    loop."""
    beats = [time.perf_counter()]

    async def beat() -> None:
        while True:
            await asyncio.sleep(BEAT_S)
            beats.append(time.perf_counter())

    beating = asyncio.create_task(beat())
    try:
        result = await work
    finally:
        beating.cancel()
    beats.append(time.perf_counter())
    return result, max(0.0, max(later - earlier for earlier, later in pairwise(beats)) - BEAT_S)
