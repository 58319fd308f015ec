"""An environment with one fault, for tests of `slimrl check`. It asks for the double of a number.

A policy answers `<double>8</double>`, in one turn. `Double(fault)` changes one thing, and `FAULTS` says by which
subject `check` must find it; `Double()` has no fault.
"""

import asyncio
import os
import random
import re
import time
from collections.abc import Sequence
from typing import Any

from slimrl.types import Message, Script, Split, Task, Taskset, Turn

ANSWER = re.compile(r"<double>(.*?)</double>", re.DOTALL)
RULES = "Double the number. Answer in tags: <double>the double</double>."
GO_ON: Message = {"role": "user", "content": "Go on."}
TOOL_ERROR = "Error: there is no such tool, or no number."
NUMBER = {"type": "object", "properties": {"number": {"type": "string"}}, "required": ["number"]}
TEXT = {"type": "object", "properties": {"number": {"type": "text"}}}  # no type of JSON schema
# The faults in conversations of two turns, of which the first may be any word.
TWO_TURNS = ("two turns", "reads numbers later", "shared state")
# What each fault must be found by; those of the second table need other processes.
FAULTS = {
    "no validation": "tasks",
    "same ids": "ids",
    "numbers as keys": "json",
    "needs tuples": "json",
    "shared tasks": "splits",
    "redrawn tasks": "same tasks",
    "wrong expert": "expert",
    "broken expert": "expert",
    "any number": "random play",
    "pays for silence": "doing nothing",
    "pays for tags": "pay of garbage",
    "tells the answer": "copying",
    "reads numbers": "garbage",
    "reads numbers later": "garbage",
    "echoes JSON": "garbage",
    "mean of nothing": "reward",
    "odd metric": "metrics",
    "never ends": "ends",
    "noisy reward": "repeatable",
    "shared state": "isolated",
    "sleeps": "blocking",
    "hangs": "hang",
    "speaks last": "opening",
    "unknown role": "opening",
    "tool raises": "tools",
    "tool says nothing": "tools",
    "tool with an odd schema": "tools",
}
FAULTS_OF_PROCESSES = {"hashed tasks": "other process", "of its process": "worker", "exits": "crash"}


