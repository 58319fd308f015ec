"""A rollout function with which SLIME trains on the matching game: `--custom-generate-function-path
slimrl.integrations.slime.generate`.

The agent loop is `rollout/episode.py`, as in `slimrl rl`. SGLang's router (`sglang.py`) samples the tokens. The rollout
is converted to SLIME's `Sample`. SLIME is not imported. See docs/slime.md.
"""

import logging
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from slimrl.config.rollout import LimitsConfig
from slimrl.errors import UserError
from slimrl.io.files import LineFile
from slimrl.io.run_dir import RunDir
from slimrl.models.chat.template import ChatFormat
from slimrl.monitor.rollouts import RolloutRecord, rollout_to_json
from slimrl.rollout.episode import EpisodeSpec, RolloutContext, run_episode
from slimrl.types import Rollout, SamplingParams, StopReason, Taskset
from slimrl_envs.sglang import ABORTED, Router
from slimrl_envs.slime.rows import Settings, group_of, task_of, taskset_of, tokenizer_of

MAX_FAILURES = 1024  # failed games in a row after which SLIME is stopped
NO_LIMIT = 1 << 30  # turns or tokens: the rules bound the turns, and another limit bounds the tokens
logger = logging.getLogger(__name__)

# The entries of SLIME's `args` that are needed, and how to set each.
NEEDED = {
    "hf_checkpoint": "set --hf-checkpoint to the directory of the model",
    "sglang_router_ip": "SLIME sets it when it starts its router; for one of your own, set --sglang-router-ip",
    "sglang_router_port": "SLIME sets it when it starts its router; for one of your own, set --sglang-router-port",
}


async def generate(args: Any, sample: Any, sampling_params: Mapping[str, Any], evaluation: bool = False) -> Any:
    """Fill the sample with the rollout of one game, and return it. SLIME calls this for every sample.

    Raises UserError, which stops SLIME's run, if every sample would fail. The reason may be a missing setting, a row
    without a game, an opening that fills the context, a router that does not answer, a partner whose budget is used up,
    or `MAX_FAILURES` failed games in a row.
    """
    settings = Settings.of(args)
    missing = [name for name in NEEDED if not getattr(settings, name)]
    if len(missing) == len(NEEDED):  # as in SLIME's contract tests
        failure = f"args have no {', '.join(NEEDED)}: there is nobody to play"
        fill(sample, Rollout("", (), (), (), (), 0.0, failure="no_router", failure_detail=failure), None)
        sample.metadata["evaluation"] = evaluation
        return sample
    if missing:
        raise UserError(f"slime: args have no {missing[0]}: {NEEDED[missing[0]]}.")
    if settings.use_rollout_routing_replay:
        raise UserError("slime: --use-rollout-routing-replay has no effect on slimrl's rollouts. Remove it.")
    return await rollouts_of(settings.model_dump_json()).generate(args, sample, sampling_params, evaluation)


@cache
def rollouts_of(settings: str) -> "MatchingRollouts":
    """Return the rollouts for these `Settings`, given as JSON. The result is cached in the process: SLIME calls a plain
    function for each sample, and all samples share the rollouts."""
    given = Settings.model_validate_json(settings)
    host = given.sglang_router_ip.strip("[]")
    router = Router(f"http://{f'[{host}]' if ':' in host else host}:{given.sglang_router_port}")
    return MatchingRollouts(taskset_of(given.environment), ChatFormat(tokenizer_of(given.hf_checkpoint)), router, given)


