"""Policies that are scripts: an environment's expert as the upper bound, random play as the lower bound, and others.

A script writes a whole conversation. A client with the interface of a model then replies with the tokens of the
conversation's assistant turns. So a script has the same limits, environment and judge as a model.
"""

import math
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from itertools import groupby

from slimrl.environments.scripts import play_script
from slimrl.errors import RolloutError
from slimrl.eval.evaluate import EvalPolicy
from slimrl.inference.client import Completion, FinishReason
from slimrl.io.loop_thread import call_in_daemon
from slimrl.models.chat.template import ChatFormat
from slimrl.rollout.episode import EpisodeSpec, RolloutContext, run_episode
from slimrl.rollout.failures import run_with_timeout
from slimrl.types import Message, Rollout, SamplingParams, StopReason, Task, Taskset

# A function that returns a conversation on a task. The integer argument is a seed.
Script = Callable[[Taskset, Task, int], list[Message]]
NO_VERSION = 0  # weight version of all tokens, because a script has no weights


class ReplayClient:
    """A client that replies with the given turns in order, regardless of the prompt, and then with empty replies."""

    version = NO_VERSION

    def __init__(self, turns: Iterable[list[int]], end_of_turn: int) -> None:
        self._turns = deque(turns)
        self._end_of_turn = end_of_turn

    async def sample(self, prompt: list[int], params: SamplingParams) -> Completion:
        turn = self._turns.popleft() if self._turns else [self._end_of_turn]
        said = tuple(turn[: params.max_tokens])
        finish: FinishReason = "stop" if len(said) == len(turn) else "length"
        return Completion(said, (0.0,) * len(said), (NO_VERSION,) * len(said), finish)


def turns_of(chat: ChatFormat, conversation: list[Message]) -> list[list[int]]:
    """Return the assistant's turns as token ids, each with its end-of-turn token."""
    # Adjacent tokens with the same mask are one turn, because tokens of the template separate any two replies.
    pairs = zip(*chat.encode_conversation(conversation), strict=True)
    return [[token for token, _ in run] for is_reply, run in groupby(pairs, key=lambda pair: pair[1]) if is_reply]


def make_script_policy(script: Script, context: RolloutContext) -> EvalPolicy:
    """Return a policy that plays a script. It uses the chat format and the limits of `context`, but not the client of
    `context`. If the script takes longer than `episode_timeout_s`, the rollout fails."""

    async def play(spec: EpisodeSpec) -> Rollout:
        try:
            # A script may run its own event loop, and may never return.
            play_it = partial(script, spec.taskset, spec.task, spec.sampling.seed)
            told = call_in_daemon(play_it, f"script {spec.task.id}")
            conversation = await run_with_timeout(told, "script", context.limits.episode_timeout_s)
        except RolloutError as error:
            task_id, reason, detail = spec.task.id, error.reason, error.detail
            failed = StopReason.FAILED
            return Rollout(task_id, (), (), (), (), math.nan, failure=reason, failure_detail=detail, stop_reason=failed)
        client = ReplayClient(turns_of(context.chat, conversation), context.chat.end_of_turn)
        return await run_episode(spec, replace(context, client=client))

    return EvalPolicy(play, context.num_concurrent, context.chat.full_text)


OWN = "script:"  # prefix of a script's name other than `expert` and `random`


def script_of(name: str) -> Script | None:
    """Return the script of a baseline; None if the baseline is a model."""
    if not name.startswith(OWN) and name not in ("expert", "random"):
        return None
    return script_named(name.removeprefix(OWN))


def script_named(name: str) -> Script:
    """Return the environment's script `name`, as a function."""
    return lambda taskset, task, seed: play_script(taskset, name, task, seed)
