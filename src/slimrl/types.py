"""The data types that all parts of slimrl share, and the interface of an environment. Standard library only.

Index suffixes, here and everywhere: _T token, _B sequence, _G rollout in a group, _K turn of a rollout, _N trained
token, _V vocabulary, _D model dimension, _H heads.
"""

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal, NotRequired, Protocol, TypedDict, get_args

Split = Literal["train", "validation", "test"]
Role = Literal["system", "user", "assistant", "tool"]
ROLES: tuple[Role, ...] = get_args(Role)
Metrics = dict[str, float]


class Excerpt(TypedDict):
    """A passage of a message's content, from character `begin` to `end`, shortened to `max_tokens` tokens."""

    begin: int
    end: int
    max_tokens: int


class Message(TypedDict):
    """One chat message in the form that chat templates take, with three optional extensions.

    `tools` belongs to the first message of a conversation and lists the functions that the policy may call, as JSON
    schemas. `excerpt` marks a passage that may be long. The chat format shortens it before the policy reads the
    message, because only the chat format knows the policy's tokens. A `weight` of 0 excludes a reply from the loss of
    supervised training. `reasoning_content` and `tool_calls` are set only if the chat template writes them beside the
    text of a reply. The arguments of `tool_calls` are objects.
    """

    role: Role
    content: str
    name: NotRequired[str]
    tools: NotRequired[list[dict[str, Any]]]
    excerpt: NotRequired[Excerpt]
    weight: NotRequired[int]
    reasoning_content: NotRequired[str]
    tool_calls: NotRequired[list[dict[str, Any]]]
    tool_call_id: NotRequired[str]


def is_message(value: Any) -> bool:
    """Return True if a value is a dict with texts as role and content. The role may be one that is not in `ROLES`."""
    return isinstance(value, dict) and all(isinstance(value.get(key), str) for key in ("role", "content"))


@dataclass(frozen=True, slots=True)
class Task:
    """One problem to solve: plain data that JSON can hold. `id` is unique within its environment and split."""

    id: str
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Turn:
    """The environment's answer to one reply of the policy.

    An episode of two turns, in which the first reply is wrong and the second one right:

        Turn(done=False, messages=[{"role": "user", "content": "wrong, try again"}])
        Turn(done=True, reward=1.0, metrics={"tries": 2.0})

    While `done` is false, the policy reads `messages` next. `reward` is the reward of the last reply, and the episode's
    reward is the sum over its turns: an environment that judges whole episodes rewards only the last turn. The
    `metrics` of the last turn are averaged over rollouts and logged as `env/<name>`.
    """

    done: bool
    messages: Sequence[Message] = ()
    reward: float = 0.0
    metrics: Mapping[str, float] = field(default_factory=dict)


Script = Callable[[Task, int], Sequence[Message]]
"""A function that maps a task and a seed to a whole conversation, with the assistant's turns."""


class Environment(Protocol):
    """One episode of an RL environment, as chat messages. It is played once and never shared.

    Two turns of an episode that asks again after a wrong answer:

        await episode.start()      [{"role": "user", "content": "What is 2 + 2?"}]
        await episode.step("5")    Turn(done=False, messages=[{"role": "user", "content": "No. Try again."}])
        await episode.step("4")    Turn(done=True, reward=1.0)
    """

    async def start(self) -> list[Message]:
        """Return the opening messages; the policy answers the last one."""

    async def step(self, reply: str) -> Turn:
        """Return the environment's answer to the policy's reply."""


