"""The few data carriers that every part shares, and what an environment is. Standard library only.

Index suffixes, here and everywhere: _T token, _B sequence, _G rollout in a group, _N trained token, _V vocabulary,
_D model dimension, _H heads.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal, NotRequired, Protocol, TypedDict

Split = Literal["train", "validation", "test"]


class Excerpt(TypedDict):
    """The characters `begin` to `end` of a message's content, of which at most `max_tokens` tokens are to be read."""

    begin: int
    end: int
    max_tokens: int


class Message(TypedDict):
    """One chat message in the form that chat templates take, and what an environment may add to one.

    `tools`, on the first message of a conversation, are the functions that the policy may call, as JSON schemas.
    `excerpt` marks what may be long: it is cut by whoever knows the policy's tokens, before anybody reads it.
    """

    role: Literal["system", "user", "assistant", "tool"]
    content: str
    name: NotRequired[str]
    tools: NotRequired[list[dict[str, Any]]]
    excerpt: NotRequired[Excerpt]


@dataclass(frozen=True, slots=True)
class Task:
    """One problem to solve: plain data that survives JSON. `id` is unique within its environment and split."""

    id: str
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Turn:
    """The environment's answer to one reply of the policy.

    While `done` is false, `messages` are what the policy reads next. `reward` is what the reply earned: an environment
    that judges episodes as a whole gives all of it when `done`. An episode's reward is the sum over its turns.
    A message with an `excerpt` is cut to so many of the policy's tokens before it is read.
    `metrics` are named numbers so far; those of the last turn are averaged over rollouts (logged as `env/<name>`).
    """

    done: bool
    messages: Sequence[Message] = ()
    reward: float = 0.0
    metrics: Mapping[str, float] = field(default_factory=dict)


class Environment(Protocol):
    """One episode, in chat messages: it is played once and never shared.

    Two turns of an episode that asks again after a wrong answer:

        await episode.start()      [{"role": "user", "content": "What is 2 + 2?"}]
        await episode.step("5")    Turn(done=False, messages=[{"role": "user", "content": "No. Try again."}])
        await episode.step("4")    Turn(done=True, reward=1.0)
    """

    async def start(self) -> list[Message]:
        """The opening messages, which end with one that the policy is to answer."""

    async def step(self, reply: str) -> Turn:
        """The environment's answer to the policy's reply."""


class Taskset(Protocol):
    """The tasks of an environment. Its constructor takes the `args` of the config section as keywords.

    What a taskset and an episode may have besides is in `environments/base.py`.
    """

    def tasks(self, split: Split) -> Sequence[Task]:
        """The tasks of a split: the same ones in the same order at every call.

        No task is in two splits. A taskset without a `validation` split returns no tasks for it.
        """

    def environment(self, task: Task) -> Environment:
        """A fresh episode on the task."""


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How to choose tokens. `temperature` 0 is greedy; `top_k` 0, `top_p` 1 and `min_p` 0 leave the distribution whole.

    Logged log-probabilities are those of the distribution sampled from (after temperature and truncation); for greedy
    sampling, those of the untempered softmax. `seed` makes a request's tokens independent of everything but the logits.
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


@dataclass(frozen=True, slots=True)
class Rollout:
    """One finished episode, on token ids. What was sampled is what is trained: nothing is ever tokenised again.

    Two turns of a policy that answers "A" and then "B" (mask 1 marks the sampled tokens; the rest are prompt,
    environment turns and template glue, whose log-probability is recorded as 0.0 and whose version is -1):

        text        <user> q <assistant>  A <end>   <user> wrong <assistant>  B <end>
        token_ids_T    5   6      7       8   9       5     10        7      11  9
        loss_mask_T    0   0      0       1   1       0      0        0       1  1

    `turn_rewards` are what each of the policy's turns earned, here two numbers; `reward` is their sum. `failure` holds
    the reason when the rollout cannot be trained on (see `errors.RolloutError`); its reward is nan. `role` is whom the
    policy played, where it played against itself.
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

    def __post_init__(self) -> None:
        lengths = {len(self.token_ids_T), len(self.loss_mask_T), len(self.logprobs_T), len(self.versions_T)}
        assert len(lengths) == 1, f"token ids, mask, log-probabilities and versions differ in length: {lengths}"
        if not self.failure:
            assert math.isfinite(self.reward), "a rollout without a failure needs a finite reward"
            assert len(self.turn_rewards) == len(self.turns), "a rollout without a failure needs a reward for each turn"

    @property
    def num_sampled(self) -> int:
        """Tokens that the policy sampled: |y| of the formulas."""
        return sum(self.loss_mask_T)

    @property
    def turns(self) -> list[range]:
        """The positions of each of the policy's turns; between two there is always something that it only read."""
        edges = [t for t, (a, b) in enumerate(pairwise((False, *self.loss_mask_T, False))) if a != b]
        return [range(start, end) for start, end in zip(edges[::2], edges[1::2], strict=True)]


@dataclass(frozen=True, slots=True)
class Sample:
    """One rollout as the trainer sees it: tokens, which of them to train, and what each is worth.

    `advantages_T` is read only where `loss_mask_T` is true. For a trainer with a value head, which makes the
    advantages itself, they are what each token earned. `version` is the oldest weight version that any of its
    tokens was sampled from.
    """

    token_ids_T: tuple[int, ...]
    loss_mask_T: tuple[bool, ...]
    logprobs_T: tuple[float, ...]
    advantages_T: tuple[float, ...]
    version: int

    def __post_init__(self) -> None:
        lengths = {len(self.token_ids_T), len(self.loss_mask_T), len(self.logprobs_T), len(self.advantages_T)}
        assert len(lengths) == 1, f"token ids, mask, log-probabilities and advantages differ in length: {lengths}"
        assert any(self.loss_mask_T), "a sample needs at least one trained token"
        assert not self.loss_mask_T[0], "the first token of a sequence has nothing to be predicted from"


Metrics = dict[str, float]
