"""Environments with one fault each, for tests of `slimrl check`. The good one asks for the double of a number.

A policy answers `<double>8</double>`, in one turn. Every other class changes one thing of `Double`, and `FAULTS` says
by which subject `check` must find it.
"""

import asyncio
import os
import random
import re
import time
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from slimrl.types import Message, Script, Split, Task, Taskset, Turn

ANSWER = re.compile(r"<double>(.*?)</double>", re.DOTALL)
RULES = "Double the number. Answer in tags: <double>the double</double>."


class Double(Taskset):
    """The good one."""

    def tasks(self, split: Split) -> Sequence[Task]:
        if split == "validation":
            return []
        numbers = range(0, 60, 2) if split == "train" else range(1, 21, 2)
        return [Task(f"{split}/{number}", self.data(number)) for number in numbers]

    def data(self, number: int) -> dict[str, Any]:
        return {"number": number + 20}

    def environment(self, task: Task) -> Any:
        return Episode(self, task)

    @property
    def scripts(self) -> dict[str, Script]:
        return {"expert": self.solve, "random": self.guess}

    def solve(self, task: Task, seed: int) -> list[Message]:
        return self.conversation(task, str(2 * task.data["number"]))

    def guess(self, task: Task, seed: int) -> list[Message]:
        return self.conversation(task, str(random.Random(f"{seed}/{task.id}").randrange(200, 300)))

    def conversation(self, task: Task, answer: str) -> list[Message]:
        return [*self.opening(task), {"role": "assistant", "content": f"<double>{answer}</double>"}]

    def opening(self, task: Task) -> list[Message]:
        return [
            {"role": "system", "content": RULES},
            {"role": "user", "content": f"The number is {task.data['number']}."},
        ]

    def turn(self, task: Task, reply: str) -> Turn:
        found = ANSWER.search(reply)
        right = found is not None and found[1].strip() == str(2 * task.data["number"])
        return Turn(True, reward=float(right), metrics={"tagged": found is not None})


class Episode:
    def __init__(self, taskset: Any, task: Task) -> None:
        self.taskset, self.task = taskset, task

    async def start(self) -> list[Message]:
        return self.taskset.opening(self.task)

    async def step(self, reply: str) -> Turn:
        return self.taskset.turn(self.task, reply)


class NoValidation(Double):
    def tasks(self, split: Split) -> Sequence[Task]:
        return super().tasks({"train": "train", "test": "test"}[split])


class SameIds(Double):
    def tasks(self, split: Split) -> Sequence[Task]:
        return [Task(f"{split}/{place // 2}", task.data) for place, task in enumerate(super().tasks(split))]


class NumbersAsKeys(Double):
    def data(self, number: int) -> dict[str, Any]:
        return {"number": number + 20, "doubles": {number: 2 * number}}


class NeedsTuples(Double):
    def data(self, number: int) -> dict[str, Any]:
        return {"number": number + 20, "pair": (number, number)}

    def turn(self, task: Task, reply: str) -> Turn:
        return Turn(True, reward=super().turn(task, reply).reward * isinstance(task.data["pair"], tuple))


class SharedTasks(Double):
    def tasks(self, split: Split) -> Sequence[Task]:
        return [Task(f"{split}/{number}", self.data(number)) for number in range(0, 40, 2 if split == "train" else 4)]


class RedrawnTasks(Double):
    def data(self, number: int) -> dict[str, Any]:
        return {"number": number + 20, "noise": random.random()}


class HashedTasks(Double):
    def data(self, number: int) -> dict[str, Any]:
        return {"number": number + 20, "colour": min({"red", "green", "blue"}, key=lambda name: hash((name, number)))}


class WrongExpert(Double):
    def solve(self, task: Task, seed: int) -> list[Message]:
        return self.conversation(task, "I do not know")


class BrokenExpert(Double):
    def solve(self, task: Task, seed: int) -> list[Message]:
        return self.conversation(task, str(task.data["solution"]))