class Taskset:
    """The tasks of an environment. Its constructor takes the `args` of the config section as keywords.

    A user's class needs `tasks` and `environment`; every other method has a default. The user's class may inherit from
    this class, but need not: `load_taskset` adds the defaults (`environments/base.py`). `scripts` and
    `roles` may be properties or plain attributes.
    """

    def tasks(self, split: Split) -> Sequence[Task]:
        """Return the tasks of a split: the same tasks in the same order at every call.

        No task is in two splits. A taskset without a `validation` split returns no tasks for it.
        """
        raise NotImplementedError

    def environment(self, task: Task) -> Environment:
        """Return a new episode on the task."""
        raise NotImplementedError

    @cached_property
    def scripts(self) -> Mapping[str, Script]:
        """Scripts by name, such as `{"expert": self.solve}`, which play the tasks without a model.

        Three names have a meaning. `expert` is right, and the supervised warm-up learns from it. `random` acts at
        random, and evaluation takes it as the lower bound. `constant` gives one answer to every task, and a run's
        closing table shows its reward. Evaluation plays any other script as `script:NAME`.
        """
        return {}

    def failure_kind(self, rollout: "Rollout") -> str | None:
        """Return the kind of failure of a finished episode without the full reward, in a few words without details.

        Return an empty text if the evaluation's own terms suffice (out of turns, wrong); None if nothing failed.
        """
        return ""

    @cached_property
    def roles(self) -> Sequence[str]:
        """The names of the roles of a game that the policy plays against itself (`rollout/games.py`). There are no
        roles if the policy plays alone, in the episode that `environment` returns."""
        return ()

    def self_play(self, task: Task) -> Sequence[Environment]:
        """Return new episodes on the task, one per role in the order of `roles`. The episodes wait for one another."""
        raise NotImplementedError

    def prepare(self) -> None:
        """Do slow work before the first task, such as building an index. This method is called once, before a model is
        loaded. The constructor must be quick, so that the `args` are checked at once."""

    def offload(self) -> None:
        """Free memory on the policy's device, such as the memory of a judge model, until the next episode. This method
        is called between steps, when no episode is being played."""

    def begin_step(self, seed: str | None) -> None:
        """Seed random generators that no checkpoint holds, such as a generator of another process, so that a resumed
        run draws the same numbers as an uninterrupted run. This method is called before the episodes of a step or of an
        evaluation. If `seed` is None, episodes are still in flight, and the generators must not change."""

    @cached_property
    def class_name(self) -> str:
        """The name of the environment's class, for messages."""
        return type(self).__name__

    @cached_property
    def purpose(self) -> str:
        """The first paragraph of the docstring of the class's module: a description of the environment."""
        return module_purpose(type(self))


def module_purpose(kind: type) -> str:
    """Return the first paragraph of the docstring of a class's module, as one line; empty without a docstring."""
    module = inspect.getmodule(kind)
    return (inspect.getdoc(module) or "").partition("\n\n")[0].replace("\n", " ") if module else ""


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """The settings for sampling tokens. `temperature` 0 is greedy; `top_k` 0, `top_p` 1 and `min_p` 0 truncate nothing.

    The sampler logs log-probabilities of the distribution that it samples from, after temperature and truncation. For
    greedy sampling it logs the softmax at temperature 1. With the same `seed` and the same logits, a request gets the
    same tokens, independent of other requests.
    """

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    stop: tuple[str, ...] = ()
    seed: int = 0

    def __post_init__(self) -> None:
        assert self.max_tokens >= 1 and self.temperature >= 0.0 and self.top_k >= 0, self
        assert 0.0 < self.top_p <= 1.0 and 0.0 <= self.min_p < 1.0, self


class StopReason(StrEnum):
    """The reason for the end of an episode."""

    DONE = "done"  # the environment has finished it
    MAX_TURNS = "max_turns"  # the policy had no turn left
    CONTEXT_FULL = "context_full"  # the next messages did not fit into `seq_len`
    FAILED = "failed"  # see `Rollout.failure`


