"""The agent loop, the only one: policy turn, environment turn, on token ids, until the episode ends.

What the policy sampled is kept as it was sampled; what the environment says is tokenised once and appended with mask 0.
Nothing is ever tokenised again. A bad episode is data, not a crash: its `Rollout` says what failed.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

from slimrl.environments.base import Environment, Taskset
from slimrl.errors import RolloutError
from slimrl.inference.client import Client, Completion
from slimrl.models.chat.template import ChatFormat
from slimrl.rollout.answers import answered, closed, opened
from slimrl.rollout.failures import boundary, bounded
from slimrl.types import Message, Metrics, Rollout, SamplingParams, Task, Turn


@dataclass(frozen=True, slots=True)
class EpisodeLimits:
    """What ends an episode from outside: turns, tokens of the whole conversation, and seconds in the environment.

    `timeout_s` bounds each call into the environment, the start and every step; an episode may take several times it.
    """

    max_turns: int
    seq_len: int
    timeout_s: float


@dataclass(frozen=True, slots=True)
class RolloutContext:
    """Everything that is the same for all episodes of a run.

    At most `num_concurrent` are played at once: as many as the engine has slots, so that an episode finds its slot
    again after the environment's turn.
    """

    client: Client
    chat: ChatFormat
    limits: EpisodeLimits
    num_concurrent: int


@dataclass(frozen=True, slots=True)
class EpisodeSpec:
    """One episode to play: a task of a taskset, and how to sample it; `role` is whom the policy plays, if it plays
    against itself."""

    taskset: Taskset
    task: Task
    sampling: SamplingParams
    role: str = ""


@dataclass(slots=True)
class _Transcript:
    """A rollout in the making; the lists are as in `types.Rollout`."""

    token_ids: list[int] = field(default_factory=list)
    mask: list[bool] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    turns: int = 0
    truncated: bool = False
    unfinished: bool = False
    context_full: bool = False

    def read(self, token_ids: Sequence[int], messages: Sequence[Message]) -> None:
        """Append what the policy is given to read."""
        self.token_ids += token_ids
        self.mask += [False] * len(token_ids)
        self.logprobs += [0.0] * len(token_ids)
        self.versions += [-1] * len(token_ids)
        self.messages += messages

    def wrote(self, completion: Completion, text: str) -> None:
        """Append what the policy sampled."""
        self.token_ids += completion.token_ids
        self.mask += [True] * len(completion.token_ids)
        self.logprobs += completion.logprobs
        self.versions += completion.versions
        self.messages.append({"role": "assistant", "content": text})
        self.turns += 1
        self.truncated = self.truncated or completion.finish_reason == "length"


async def run_episode(spec: EpisodeSpec, context: RolloutContext) -> Rollout:
    """Play one episode to its end. Never raises for what the environment or the policy does: see `Rollout.failure`.

    Turn n samples with seed `sampling.seed + n`. An episode that runs out of turns or context before the environment
    says `done` keeps what its turns earned, gets nothing for its end, and the metric `unfinished` (and `context_full`,
    where that was why); it ends with the policy's last token, as nobody reads on.
    """
    transcript = _Transcript()
    try:
        turn = await _play(spec, context, transcript)
    except RolloutError as error:
        return _rollout(spec, transcript, Turn(done=False), error)
    return _rollout(spec, transcript, turn, None)


async def read_opening(spec: EpisodeSpec, context: RolloutContext) -> list[int]:
    """What the policy would read first: the episode is begun and given up. Raises RolloutError if it does not begin."""
    async with _environment(spec, context) as environment:
        return context.chat.opening(await _opening(environment, context))


async def _play(spec: EpisodeSpec, context: RolloutContext, transcript: _Transcript) -> Turn:
    async with _environment(spec, context) as environment:
        return await _converse(environment, spec.sampling, context, transcript)


@asynccontextmanager
async def _environment(spec: EpisodeSpec, context: RolloutContext) -> AsyncIterator[Environment]:
    """A fresh environment on the attempt's task, closed however its use ends."""
    timeout_s = context.limits.timeout_s
    environment = await bounded(_make(spec), "environment", timeout_s)
    try:
        yield environment
    finally:
        await bounded(closed(environment), "environment", timeout_s)


