"""Implements the agent loop on token ids: policy and environment take turns until the episode is over.

The policy's tokens are kept exactly as sampled. Each message of the environment is tokenised once and appended with
mask 0. Nothing is tokenised a second time. This is an episode of two turns, with the calls that this module makes:

    environment.start()   "q"               chat.opening       5 6 7      mask 0 0 0
    client.sample         "A <end>"                            8 9        mask 1 1
    environment.step("A") "wrong"           chat.continuation  5 10 7     mask 0 0 0
    client.sample         "B <end>"                            11 9       mask 1 1
    environment.step("B") done, reward 1

A failed episode does not raise an exception: its `Rollout` carries the reason, and the run continues.
"""

import math
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace

from slimrl.config.rollout import LimitsConfig
from slimrl.environments.base import new_episode
from slimrl.environments.plain import check_reward
from slimrl.errors import RolloutError, UserError
from slimrl.inference.client import Client, Completion
from slimrl.models.chat.template import ChatFormat
from slimrl.rollout.answers import close_episode, cut_episode, start_episode, step_episode
from slimrl.rollout.failures import convert_errors, run_with_timeout
from slimrl.types import Environment, Message, Metrics, Rollout, SamplingParams, StopReason, Task, Taskset, Turn

FORM = "tool_form_"  # prefix of metrics: the share of an episode's replies with calls in each form


@dataclass(frozen=True, slots=True)
class RolloutContext:
    """The objects that all episodes of a run share: the client that samples tokens, the chat format, and the limits.

    `limits.episode_timeout_s` limits each call into the environment separately, so a whole episode may take several
    times as long. A conversation has at most `seq_len` tokens. At most `response_len` tokens follow the opening; the
    environment's tokens count, too. At most `num_concurrent` episodes run at once. The engine also has `num_concurrent`
    slots, so each episode keeps its slot and its KV cache during the environment's turn.
    """

    client: Client
    chat: ChatFormat
    limits: LimitsConfig
    seq_len: int
    num_concurrent: int
    response_len: int | None = None


@dataclass(frozen=True, slots=True)
class EpisodeSpec:
    """One episode to play: the task and the sampling parameters. In self-play `role` is the role in the game."""

    taskset: Taskset
    task: Task
    sampling: SamplingParams
    role: str = ""


@dataclass(slots=True)
class _Transcript:
    """The episode so far. The first four lists have one element per token; see `types.Rollout`."""

    token_ids: list[int] = field(default_factory=list)
    mask: list[bool] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    env_s: list[float] = field(default_factory=list)
    forms: Counter[str] = field(default_factory=Counter)
    turns: int = 0
    has_cut_reply: bool = False
    stop_reason: StopReason = StopReason.DONE

    def add_prompt(self, token_ids: Sequence[int], messages: Sequence[Message]) -> None:
        """Append tokens that the policy only reads."""
        self.token_ids += token_ids
        self.mask += [False] * len(token_ids)
        self.logprobs += [0.0] * len(token_ids)
        self.versions += [-1] * len(token_ids)
        self.messages += messages

    def add_reply(self, completion: Completion, text: str, form: str) -> None:
        """Append tokens that the policy sampled. `form` is the form of the calls in the text, or empty."""
        self.token_ids += completion.token_ids
        self.mask += [True] * len(completion.token_ids)
        self.logprobs += completion.logprobs
        self.versions += completion.versions
        self.messages.append({"role": "assistant", "content": text})
        self.turns += 1
        self.forms[form] += bool(form)
        self.has_cut_reply = self.has_cut_reply or completion.finish_reason == "length"

    def metrics(self) -> Metrics:
        """Return the metrics that the agent loop measures. The environment's metrics are not included."""
        is_full = self.stop_reason is StopReason.CONTEXT_FULL
        return {
            "turns": float(self.turns),
            "truncated": float(self.has_cut_reply or is_full),
            "unfinished": float(is_full or self.stop_reason is StopReason.MAX_TURNS),
            "context_full": float(is_full),
            **{f"{FORM}{form}": number / self.forms.total() for form, number in self.forms.items() if number},
        }