@dataclass(frozen=True, slots=True)
class Rollout:
    """One finished episode as token ids. The sampled ids are the trained ids: nothing is tokenised a second time.

    Two turns of a policy that answers "A" and then "B":

        text         <user> q <assistant>  A <end>   <user> wrong <assistant>  B <end>
        token_ids_T     5   6      7       8   9       5     10        7      11  9
        loss_mask_T     0   0      0       1   1       0      0        0       1  1
        logprobs_T      0   0      0     -.7 -.1       0      0        0     -.4 -.1
        versions_T     -1  -1     -1       3   3      -1     -1       -1       3  3
        turns                            range(3, 5)                       range(8, 10)
        turn_rewards                         0.0                               1.0
        env_s          0.001                 0.2                               0.2

    The mask is 1 on sampled tokens. All others (the prompt, the environment's turns and the chat template's own tokens)
    have log-probability 0.0 and weight version -1. `reward` is the sum of `turn_rewards`.

    `failure` is the reason why the rollout cannot be trained on (see `errors.RolloutError`), or empty. With a failure,
    the reward is nan. `stop_reason` is FAILED if the failure ended the episode. A rollout that is rejected afterwards,
    for example because a teacher cannot read it, keeps its stop reason. `role` is the policy's role in self-play.
    `env_s` are the seconds that the environment took to start and to answer each reply. `task_data` is the data of the
    task, such as the right answer, for readers. A comparison of rollouts ignores `env_s` and `task_data`.
    """

    task_id: str
    token_ids_T: tuple[int, ...]
    loss_mask_T: tuple[bool, ...]
    logprobs_T: tuple[float, ...]
    versions_T: tuple[int, ...]
    reward: float
    turn_rewards: tuple[float, ...] = ()
    messages: tuple[Message, ...] = ()
    metrics: Mapping[str, float] = field(default_factory=dict)
    failure: str = ""
    failure_detail: str = ""
    role: str = ""
    stop_reason: StopReason = StopReason.DONE
    env_s: tuple[float, ...] = field(default=(), compare=False)
    task_data: Mapping[str, Any] = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        lengths = {len(self.token_ids_T), len(self.loss_mask_T), len(self.logprobs_T), len(self.versions_T)}
        assert len(lengths) == 1, f"token ids, mask, log-probabilities and versions differ in length: {lengths}"
        if not self.failure:
            assert self.stop_reason is not StopReason.FAILED, "a failed episode needs a failure"
            assert math.isfinite(self.reward), "a rollout without a failure needs a finite reward"
            assert len(self.turn_rewards) == len(self.turns), "a rollout without a failure needs a reward for each turn"

    @property
    def num_sampled(self) -> int:
        """The number of tokens that the policy sampled: |y| in the formulas."""
        return sum(self.loss_mask_T)

    @property
    def turns(self) -> list[range]:
        """The token positions of each of the policy's turns. Two turns never touch: the policy reads between them."""
        edges = [t for t, (a, b) in enumerate(pairwise((False, *self.loss_mask_T, False))) if a != b]
        return [range(start, end) for start, end in zip(edges[::2], edges[1::2], strict=True)]


@dataclass(frozen=True, slots=True)
class Sample:
    """One rollout as the trainer sees it: its tokens, the mask of trained tokens, and the advantage of each token.

    The example of `Rollout`, with advantage -0.5 for the first turn and 0.5 for the second:

        token_ids_T      5   6   7    8    9    5  10   7   11    9
        loss_mask_T      0   0   0    1    1    0   0   0    1    1
        advantages_T     0   0   0  -.5  -.5    0   0   0   .5   .5
        rewards_T        0   0   0    0    0    0   0   0    0    1      with a value head, else ()

    `advantages_T` is read only where the mask is true. A trainer with a value head computes the advantages itself from
    `rewards_T`, the rewards of tokens, and then `advantages_T` is all 0. `version` is the oldest weight version from
    which a token was sampled. `row` is the rollout's line in the training step's file, counted from 0; -1 if the file
    does not have the rollout.
    """

    token_ids_T: tuple[int, ...]
    loss_mask_T: tuple[bool, ...]
    logprobs_T: tuple[float, ...]
    advantages_T: tuple[float, ...]
    version: int
    rewards_T: tuple[float, ...] = ()
    row: int = -1

    def __post_init__(self) -> None:
        lengths = {len(self.token_ids_T), len(self.loss_mask_T), len(self.logprobs_T), len(self.advantages_T)}
        assert len(lengths) == 1, f"token ids, mask, log-probabilities and advantages differ in length: {lengths}"
        assert len(self.rewards_T) in (0, len(self.token_ids_T)), "rewards are for every token, or there are none"
        assert any(self.loss_mask_T), "a sample needs at least one trained token"
        assert not self.loss_mask_T[0], "the first token of a sequence has nothing to be predicted from"
