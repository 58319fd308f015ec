"""A rollout function with which SLIME trains on the matching game: `--custom-generate-function-path
slimrl.integrations.slime.generate`.

`rollout/episode.py` is the agent loop, as in `slimrl rl`. SGLang's router (`sglang.py`)
samples its tokens, and the rollout becomes SLIME's `Sample`. SLIME is not imported. See docs/slime.md.
"""

import json
import logging
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from slimrl.environments.base import new_episode
from slimrl.errors import RolloutError, UserError
from slimrl.inference.client import Client
from slimrl.models.chat.template import ChatFormat
from slimrl.rollout.answers import close_episode, start_episode
from slimrl.rollout.episode import EpisodeLimits, EpisodeSpec, RolloutContext, run_episode
from slimrl.rollout.failures import run_with_timeout
from slimrl.types import Environment, Message, Rollout, SamplingParams, Split, StopReason, Task, Taskset, Turn
from slimrl_envs.sglang import ABORTED, Router
from slimrl_envs.slime.game_log import GameLog
from slimrl_envs.slime.rows import (
    GAME,
    MAX_FAILURES,
    TIMEOUT_S,
    Sample,
    entries_of,
    environment_args,
    group_of,
    task_of,
    taskset_of,
    timeout_of,
)
from slimrl_envs.slime.tokenizer import tokenizer_of

NO_MAX_TURNS = 10**6  # the rules of the game bound the policy's turns
logger = logging.getLogger(__name__)

# The entries of SLIME's `args` that are needed, and how to set each.
NEEDED = {
    "hf_checkpoint": "set --hf-checkpoint to the directory of the model",
    "sglang_router_ip": "SLIME sets it when it starts its router; for one of your own, set --sglang-router-ip",
    "sglang_router_port": "SLIME sets it when it starts its router; for one of your own, set --sglang-router-port",
}


class SampledBy(Client, Protocol):
    """A client of one episode that keeps the versions of the weights that answered."""

    weight_versions: list[str]


class Sampler(Protocol):
    """A source of tokens, such as `sglang.py`'s `Router`."""

    def client(
        self, sampling_params: Mapping[str, Any], end_of_turn: int, session: str
    ) -> AbstractAsyncContextManager[SampledBy]:
        """A client for one episode."""