@dataclass(frozen=True, slots=True)
class MatchingRollouts:
    """The player of SLIME's games, with everything that all samples share: games, chat format, router and settings.

    To use other games, another partner or another source of tokens, make your own object in a module, and give SLIME
    the path of its `generate`. After `MAX_FAILURES` failed games in a row, `generate` raises UserError, because SLIME
    would otherwise play failing games for ever.

    Training games are recorded beside SLIME's checkpoints in the format of `slimrl rl`, so that
    `scripts/analyze_questions.py` can read them. The files are `rollouts/step_N.jsonl`, where N is SLIME's number of
    the group divided by the batch size. A resumed run continues these numbers. If a filter drops groups, N is larger
    than SLIME's own training step.
    """

    taskset: Taskset
    chat: ChatFormat
    router: Router
    settings: Settings = field(default_factory=Settings)
    _failures: list[str] = field(default_factory=list, init=False, repr=False, compare=False)  # since the last success

    async def generate(
        self, args: Any, sample: Any, sampling_params: Mapping[str, Any], evaluation: bool = False
    ) -> Any:
        """Fill the sample as the function `generate` does, and return it. Reads `settings` instead of `args`."""
        task = task_of(sample)
        max_new_tokens = sampling_params.get("max_new_tokens")  # of the whole response, with the environment's turns
        max_context_len = self.settings.rollout_max_context_len or NO_LIMIT
        if max_new_tokens is None and max_context_len == NO_LIMIT:
            raise UserError(
                "slime: nothing bounds the length of a game: sampling_params have no max_new_tokens, and args no "
                "rollout_max_context_len. Set --rollout-max-response-len or --rollout-max-context-len."
            )
        if "return_top_p_token_ids" in (sampling_params.get("custom_params") or {}):
            raise UserError("slime: slimrl's rollouts carry no sets of top-p tokens. Set --rollout-top-p 1.")
        limits = LimitsConfig(max_turns=NO_LIMIT, episode_timeout_s=self.settings.matching_timeout_s)
        spec = EpisodeSpec(self.taskset, task, SamplingParams(self.settings.matching_turn_tokens or NO_LIMIT))
        async with self.router.client(sampling_params, self.chat.end_of_turn, sample.session_id or "") as client:
            context = RolloutContext(client, self.chat, limits, max_context_len, 1, max_new_tokens)
            rollout = await run_episode(spec, context)
        if rollout.failure == "prompt_too_long":
            raise UserError(
                f"slime: the opening of the game of sample {task.id} leaves no room for a reply "
                f"({rollout.failure_detail}). Raise --rollout-max-context-len, or generate smaller games."
            )
        fill(sample, rollout, self.chat)
        sample.weight_versions = client.weight_versions
        sample.metadata["evaluation"] = evaluation
        if rollout.failure != ABORTED:
            if self.settings.save and not evaluation:
                self._record(group_of(sample), rollout)
            self._count(sample.metadata["failure"])
        return sample

    def _count(self, failure: str) -> None:
        """Count failures in a row. Raises UserError at `MAX_FAILURES`."""
        if failure:
            self._failures.append(failure)
        else:
            self._failures.clear()
        if len(self._failures) >= MAX_FAILURES:
            raise UserError(
                f"slime: {len(self._failures)} games in a row failed, through no fault of the policy, and none was "
                f"finished. The last: {failure}. SLIME would play others for ever: mend the cause, and start again "
                "from the last checkpoint."
            )

    def _record(self, group: int, rollout: Rollout) -> None:
        record = RolloutRecord(rollout, (), self.chat.full_text(list(rollout.token_ids_T)))
        path = RunDir(Path(self.settings.save)).rollouts_of(group // self.settings.rollout_batch_size)
        with closing(LineFile(path, keep=True, digests=True)) as file:
            file.append(rollout_to_json(record))


def fill(sample: Any, rollout: Rollout, chat: ChatFormat | None) -> None:
    """Write a rollout into SLIME's sample. The loss mask and the log-probabilities cover only the response.

    Truncated and failed games have the reward 0. A failed game is not trained on (`remove_sample`). SLIME starts an
    aborted sample again later. `chat` decodes the tokens; it may be None if the rollout has no tokens.
    """
    # The response starts with the first sampled token. Without such a token, the whole rollout is prompt. SLIME needs
    # at least one token in the response, so an end of turn is added.
    end = chat.end_of_turn if chat else 0
    tokens, mask, logprobs = [*rollout.token_ids_T], [*map(int, rollout.loss_mask_T)], [*rollout.logprobs_T]
    if 1 not in mask:
        tokens, mask, logprobs = [*(tokens or [end]), end], [*(mask or [0]), 0], [*(logprobs or [0.0]), 0.0]
    begin = mask.index(1) if 1 in mask else len(mask) - 1
    sample.tokens, sample.loss_mask, sample.rollout_log_probs = tokens, mask[begin:], logprobs[begin:]
    sample.response_length = len(sample.loss_mask)
    if chat:
        sample.prompt, sample.response = chat.full_text(tokens[:begin]), chat.full_text(tokens[begin:])
    sample.reward = 0.0 if rollout.failure else rollout.reward
    sample.remove_sample = bool(rollout.failure)
    sample.status = status_of(sample.Status, rollout)
    sample.weight_versions = []
    failure = f"{rollout.failure}: {rollout.failure_detail}" if rollout.failure else ""
    if failure and rollout.failure != ABORTED:
        logger.warning("sample %s is not trained on: %s", rollout.task_id, failure)
    metrics = dict(rollout.metrics)
    sample.metadata = dict(sample.metadata or {}) | {
        "turns": int(metrics.get("turns", 0)),
        "questions": int(metrics.get("questions", 0)),
        "score": sample.reward,
        "metrics": metrics,
        "failure": failure,
    }


def status_of(statuses: Any, rollout: Rollout) -> Any:
    """Return the value of SLIME's `Status` for a rollout."""
    if rollout.failure:
        return statuses.ABORTED if rollout.failure == ABORTED else statuses.FAILED
    return statuses.COMPLETED if rollout.stop_reason is StopReason.DONE else statuses.TRUNCATED