async def run_episode(spec: EpisodeSpec, context: RolloutContext) -> Rollout:
    """Play one episode. Errors of the environment or the policy are not raised: they become the rollout's `failure`.

    Turn n samples with seed `sampling.seed + n`. An episode that reaches the limit of turns or tokens keeps its rewards
    so far, and gets the reward of its `cut_off`, if it has this method. Its rollout ends with the policy's last reply:
    the environment's next messages are dropped, because the policy does not read them.
    """
    transcript = _Transcript()
    try:
        async with _environment(spec, context) as environment:
            turn = await _converse(environment, spec.sampling, context, transcript)
    except RolloutError as error:
        return _rollout(spec, transcript, Turn(done=False), error)
    return _rollout(spec, transcript, turn, None)


async def read_opening(spec: EpisodeSpec, context: RolloutContext) -> list[int]:
    """Return the policy's first prompt in an episode as token ids. The episode is started and closed again. Raise
    RolloutError if the environment cannot start."""
    async with _environment(spec, context) as environment:
        return _opening_tokens(await _opening(environment, context), context)


@asynccontextmanager
async def _environment(spec: EpisodeSpec, context: RolloutContext) -> AsyncIterator[Environment]:
    """Context manager: create a new environment for the spec's task, and always close it, also after an error."""
    timeout_s = context.limits.episode_timeout_s
    environment = await run_with_timeout(_make(spec), "environment", timeout_s)
    try:
        yield environment
    finally:
        await run_with_timeout(close_episode(environment), "environment", timeout_s)


async def _make(spec: EpisodeSpec) -> Environment:
    return new_episode(spec.taskset, spec.task)


async def _opening(environment: Environment, context: RolloutContext) -> list[Message]:
    messages = await run_with_timeout(start_episode(environment), "environment", context.limits.episode_timeout_s)
    return _fit_excerpts(messages, context.chat)


def _opening_tokens(messages: Sequence[Message], context: RolloutContext) -> list[int]:
    if not context.chat.can_fit(messages, context.seq_len):
        size = sum(len(message["content"]) for message in messages)
        raise RolloutError("prompt_too_long", f"{size} characters are more than seq_len = {context.seq_len} tokens")
    with _read_by_template():
        return context.chat.opening(messages)


@contextmanager
def _read_by_template() -> Iterator[None]:
    """Context manager: convert a UserError of the chat template to a failure of the episode."""
    try:
        with convert_errors("environment"):
            yield
    except UserError as error:
        raise RolloutError("environment_error", str(error)) from error