async def generate(args: Any, sample: Sample, sampling_params: Mapping[str, Any], evaluation: bool = False) -> Sample:
    """The sample, filled with the rollout of one game. SLIME calls this for every sample.

    Raises UserError, which ends SLIME's run, if every sample would fail: a missing setting, a row without a
    game, a context that the opening fills, a router that does not answer, a partner's budget that is used up, or many
    failures in a row.
    """
    settings = Settings.of(args)
    if settings is None:
        return not_played(sample, f"args have no {', '.join(NEEDED)}: there is nobody to play", evaluation)
    return await rollouts_of(settings).generate(args, sample, sampling_params, evaluation)


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings in SLIME's `args`. `--custom-config-path` sets the ones with the prefix `matching_`. A limit of 0
    is none. `environment` is JSON, so that equal settings have equal hashes."""

    hf_checkpoint: str
    router: Router
    environment: str
    max_context_len: int
    max_turn_tokens: int
    timeout_s: float
    max_failures: int
    log_dir: str
    groups_per_step: int

    @classmethod
    def of(cls, args: Any) -> "Settings | None":
        """The settings; None for `args` without a router, as in SLIME's contract tests. Raises UserError for invalid
        ones."""
        entries = entries_of(args)
        if not entries.keys() & NEEDED.keys():
            return None
        for name, advice in NEEDED.items():
            if not entries.get(name):
                raise UserError(f"slime: args.{name} is {entries.get(name)!r}: {advice}.")
        if entries.get("use_rollout_routing_replay"):
            raise UserError("slime: --use-rollout-routing-replay has no effect on slimrl's rollouts. Remove it.")
        host = str(entries["sglang_router_ip"]).strip("[]")
        log_dir = entries.get("matching_log_dir")
        return cls(
            hf_checkpoint=str(entries["hf_checkpoint"]),
            router=Router(f"http://{f'[{host}]' if ':' in host else host}:{entries['sglang_router_port']}"),
            environment=json.dumps(environment_args(args), sort_keys=True),
            max_context_len=int(entries.get("rollout_max_context_len") or 0),
            max_turn_tokens=int(entries.get("matching_turn_tokens") or 0),
            timeout_s=timeout_of(args),
            max_failures=int(entries.get("matching_max_failures") or MAX_FAILURES),
            # By default beside SLIME's checkpoints; empty for no record.
            log_dir=str((entries.get("save") if log_dir is None else log_dir) or ""),
            groups_per_step=int(entries.get("rollout_batch_size") or 1),
        )


@cache
def rollouts_of(settings: Settings) -> "MatchingRollouts":
    """The rollouts with these settings, made once for a process: SLIME calls a bare function for each sample."""
    chat = ChatFormat(tokenizer_of(settings.hf_checkpoint))
    log = GameLog(Path(settings.log_dir), settings.groups_per_step, chat.full_text) if settings.log_dir else None
    return MatchingRollouts(
        taskset_of(settings.environment),
        chat,
        settings.router,
        settings.max_context_len,
        settings.max_turn_tokens,
        settings.timeout_s,
        settings.max_failures,
        log,
    )


@dataclass(frozen=True, slots=True)
class MatchingRollouts:
    """The parts that all samples share: games, chat format, source of tokens and limits.

    For other games, another partner or another source of tokens, make one of your own, and give SLIME its `generate`
    under a name in your module. After `max_failures` failed games in a row it stops SLIME, which would play other games
    for ever. The games of training are added to the `log`.
    """

    taskset: Taskset
    chat: ChatFormat
    sampler: Sampler
    max_context_len: int = 0
    max_turn_tokens: int = 0
    timeout_s: float = TIMEOUT_S
    max_failures: int = MAX_FAILURES
    log: GameLog | None = None
    _failures: list[str] = field(default_factory=list, init=False, repr=False, compare=False)  # since the last success

    async def generate(
        self, args: Any, sample: Sample, sampling_params: Mapping[str, Any], evaluation: bool = False
    ) -> Sample:
        """The sample, filled as the function `generate` does it. `args` are not read again."""
        reset(sample)
        task = task_of(sample)
        self._check(sampling_params)
        try:
            environment, opening, num_prompt = await self._begin(task)
        except RolloutError as error:
            not_played(sample, f"{error.reason}: {error.detail}", evaluation, self.chat.end_of_turn)
            self._count(sample)
            return sample
        limits = self._limits(num_prompt, sampling_params)
        spec = EpisodeSpec(
            _BegunEpisode(environment, opening), task, SamplingParams(self.max_turn_tokens or limits.seq_len)
        )
        async with self.sampler.client(sampling_params, self.chat.end_of_turn, sample.session_id or "") as client:
            rollout = await run_episode(spec, RolloutContext(client, self.chat, limits, num_concurrent=1))
            sample.weight_versions = client.weight_versions
        fill(sample, rollout, num_prompt, self.chat)
        sample.metadata["evaluation"] = evaluation
        if self.log and not evaluation and sample.status != sample.Status.ABORTED:
            self.log.add(group_of(sample), rollout)
        self._count(sample)
        return sample

    def _count(self, sample: Sample) -> None:
        """Counts failures in a row. An aborted game does not count. Raises UserError at `max_failures`."""
        if sample.status == sample.Status.ABORTED:
            return
        if sample.status != sample.Status.FAILED:
            self._failures.clear()
            return
        self._failures.append(sample.metadata["failure"])
        if len(self._failures) >= self.max_failures:
            raise UserError(
                f"slime: {len(self._failures)} games in a row failed, through no fault of the policy, and none was "
                f"finished. The last: {self._failures[-1]}. SLIME would play others for ever: mend what that names, "
                "and start again, from the last checkpoint."
            )

    def _check(self, sampling_params: Mapping[str, Any]) -> None:
        """Raises UserError for sampling parameters with which no game can be played."""
        if sampling_params.get("max_new_tokens") is None and not self.max_context_len:
            raise UserError(
                "slime: nothing bounds the length of a game: sampling_params have no max_new_tokens, and args no "
                "rollout_max_context_len. Set --rollout-max-response-len or --rollout-max-context-len."
            )
        if "return_top_p_token_ids" in (sampling_params.get("custom_params") or {}):
            raise UserError("slime: slimrl's rollouts carry no sets of top-p tokens. Set --rollout-top-p 1.")

    def _limits(self, num_prompt: int, sampling_params: Mapping[str, Any]) -> EpisodeLimits:
        """The limits of an episode. `max_new_tokens` is for the whole response, with the environment's turns in it."""
        max_new_tokens, ends = sampling_params.get("max_new_tokens"), []
        if max_new_tokens is not None:
            ends.append(num_prompt + int(max_new_tokens))
        if self.max_context_len:
            ends.append(self.max_context_len)
        return EpisodeLimits(NO_MAX_TURNS, min(ends), self.timeout_s)

    async def _begin(self, task: Task) -> tuple[Environment, list[Message], int]:
        """A started game, its opening messages, and the number of their tokens. The limits of the episode depend on
        that number, so the game is started before the agent loop.

        Raises UserError for a row without a game, or an opening that fills the context.
        """
        try:
            environment = new_episode(self.taskset, task)
        except ValueError as error:
            raise UserError(f"slime: the {GAME} of sample {task.id} is no game: {error}.") from error
        try:
            opening = await run_with_timeout(start_episode(environment), "environment", self.timeout_s)
            num_prompt = len(self.chat.opening(opening))
            if 0 < self.max_context_len <= num_prompt:
                raise UserError(
                    f"slime: the opening of the game of sample {task.id} has {num_prompt} tokens, and "
                    f"--rollout-max-context-len is {self.max_context_len}: no reply fits. Raise it, or generate "
                    "smaller games."
                )
            return environment, opening, num_prompt
        except BaseException:
            await _BegunEpisode(environment, []).close()
            raise


