"""A policy that says what it is told to, environments that misbehave, and everything else an episode needs."""

import asyncio
import sys
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


class Misbehaves:
    """One question; `fault` says what goes wrong and where."""

    def __init__(self, fault: str) -> None:
        self._fault = fault
        self.tidy: list[bool] = []
        if fault == "constructor raises":
            raise ValueError("no such task")

    async def start(self) -> Any:
        match self._fault:
            case "start raises":
                raise KeyError("missing")
            case "start gives text":
                return "q"
            case "start gives nothing":
                return None
        return [user("q")]

    async def step(self, reply: str) -> Any:
        match self._fault:
            case "step raises":
                raise ZeroDivisionError("by zero")
            case "own time-out":
                raise TimeoutError("the database did not answer")
            case "own cancellation":
                inner = asyncio.create_task(asyncio.sleep(10))
                inner.cancel()
                await inner
            case "reward nan":
                return Turn(done=True, reward=float("nan"))
            case "reward infinite":
                return Turn(done=True, reward=float("inf"))
            case "reward none":
                return Turn(done=True, reward=None)
            case "metric is text":
                return Turn(done=True, reward=1.0, metrics={"exact": "yes"})
            case "returns a number":
                return 1.0
            case "returns none":
                return None
            case "message without content":
                return Turn(done=False, messages=[{"role": "user"}])
            case "message is text":
                return Turn(done=False, messages=["go on"])
            case "message content is a list":
                return Turn(done=False, messages=[{"role": "user", "content": ["go on"]}])
            case "message content is half a pair":
                return Turn(done=False, messages=[{"role": "user", "content": "go \ud83e on"}])
            case "gives nothing to read":
                return Turn(done=False, messages=[])
            case "speaks for the policy":
                return Turn(done=False, messages=[{"role": "assistant", "content": "A"}, user("go on")])
            case "waits for ever":
                await asyncio.Event().wait()
            case "polls for ever":
                while True:
                    await asyncio.sleep(0)
            case "waits for ever and catches everything":
                while True:
                    try:  # noqa: SIM105
                        await asyncio.Event().wait()
                    except:  # noqa: E722
                        pass
            case "polls for ever and catches everything":
                while True:
                    try:  # noqa: SIM105
                        await asyncio.sleep(0)
                    except:  # noqa: E722
                        pass
            case "exits":
                sys.exit(3)
            case "tidies up when cancelled":
                try:
                    await asyncio.Event().wait()
                finally:
                    self.tidy.append(True)
        return Turn(done=True, reward=1.0)


def make_context(client: Any, chat: Any = None, *, max_turns: int = 10, seq_len: int = 400, timeout_s: float = 20.0):
    limits = LimitsConfig(max_turns=max_turns, episode_timeout_s=timeout_s)
    return RolloutContext(client, chat or CHAT, limits, seq_len, num_concurrent=4)


def make_attempt(make: Callable[[Task], Any], max_tokens: int = 50, seed: int = 100) -> EpisodeSpec:
    return EpisodeSpec(OneTask(make), Task("a task", {}), SamplingParams(max_tokens=max_tokens, seed=seed))
