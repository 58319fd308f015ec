"""Spelling made-up words with hyphens, as a taskset of verifiers v1: `bilob` is to become `b-i-l-o-b`."""

import difflib
import random

import verifiers.v1 as vf

__all__ = ["SpellingTaskset"]

SYSTEM = "Spell the word, with a hyphen between letters."
EXAMPLES = [
    vf.UserMessage(content="basket"),
    vf.AssistantMessage(content="b-a-s-k-e-t"),
    vf.UserMessage(content="moon"),
    vf.AssistantMessage(content="m-o-o-n"),
]
CONSONANTS, VOWELS = "bdfgklmnprstvz", "aeiou"


class Data(vf.TaskData):
    right: str


class SpellingTask(vf.Task[Data, vf.State, vf.TaskConfig]):
    @vf.reward
    async def similarity(self, task: Data, trace: vf.Trace) -> float:
        return difflib.SequenceMatcher(None, trace.last_reply.strip(), task.right, autojunk=False).ratio()

    @vf.metric
    async def exact(self, task: Data, trace: vf.Trace) -> float:
        return float(trace.last_reply.strip() == task.right)


class Config(vf.TasksetConfig):
    split: str = "train"
    size: int = 800


class SpellingTaskset(vf.Taskset[SpellingTask, Config]):
    def load(self):
        rng = random.Random(0)
        words = list(dict.fromkeys(_word(rng) for _ in range(self.config.size)))
        held_out = len(words) // 4
        for word in words[:held_out] if self.config.split == "test" else words[held_out:]:
            prompt = [*EXAMPLES, vf.UserMessage(content=word)]
            data = Data(prompt=prompt, system_prompt=SYSTEM, right="-".join(word))
            yield SpellingTask(data, self.config.task)


def _word(rng: random.Random) -> str:
    return "".join(rng.choice(VOWELS if place % 2 else CONSONANTS) for place in range(rng.randint(3, 5)))
