"""A policy that says what it is told to, environments that misbehave, and everything else an episode needs."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from slimrl.config.rollout import LimitsConfig
from slimrl.inference.client import Completion
from slimrl.models.chat.template import ChatFormat
from slimrl.rollout.episode import EpisodeSpec, RolloutContext
from slimrl.types import Message, SamplingParams, Task, Taskset, Turn
from tests.tiny import tiny_tokenizer

TOKENIZER = tiny_tokenizer()
CHAT = ChatFormat(TOKENIZER)
LOGPROB = -0.5
VERSION = 9


@dataclass
class ScriptedClient:
    """Says the replies in turn and then the last one for ever, cut to `max_tokens`; remembers what it was asked."""

    replies: Sequence[Sequence[int]]
    asked: list[tuple[list[int], SamplingParams]] = field(default_factory=list)
    version: int = VERSION

    async def sample(self, prompt: list[int], params: SamplingParams) -> Completion:
        reply = self.replies[min(len(self.asked), len(self.replies) - 1)]
        self.asked.append((prompt, params))
        token_ids = tuple(reply[: params.max_tokens])
        finish = "stop" if len(token_ids) == len(reply) else "length"
        return Completion(token_ids, (LOGPROB,) * len(token_ids), (VERSION,) * len(token_ids), finish)


class DigitClient:
    """Says a digit that the request's seed decides."""

    version = VERSION

    async def sample(self, prompt: list[int], params: SamplingParams) -> Completion:
        token_ids = (*TOKENIZER.encode(str(params.seed % 10), add_special_tokens=False), TOKENIZER.eos_token_id)
        return Completion(token_ids, (LOGPROB,) * len(token_ids), (VERSION,) * len(token_ids), "stop")


@dataclass
class OneTask(Taskset):
    """A taskset whose episodes are made by a function of the task."""

    make: Callable[[Task], Any]
    num_tasks: int = 1

    def tasks(self, split: str) -> list[Task]:
        return [Task(f"{split}/{n}", {"number": n}) for n in range(self.num_tasks)]

    def environment(self, task: Task) -> Any:
        return self.make(task)


def user(text: str) -> Message:
    return {"role": "user", "content": text}


class Quiz:
    """Asks a first and a second question, then gives reward 0.75; remembers the replies."""

    def __init__(self, task: Task | None = None) -> None:
        self.replies: list[str] = []

    async def start(self) -> list[Message]:
        return [user("q")]

    async def step(self, reply: str) -> Turn:
        self.replies.append(reply)
        if len(self.replies) == 1:
            return Turn(done=False, messages=[user("wrong")])
        return Turn(done=True, reward=0.75, metrics={"tries": 2})


def raises(error: BaseException) -> Any:
    raise error


async def wait_for_ever(poll: bool, catches: bool) -> None:
    while True:
        try:
            await (asyncio.sleep(0) if poll else asyncio.Event().wait())
        except BaseException:
            if not catches:
                raise


async def cancel_itself() -> None:
    inner = asyncio.create_task(asyncio.sleep(10))
    inner.cancel()
    await inner


def continues(*messages: Any) -> Turn:
    return Turn(done=False, messages=messages)


# What `start` gives, and what `step` gives or awaits.
STARTS: dict[str, Callable[[], Any]] = {
    "start raises": lambda: raises(KeyError("missing")),
    "start gives text": lambda: "q",
    "start gives nothing": lambda: None,
}
STEPS: dict[str, Callable[[], Any]] = {
    "step raises": lambda: raises(ZeroDivisionError("by zero")),
    "own time-out": lambda: raises(TimeoutError("the database did not answer")),
    "own cancellation": cancel_itself,
    "reward nan": lambda: Turn(done=True, reward=float("nan")),
    "reward none": lambda: Turn(done=True, reward=None),
    "metric is text": lambda: Turn(done=True, reward=1.0, metrics={"exact": "yes"}),
    "returns a number": lambda: 1.0,
    "message without content": lambda: continues({"role": "user"}),
    "message content is a list": lambda: continues({"role": "user", "content": ["go on"]}),
    "message content is half a pair": lambda: continues(user("go \ud83e on")),
    "gives nothing to read": continues,
    "speaks for the policy": lambda: continues({"role": "assistant", "content": "A"}, user("go on")),
    "waits for ever": lambda: wait_for_ever(False, False),
    "polls for ever": lambda: wait_for_ever(True, False),
    "waits for ever and catches everything": lambda: wait_for_ever(False, True),
    "polls for ever and catches everything": lambda: wait_for_ever(True, True),
}


class Misbehaves:
    """One question; `fault` says what goes wrong and where."""

    def __init__(self, fault: str) -> None:
        self._fault = fault
        self.tidy: list[bool] = []
        if fault == "constructor raises":
            raise ValueError("no such task")

    async def start(self) -> Any:
        return STARTS.get(self._fault, lambda: [user("q")])()

    async def step(self, reply: str) -> Any:
        if self._fault == "tidies up when cancelled":
            try:
                await asyncio.Event().wait()
            finally:
                self.tidy.append(True)
        given = STEPS.get(self._fault, lambda: Turn(done=True, reward=1.0))()
        return await given if asyncio.iscoroutine(given) else given


def make_context(client: Any, chat: Any = None, *, max_turns: int = 10, seq_len: int = 400, timeout_s: float = 20.0):
    limits = LimitsConfig(max_turns=max_turns, episode_timeout_s=timeout_s)
    return RolloutContext(client, chat or CHAT, limits, seq_len, num_concurrent=4)


def make_attempt(make: Callable[[Task], Any], max_tokens: int = 50, seed: int = 100) -> EpisodeSpec:
    return EpisodeSpec(OneTask(make), Task("a task", {}), SamplingParams(max_tokens=max_tokens, seed=seed))