class AnyNumber(Double):
    def turn(self, task: Task, reply: str) -> Turn:
        found = ANSWER.search(reply)
        return Turn(True, reward=float(found is not None and found[1].isdecimal() and len(found[1]) < 5))


class PaysForSilence(Double):
    def turn(self, task: Task, reply: str) -> Turn:
        return super().turn(task, reply) if reply.strip() else Turn(True, reward=0.2)


class PaysForTags(Double):
    def turn(self, task: Task, reply: str) -> Turn:
        return Turn(True, reward=super().turn(task, reply).reward + 0.01 * (len(ANSWER.findall(reply)) - 1))


class TellsTheAnswer(Double):
    def opening(self, task: Task) -> list[Message]:
        rules, question = super().opening(task)
        return [rules, {**question, "content": f"{question['content']} (Secret: {2 * task.data['number']}.)"}]

    def turn(self, task: Task, reply: str) -> Turn:
        return Turn(True, reward=float(f"{2 * task.data['number']}" in reply))


class ReadsNumbers(Double):
    def turn(self, task: Task, reply: str) -> Turn:
        found = ANSWER.search(reply)
        return Turn(True, reward=float(found is not None and int(found[1]) == 2 * task.data["number"]))


class EchoesJson(Double):
    """Its answer to what it cannot read has half a surrogate pair, which only an escape in JSON can bring."""

    def turn(self, task: Task, reply: str) -> Turn:
        if r"\ud83e" in reply and not ANSWER.search(reply):
            return Turn(False, [{"role": "user", "content": f"What is {chr(0xD83E)}?"}])
        return super().turn(task, reply)


class MeanOfNothing(Double):
    def turn(self, task: Task, reply: str) -> Turn:
        return (
            super().turn(task, reply) if "<double>" in reply or not reply.strip() else Turn(True, reward=float("nan"))
        )


class OddMetric(Double):
    def turn(self, task: Task, reply: str) -> Turn:
        turn = super().turn(task, reply)
        return Turn(True, reward=turn.reward, metrics={"length": len(reply) or float("nan")})


class NeverEnds(Double):
    def turn(self, task: Task, reply: str) -> Turn:
        return Turn(False, [{"role": "user", "content": "And now?"}], reward=super().turn(task, reply).reward)


class NoisyReward(Double):
    def turn(self, task: Task, reply: str) -> Turn:
        return Turn(True, reward=super().turn(task, reply).reward * (1 - 0.1 * random.random()))


class TwoTurns(Double):
    """Wants any word first, and then the double."""

    def environment(self, task: Task) -> Any:
        return _TwoTurns(self, task)

    def conversation(self, task: Task, answer: str) -> list[Message]:
        first: list[Message] = [{"role": "assistant", "content": "well"}, {"role": "user", "content": "Go on."}]
        *opening, last = super().conversation(task, answer)
        return [*opening, *first, last]


class _TwoTurns(Episode):
    num_turns = 0

    async def step(self, reply: str) -> Turn:
        self.num_turns += 1
        if self.num_turns == 1:
            return Turn(not reply.strip(), [{"role": "user", "content": "Go on."}])
        return await super().step(reply)


class ReadsNumbersLater(TwoTurns):
    def turn(self, task: Task, reply: str) -> Turn:
        found = ANSWER.search(reply)
        numbers = [int(text) for text in re.findall(r"^\d+$", found[1])] if found else [0]
        return Turn(True, reward=float(numbers[0] == 2 * task.data["number"]))  # IndexError without a number


class SharedState(TwoTurns):
    """The taskset is its own episode: one at a time goes well."""

    def environment(self, task: Task) -> Any:
        self.task = task
        return self

    async def start(self) -> list[Message]:
        self.num_turns = 0
        return self.opening(self.task)

    async def step(self, reply: str) -> Turn:
        self.num_turns += 1
        if self.num_turns == 1:
            return Turn(False, [{"role": "user", "content": "Go on."}])
        return self.turn(self.task, reply)