async def _converse(
    environment: Environment, sampling: SamplingParams, context: RolloutContext, transcript: _Transcript
) -> Turn:
    """Alternate policy and environment turns, and return the environment's last turn.

    Each turn is added to `transcript` immediately. So if a turn fails, the caller still has the earlier turns.
    """
    limits, chat = context.limits, context.chat
    began = time.perf_counter()
    opening = await _opening(environment, context)
    transcript.env_s.append(time.perf_counter() - began)
    transcript.add_prompt(_opening_tokens(opening, context), opening)
    if len(transcript.token_ids) >= context.seq_len:
        raise RolloutError("prompt_too_long", f"{len(transcript.token_ids)} tokens, seq_len is {context.seq_len}")
    seq_len = min(context.seq_len, len(transcript.token_ids) + (context.response_len or context.seq_len))
    while True:
        # The policy's turn. Each turn has a different seed: with equal seeds, equal contexts would get equal replies.
        max_tokens = min(sampling.max_tokens, seq_len - len(transcript.token_ids))
        params = replace(sampling, max_tokens=max_tokens, seed=sampling.seed + transcript.turns)
        completion = await context.client.sample(list(transcript.token_ids), params)
        reply = chat.text(list(completion.token_ids), transcript.token_ids)
        rewritten, form = chat.rewrite_calls(reply, opening)
        transcript.add_reply(completion, reply, form)

        # The environment's turn.
        began = time.perf_counter()
        turn = await run_with_timeout(step_episode(environment, rewritten), "environment", limits.episode_timeout_s)
        transcript.env_s.append(time.perf_counter() - began)
        transcript.rewards.append(turn.reward)
        check_reward(sum(transcript.rewards))
        if turn.done:
            return turn
        messages = _fit_excerpts(turn.messages, chat)
        if not messages:
            raise RolloutError("environment_error", "step() gave no messages to read, though the episode is not done")
        if any(message["role"] == "assistant" for message in messages):
            raise RolloutError("environment_error", "step() gave an assistant message; only the policy writes these")

        # Only the new messages become tokens. The last sampled token shows if the reply still lacks its end token.
        fits = chat.can_fit(messages, seq_len)
        with _read_by_template():
            whole = [*transcript.messages, *messages]
            token_ids = chat.continuation(whole, transcript.token_ids[-1]) if fits else []
        if not fits or len(transcript.token_ids) + len(token_ids) >= seq_len:
            transcript.stop_reason = StopReason.CONTEXT_FULL
        elif transcript.turns == limits.max_turns:
            transcript.stop_reason = StopReason.MAX_TURNS
        if transcript.stop_reason is not StopReason.DONE:
            last = await run_with_timeout(cut_episode(environment), "environment", limits.episode_timeout_s)
            transcript.rewards[-1] += last.reward if last else 0.0
            check_reward(sum(transcript.rewards))
            return last or turn
        transcript.add_prompt(token_ids, messages)


def _fit_excerpts(messages: Sequence[Message], chat: ChatFormat) -> list[Message]:
    """Return the messages. A message may mark a part of its text as an excerpt; this part is cut to `max_tokens`."""
    with convert_errors("environment"):  # fails if an excerpt has characters that its message does not have
        return chat.cut_excerpts(messages)


def _rollout(spec: EpisodeSpec, transcript: _Transcript, turn: Turn, error: RolloutError | None) -> Rollout:
    """Convert a transcript to a rollout. The metrics of `turn`, the environment's last turn, are added. With an `error`
    the rollout is marked as failed, and its reward is nan."""
    return Rollout(
        task_id=spec.task.id,
        token_ids_T=tuple(transcript.token_ids),
        loss_mask_T=tuple(transcript.mask),
        logprobs_T=tuple(transcript.logprobs),
        versions_T=tuple(transcript.versions),
        reward=math.nan if error else sum(transcript.rewards),
        turn_rewards=tuple(transcript.rewards),
        messages=tuple(transcript.messages),
        metrics={**turn.metrics, **transcript.metrics()},
        failure=error.reason if error else "",
        failure_detail=error.detail if error else "",
        role=spec.role,
        stop_reason=StopReason.FAILED if error else transcript.stop_reason,
        env_s=tuple(transcript.env_s),
        task_data=spec.task.data,
    )


def all_metrics(rollouts: Sequence[Rollout]) -> list[Metrics]:
    """Return the metrics of each rollout. A rollout with calls has a share of 0 for the forms of other rollouts."""
    forms = {name for rollout in rollouts for name in rollout.metrics if name.startswith(FORM)}
    return [
        {**(dict.fromkeys(forms, 0.0) if forms & rollout.metrics.keys() else {}), **rollout.metrics}
        for rollout in rollouts
    ]


def mean_metrics(rollouts: Sequence[Rollout]) -> Metrics:
    """Return the mean of each metric over the rollouts that report it. The metrics are sorted by name."""
    values: dict[str, list[float]] = {}
    for metrics in all_metrics(rollouts):
        for name, value in metrics.items():
            values.setdefault(name, []).append(value)
    return {name: sum(numbers) / len(numbers) for name, numbers in sorted(values.items())}