class Double(Taskset):
    """The taskset with a fault. `tool` in its name gives it a calculator, which answers every call by an error."""

    def __init__(self, fault: str = "") -> None:
        self.fault = fault
        self.shared = Episode(self)

    def tasks(self, split: Split) -> Sequence[Task]:
        if split == "validation":
            if self.fault == "no validation":
                raise KeyError(split)
            return []
        if self.fault == "shared tasks":
            numbers = range(0, 40, 2 if split == "train" else 4)
        else:
            numbers = range(0, 60, 2) if split == "train" else range(1, 21, 2)
        ids = [place // 2 if self.fault == "same ids" else number for place, number in enumerate(numbers)]
        return [Task(f"{split}/{name}", self.data(number)) for name, number in zip(ids, numbers, strict=True)]

    def data(self, number: int) -> dict[str, Any]:
        more: dict[str, Any] = {}
        match self.fault:
            case "numbers as keys":
                more = {"doubles": {number: 2 * number}}
            case "needs tuples":
                more = {"pair": (number, number)}
            case "redrawn tasks":
                more = {"noise": random.random()}
            case "hashed tasks":
                more = {"colour": min({"red", "green", "blue"}, key=lambda name: hash((name, number)))}
        return {"number": number + 20, **more}

    def environment(self, task: Task) -> Any:
        if self.fault == "shared state":
            self.shared.task = task
            return self.shared
        return Episode(self, task)

    @property
    def scripts(self) -> dict[str, Script]:
        return {"expert": self.solve, "random": self.guess}

    def solve(self, task: Task, seed: int) -> list[Message]:
        if self.fault == "broken expert":
            return self.conversation(task, str(task.data["solution"]))
        return self.conversation(
            task, "I do not know" if self.fault == "wrong expert" else str(2 * task.data["number"])
        )

    def guess(self, task: Task, seed: int) -> list[Message]:
        return self.conversation(task, str(random.Random(f"{seed}/{task.id}").randrange(200, 300)))

    def conversation(self, task: Task, answer: str) -> list[Message]:
        first: list[Message] = [{"role": "assistant", "content": "well"}, GO_ON] if self.fault in TWO_TURNS else []
        return [*self.opening(task), *first, {"role": "assistant", "content": f"<double>{answer}</double>"}]

    def opening(self, task: Task) -> list[Message]:
        rules: Message = {"role": "system", "content": RULES}
        text = f"The number is {task.data['number']}."
        match self.fault:
            case "tells the answer":
                text += f" (Secret: {2 * task.data['number']}.)"
            case "of its process":
                text += f" (By {os.getpid()}.)"
        if "tool" in self.fault:
            parameters = TEXT if "schema" in self.fault else NUMBER
            function = {"name": "twice", "description": "Doubles a number.", "parameters": parameters}
            rules["tools"] = [{"type": "function", "function": function}]
        role: Any = "human" if self.fault == "unknown role" else "user"
        last: list[Message] = [{"role": "system", "content": "Be brief."}] if self.fault == "speaks last" else []
        return [rules, {"role": role, "content": text}, *last]

    def answer(self, reply: str) -> str:
        """The answer to a call of a tool."""
        if self.fault == "tool raises":
            return {"twice": "4"}["no_such_tool" if "no_such_tool" in reply else "twice"]
        return "" if self.fault == "tool says nothing" else TOOL_ERROR

    def turn(self, task: Task, reply: str) -> Turn:
        double, found = str(2 * task.data["number"]), ANSWER.search(reply)
        is_right = found is not None and found[1].strip() == double
        if "tool" in self.fault and "<tool_call>" in reply:
            return Turn(False, [{"role": "tool", "content": self.answer(reply)}])
        reward, metrics = float(is_right), {"tagged": float(found is not None)}
        match self.fault:
            case "needs tuples":
                reward *= isinstance(task.data["pair"], tuple)
            case "any number":
                reward = float(found is not None and found[1].isdecimal() and len(found[1]) < 5)
            case "pays for silence" if not reply.strip():
                reward = 0.2
            case "pays for tags":
                reward += 0.01 * (len(ANSWER.findall(reply)) - 1)
            case "tells the answer":
                reward = float(double in reply)
            case "reads numbers":
                reward = float(found is not None and int(found[1]) == int(double))
            case "reads numbers later":  # IndexError without a number
                numbers = re.findall(r"^\d+$", found[1]) if found else ["0"]
                reward = float(numbers[0] == double)
            case "echoes JSON" if r"\ud83e" in reply and not found:
                # Half a surrogate pair, which only an escape in JSON can bring.
                return Turn(False, [{"role": "user", "content": f"What is {chr(0xD83E)}?"}])
            case "mean of nothing" if "<double>" not in reply and reply.strip():
                reward = float("nan")
            case "odd metric":
                metrics = {"length": len(reply) or float("nan")}
            case "never ends":
                return Turn(False, [{"role": "user", "content": "And now?"}], reward=reward)
            case "noisy reward":
                reward *= 1 - 0.1 * random.random()
            case "sleeps" if reward and task.id == "train/0":
                time.sleep(0.55)
            case "exits" if reply == "nan":
                os._exit(3)
        return Turn(True, reward=reward, metrics=metrics)


class Episode:
    def __init__(self, taskset: Double, task: Task | None = None) -> None:
        self.taskset, self.task, self.num_turns = taskset, task, 0

    async def start(self) -> list[Message]:
        assert self.task
        self.num_turns = 0
        return self.taskset.opening(self.task)

    async def step(self, reply: str) -> Turn:
        assert self.task
        self.num_turns += 1
        if self.taskset.fault == "hangs" and reply == "nan":
            await asyncio.Event().wait()
        if self.taskset.fault in TWO_TURNS and self.num_turns == 1:
            return Turn(not reply.strip() and self.taskset.fault != "shared state", [GO_ON])
        return self.taskset.turn(self.task, reply)
