"""reverse-text as a taskset of verifiers v1: the tasks and the reward of slimrl's own."""

import difflib

import verifiers.v1 as vf

from slimrl.environments.reverse_text import INSTRUCTION, TAGS, ReverseText
from slimrl.io.text import spans_between

__all__ = ["ReverseTaskset"]


class Data(vf.TaskData):
    text: str


class ReverseTask(vf.Task[Data, vf.State, vf.TaskConfig]):
    @vf.reward
    async def similarity(self, task: Data, trace: vf.Trace) -> float:
        reply = trace.assistant_messages[-1].content or ""
        answer = next(spans_between(reply, *TAGS), None)
        if answer is None:
            return 0.0
        return difflib.SequenceMatcher(None, reply[slice(*answer)].strip(), task.text[::-1], autojunk=False).ratio()

    @vf.metric
    async def tagged(self, trace: vf.Trace) -> float:
        return float(any(spans_between(trace.assistant_messages[-1].content or "", *TAGS)))


class Config(vf.TasksetConfig):
    split: str = "train"
    size: int = 40


class ReverseTaskset(vf.Taskset[ReverseTask, Config]):
    def load(self):
        for task in ReverseText(num_train=self.config.size, num_test=self.config.size).tasks(self.config.split):
            text = task.data["text"]
            data = Data(prompt=text, system_prompt=INSTRUCTION, text=text)
            yield ReverseTask(data, self.config.task)