async def _opening(environment: Environment, context: RolloutContext) -> list[Message]:
    return _fitted(await bounded(opened(environment), "environment", context.limits.timeout_s), context.chat)


async def _converse(
    environment: Environment, sampling: SamplingParams, context: RolloutContext, transcript: _Transcript
) -> Turn:
    limits, chat = context.limits, context.chat
    opening = await _opening(environment, context)
    transcript.read(chat.opening(opening), opening)
    if len(transcript.token_ids) >= limits.seq_len:
        raise RolloutError("prompt_too_long", f"{len(transcript.token_ids)} tokens, seq_len is {limits.seq_len}")
    while True:
        max_tokens = min(sampling.max_tokens, limits.seq_len - len(transcript.token_ids))
        params = replace(sampling, max_tokens=max_tokens, seed=sampling.seed + transcript.turns)
        completion = await context.client.sample(list(transcript.token_ids), params)
        reply = chat.text(list(completion.token_ids))
        transcript.wrote(completion, reply)
        turn = await bounded(answered(environment, reply), "environment", limits.timeout_s)
        transcript.rewards.append(turn.reward)
        if turn.done:
            return turn
        messages = _fitted(turn.messages, chat)
        if not messages:
            raise RolloutError("environment_error", "step() gave nothing to read, and the turn is not the last")
        if any(message["role"] == "assistant" for message in messages):
            raise RolloutError("environment_error", "step() gave a message of the assistant, who speaks for itself")
        token_ids = chat.continuation(messages, transcript.token_ids[-1])
        transcript.context_full = len(transcript.token_ids) + len(token_ids) >= limits.seq_len
        if transcript.context_full or transcript.turns == limits.max_turns:
            transcript.truncated = transcript.truncated or transcript.context_full
            transcript.unfinished = True
            return turn
        transcript.read(token_ids, messages)


async def _make(spec: EpisodeSpec) -> Environment:
    return spec.taskset.environment(spec.task)


def _fitted(messages: Sequence[Message], chat: ChatFormat) -> list[Message]:
    with boundary("environment"):  # which may have marked an excerpt that there is not
        return chat.cut_excerpts(messages)


def _rollout(spec: EpisodeSpec, transcript: _Transcript, turn: Turn, error: RolloutError | None) -> Rollout:
    return Rollout(
        task_id=spec.task.id,
        token_ids_T=tuple(transcript.token_ids),
        loss_mask_T=tuple(transcript.mask),
        logprobs_T=tuple(transcript.logprobs),
        versions_T=tuple(transcript.versions),
        reward=math.nan if error else sum(transcript.rewards),
        turn_rewards=tuple(transcript.rewards),
        messages=tuple(transcript.messages),
        metrics={
            **turn.metrics,
            "turns": float(transcript.turns),
            "truncated": float(transcript.truncated),
            "unfinished": float(transcript.unfinished),
            "context_full": float(transcript.context_full),
        },
        failure=error.reason if error else "",
        failure_detail=error.detail if error else "",
        role=spec.role,
    )


def mean_metrics(rollouts: Sequence[Rollout]) -> Metrics:
    """The mean of each metric of the rollouts, over those that report it, in the order of the names."""
    values: dict[str, list[float]] = {}
    for rollout in rollouts:
        for name, value in rollout.metrics.items():
            values.setdefault(name, []).append(value)
    return {name: sum(numbers) / len(numbers) for name, numbers in sorted(values.items())}


async def run_groups(tables: Sequence[Sequence[EpisodeSpec]], context: RolloutContext) -> list[list[Rollout]]:
    """Play all attempts, started in order; the rollouts come in that order too. Those of a table may wait for one
    another (see `rollout/self_play.py`) and start together; a table of one is an ordinary episode."""
    places = asyncio.Semaphore(max(context.num_concurrent, *map(len, tables), 1))
    sitting_down = asyncio.Lock()  # of two tables that sit down at once each might wait for the other's last place

    async def play(spec: EpisodeSpec) -> Rollout:
        try:
            return await run_episode(spec, context)
        finally:
            places.release()

    async def play_all(specs: Sequence[EpisodeSpec]) -> list[Rollout]:
        async with sitting_down:
            for _ in specs:
                await places.acquire()
        return await asyncio.gather(*map(play, specs))

    return await asyncio.gather(*map(play_all, tables))
