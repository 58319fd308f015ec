"""Plays episodes of the tested environment with given replies, by the agent loop of training."""

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat

from slimrl.environments.scripts import play_script
from slimrl.errors import UserError
from slimrl.eval.baselines import ReplayClient, make_script_policy, turns_of
from slimrl.inference.client import Completion
from slimrl.models.chat.template import QUESTION, ChatFormat
from slimrl.rollout.episode import EpisodeLimits, EpisodeSpec, RolloutContext, read_opening, run_episode
from slimrl.rollout.places import run_groups
from slimrl.rollout.self_play import self_play_specs
from slimrl.types import Message, Rollout, SamplingParams, StopReason, Task, Taskset
from slimrl_tools.check.timing import Call, TimedTaskset

Replies = Sequence[list[int]]  # token ids, each reply with its end
SCRIPT_ERROR = "script_error"  # the failure of an episode whose script failed


@dataclass(frozen=True, slots=True)
class Played:
    """One episode. `what` names its player: a script, or a hostile reply."""

    what: str
    is_script: bool
    rollout: Rollout
    calls: tuple[Call, ...] = ()

    @property
    def replies(self) -> Replies:
        """Return the replies of the episode, to play it again."""
        return [list(self.rollout.token_ids_T[turn.start : turn.stop]) for turn in self.rollout.turns]

    @property
    def opening(self) -> Sequence[Message]:
        """Return the messages before the first reply; none if the episode did not start."""
        roles = [message["role"] for message in self.rollout.messages]
        # Earlier turns of the assistant may belong to the opening: the replies are the last ones.
        replies = [place for place, role in enumerate(roles) if role == "assistant"][-len(self.rollout.turns) :]
        return self.rollout.messages[: replies[0]] if self.rollout.turns else ()

    @property
    def course(self) -> tuple[object, ...]:
        """Return the outcome that another episode with the same replies must share. Rewards are texts, as nan !=
        nan."""
        rollout = self.rollout
        return rollout.failure, tuple(map(repr, rollout.turn_rewards)), rollout.stop_reason, rollout.messages


@dataclass(frozen=True, slots=True)
class Trial:
    """The environment as training plays it, the chat format and the limits."""

    taskset: Taskset
    chat: ChatFormat
    limits: EpisodeLimits
    seed: int

    async def play_script(self, name: str, task: Task) -> Played:
        """Play an episode by one of the taskset's scripts. If the script raises, the rollout is marked as failed."""
        timed = TimedTaskset(self.taskset)
        # The timed episode is played, but the script belongs to the taskset itself.
        policy = make_script_policy(
            lambda _timed, asked, seed: play_script(self.taskset, name, asked, seed), self._context()
        )
        try:
            rollout = await policy.play(self._spec(timed, task))
        except UserError as error:
            failed, detail = StopReason.FAILED, str(error)
            rollout = Rollout(
                task.id, (), (), (), (), math.nan, failure=SCRIPT_ERROR, failure_detail=detail, stop_reason=failed
            )
        return Played(name, True, rollout, tuple(timed.calls))

    async def replay(self, first: Played, task: Task, taskset: Taskset | None = None) -> Played:
        """Play an episode with the same replies as another one, on the same task or in another taskset."""
        return await self._play(first.what, first.is_script, taskset or self.taskset, task, first.replies)

    async def play_constant(self, what: str, task: Task, reply: str, first: Replies = ()) -> Played:
        """Play an episode in which the policy always gives the same reply, after the `first` replies. In self-play it
        plays all roles, and the first role's rollout counts."""
        (constant,) = turns_of(self.chat, [QUESTION, {"role": "assistant", "content": reply}])
        roles = self.taskset.roles
        replies = [*first, *repeat(constant, self.limits.max_turns * max(1, len(roles)))]
        if not roles:
            return await self._play(what, False, self.taskset, task, replies)
        seats = self_play_specs(self._spec(self.taskset, task))
        ((rollout, *_),) = await run_groups([seats], self._context(replies))
        return Played(what, False, rollout)

    async def play_together(self, *episodes: tuple[Task, Played]) -> list[Played]:
        """Play episodes that take turns, with the same replies as others."""
        return await asyncio.gather(*(self.replay(one, task) for task, one in episodes))

    async def _play(self, what: str, is_script: bool, taskset: Taskset, task: Task, replies: Replies) -> Played:
        timed = TimedTaskset(taskset)
        rollout = await run_episode(self._spec(timed, task), self._context(replies))
        return Played(what, is_script, rollout, tuple(timed.calls))

    async def read(self, task: Task) -> str:
        """Return the text that the policy reads first, without control tokens. Raises RolloutError if the episode
        cannot start."""
        return self.chat.text(await read_opening(self._spec(self.taskset, task), self._context()))

    def _context(self, replies: Replies = ()) -> RolloutContext:
        client = _PoliteClient(replies, self.chat.end_of_turn)
        return RolloutContext(client, self.chat, self.limits, num_concurrent=1)

    def _spec(self, taskset: Taskset, task: Task) -> EpisodeSpec:
        return EpisodeSpec(taskset, task, SamplingParams(self.limits.seq_len, seed=self.seed))


class _PoliteClient(ReplayClient):
    """A client that lets other episodes run before each of its replies."""

    async def sample(self, prompt: list[int], params: SamplingParams) -> Completion:
        await asyncio.sleep(0)
        return await super().sample(prompt, params)