@dataclass(frozen=True, slots=True)
class _BegunEpisode(Taskset):
    """A started episode, which gives the agent loop its opening again. It is also the taskset of that one episode."""

    episode: Environment
    opening: list[Message]

    def tasks(self, split: Split) -> Sequence[Task]:
        return []

    def environment(self, task: Task) -> Environment:
        return self

    async def start(self) -> list[Message]:
        return self.opening

    async def step(self, reply: str) -> Turn:
        return await self.episode.step(reply)

    async def close(self) -> None:
        await close_episode(self.episode)


def reset(sample: Sample) -> None:
    """Clears the results of an earlier try: a sample that was aborted starts anew, as does its partner."""
    sample.tokens, sample.response, sample.response_length = [], "", 0
    sample.loss_mask, sample.rollout_log_probs, sample.weight_versions = [], [], []
    sample.reward, sample.remove_sample, sample.status = None, False, sample.Status.PENDING
    sample.metadata = dict(sample.metadata or {})


def fill(sample: Sample, rollout: Rollout, num_prompt: int, chat: ChatFormat) -> None:
    """Writes a rollout into a sample as SLIME wants it: loss mask and log-probabilities of the response alone.

    A truncated game earned nothing. A failed game earned nothing either, and is not trained on (`remove_sample`).
    """
    # The response stands behind the opening. Without a sampled token all of the rollout is prompt.
    begin = num_prompt if rollout.num_sampled else len(rollout.token_ids_T)
    sample.tokens = list(rollout.token_ids_T) or [chat.end_of_turn]
    sample.loss_mask = [int(sampled) for sampled in rollout.loss_mask_T[begin:]]
    sample.rollout_log_probs = list(rollout.logprobs_T[begin:])
    sample.prompt = chat.full_text(sample.tokens[:begin])
    if not sample.loss_mask:  # nothing was sampled, and SLIME cannot take a response without tokens
        sample.tokens.append(chat.end_of_turn)
        sample.loss_mask, sample.rollout_log_probs = [0], [0.0]
    sample.response_length = len(sample.loss_mask)
    sample.response = chat.full_text(sample.tokens[-sample.response_length :])
    sample.reward = 0.0 if rollout.failure else rollout.reward
    sample.remove_sample = bool(rollout.failure)
    sample.status = status_of(sample, rollout)
    failure = f"{rollout.failure}: {rollout.failure_detail}" if rollout.failure else ""
    if failure and rollout.failure != ABORTED:
        logger.warning("sample %s is not trained on: %s", rollout.task_id, failure)
    sample.metadata |= {
        "turns": int(rollout.metrics["turns"]),
        "questions": int(rollout.metrics.get("questions", 0)),
        "score": sample.reward,
        "metrics": dict(rollout.metrics),
        "failure": failure,
    }


def status_of(sample: Sample, rollout: Rollout) -> Any:
    """The value of SLIME's `Status` for a rollout."""
    if rollout.failure:
        return sample.Status.ABORTED if rollout.failure == ABORTED else sample.Status.FAILED
    return sample.Status.COMPLETED if rollout.stop_reason is StopReason.DONE else sample.Status.TRUNCATED


def not_played(sample: Sample, failure: str, evaluation: bool, token: int = 0) -> Sample:
    """The sample of a game that did not start: two tokens that are not trained on."""
    reset(sample)
    logger.warning("a sample was not played: %s", failure)
    sample.tokens, sample.response_length, sample.loss_mask, sample.rollout_log_probs = [token, token], 1, [0], [0.0]
    sample.reward, sample.remove_sample, sample.status = 0.0, True, sample.Status.FAILED
    sample.metadata |= {"turns": 0, "questions": 0, "score": 0.0, "failure": failure, "evaluation": evaluation}
    return sample