class OfItsProcess(Double):
    def opening(self, task: Task) -> list[Message]:
        rules, question = super().opening(task)
        return [rules, {**question, "content": f"{question['content']} (By {os.getpid()}.)"}]


class Sleeps(Double):
    def turn(self, task: Task, reply: str) -> Turn:
        turn = super().turn(task, reply)
        if turn.reward and task.id == "train/0":
            time.sleep(0.55)
        return turn


class Hangs(Double):
    def environment(self, task: Task) -> Any:
        return _Hanging(self, task)


class _Hanging(Episode):
    async def step(self, reply: str) -> Turn:
        if reply == "nan":
            await asyncio.Event().wait()
        return await super().step(reply)


class Exits(Double):
    def turn(self, task: Task, reply: str) -> Turn:
        if reply == "nan":
            os._exit(3)
        return super().turn(task, reply)


class SpeaksLast(Double):
    def opening(self, task: Task) -> list[Message]:
        return [*super().opening(task), {"role": "system", "content": "Be brief."}]


class UnknownRole(Double):
    def opening(self, task: Task) -> list[Message]:
        rules, question = super().opening(task)
        return [rules, {**question, "role": "human"}]  # type: ignore[typeddict-item]


class WithTool(Double):
    """Offers a calculator in the form of the chat template, and answers every call."""

    parameters: ClassVar[dict[str, Any]] = {
        "type": "object",
        "properties": {"number": {"type": "string"}},
        "required": ["number"],
    }
    answer: Callable[..., str] = staticmethod(lambda reply: "Error: there is no such tool, or no number.")

    def opening(self, task: Task) -> list[Message]:
        rules, question = super().opening(task)
        function = {"name": "twice", "description": "Doubles a number.", "parameters": self.parameters}
        return [{**rules, "tools": [{"type": "function", "function": function}]}, question]

    def turn(self, task: Task, reply: str) -> Turn:
        if "<tool_call>" in reply:
            return Turn(False, [{"role": "tool", "content": self.answer(reply)}])
        return super().turn(task, reply)


class ToolRaises(WithTool):
    @staticmethod
    def answer(reply: str) -> str:
        return {"twice": "4"}["no_such_tool" if "no_such_tool" in reply else "twice"]


class ToolSaysNothing(WithTool):
    @staticmethod
    def answer(reply: str) -> str:
        return ""


class OddSchema(WithTool):
    parameters: ClassVar[dict[str, Any]] = {"type": "object", "properties": {"number": {"type": "text"}}}


# What each must be found by; the first table needs no other process.
FAULTS: dict[type, str] = {
    NoValidation: "tasks",
    SameIds: "ids",
    NumbersAsKeys: "json",
    NeedsTuples: "json",
    SharedTasks: "splits",
    RedrawnTasks: "same tasks",
    WrongExpert: "expert",
    BrokenExpert: "expert",
    AnyNumber: "random play",
    PaysForSilence: "doing nothing",
    PaysForTags: "pay of garbage",
    TellsTheAnswer: "copying",
    ReadsNumbers: "garbage",
    ReadsNumbersLater: "garbage",
    EchoesJson: "garbage",
    MeanOfNothing: "reward",
    OddMetric: "metrics",
    NeverEnds: "ends",
    NoisyReward: "repeatable",
    SharedState: "isolated",
    Sleeps: "blocking",
    Hangs: "hang",
    SpeaksLast: "opening",
    UnknownRole: "opening",
    ToolRaises: "tools",
    ToolSaysNothing: "tools",
    OddSchema: "tools",
}
FAULTS_OF_PROCESSES: dict[type, str] = {HashedTasks: "other process", OfItsProcess: "worker", Exits: "crash"}
