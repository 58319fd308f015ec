"""`reasoning-gym:NAME`: a task of the package reasoning-gym, or a mixture of several, `reasoning-gym:NAME+NAME`.

The package makes questions from seeds, knows their answers, and scores replies, 0 to 1. An episode is one
question and one reply. Training and held-out questions have different seeds, and no question is in two splits.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import Field

from slimrl.environments.answers import Form, read_answer
from slimrl.environments.base import SUCCESS
from slimrl.errors import UserError, nearest
from slimrl.io.cache import say
from slimrl.types import Message, Script, Split, Task, Taskset, Turn
from slimrl_envs.reasoning_gym.part import EASY, Part

INSTRUCTION = "Answer the question. Write nothing but the answer, in <answer> tags."
MAX_SEED = 100  # larger values would exceed the 32 bits of NumPy's seeds
Size = Annotated[int, Field(ge=0, le=1_000_000)]


@dataclass
class ReasoningGym(Taskset):
    """A taskset of one or several of the package's tasks. The fields are the `args` of the config section.

    `config` has the task's settings under the package's names. In a mixture, whose tasks have equal shares, it has a
    table for each task, under the task's name. `num_train` and `num_test` are the maximum numbers of tasks in the
    splits. `system` replaces the instruction, for example to let the policy think before it answers.
    """

    name: str
    config: dict[str, Any] = field(default_factory=dict)
    answer_format: Literal["tag", "lenient"] = "tag"
    system: str = INSTRUCTION
    seed: Annotated[int, Field(ge=0, le=MAX_SEED)] = 0
    num_train: Size = 1_000
    num_test: Size = 200

    def __post_init__(self) -> None:
        names = [name.strip().replace("-", "_") for name in self.name.split("+")]
        if len(set(names)) < len(names):
            raise UserError(f"reasoning-gym: a task is twice in `{self.name}`.")
        sizes: dict[Split, int] = {"train": self.num_train, "validation": 0, "test": self.num_test}
        configs = _configs(names, self.config)
        self._parts: dict[str, Part] = {}
        end = 0.0
        for name in names:  # a task's part of a split is between the sums of the shares before and after it
            begin, end = end, end + 1.0 / len(names)
            counts = {split: round(end * size) - round(begin * size) for split, size in sizes.items()}
            self._parts[name] = Part(name, configs[name], self.seed, counts)

    def prepare(self) -> None:
        """Report the mean reward of the best blind answer, which needs no reasoning, for each task in `EASY`."""
        for name in self._parts.keys() & EASY.keys():
            answer, pay = EASY[name]
            say(f"reasoning-gym: {name} pays {pay:.2f} on average if every answer is `{answer}`. Learn more than that.")

    def tasks(self, split: Split) -> Sequence[Task]:
        """Return the tasks of a split. Every call returns the same tasks. A mixture is shuffled."""
        found = [
            Task(f"{split}/{name}/{item['seed']}", dict(item))
            for name, part in self._parts.items()
            for item in part.items(split)
        ]
        if len(self._parts) > 1:
            random.Random(f"reasoning-gym/{split}").shuffle(found)
        return found

    def environment(self, task: Task) -> "ReasoningGymEpisode":
        """Return a fresh episode on the task."""
        part, is_mixed = self._parts[task.data["task"]], len(self._parts) > 1
        return ReasoningGymEpisode(part, task, self._opening(task), self.answer_format, is_mixed=is_mixed)

    @property
    def scripts(self) -> dict[str, Script]:
        """The scripts by name. `expert` gives the package's own answer. `random` gives the answer to another question
        of the same task; this may be right by chance. Without answers for a task of the mixture, there are no
        scripts."""
        if not all(item["answer"] for part in self._parts.values() for item in part.some_items()):
            return {}
        return {
            "expert": lambda task, seed: self._conversation(task, task.data["answer"]),
            "random": self._answer_another,
        }

    def _answer_another(self, task: Task, seed: int) -> list[Message]:
        items = self._parts[task.data["task"]].some_items()
        others = [item for item in items if item["seed"] != task.data["seed"]] or items
        return self._conversation(task, random.Random(f"{seed}/{task.id}").choice(others)["answer"])

    def _conversation(self, task: Task, answer: str) -> list[Message]:
        return [*self._opening(task), {"role": "assistant", "content": f"<answer>{answer}</answer>"}]

    def _opening(self, task: Task) -> list[Message]:
        return [{"role": "system", "content": self.system}, {"role": "user", "content": task.data["question"]}]


class ReasoningGymEpisode:
    """An episode of one turn: the policy reads a question and answers once."""

    def __init__(self, part: Part, task: Task, opening: list[Message], form: Form, *, is_mixed: bool) -> None:
        self._part, self._task, self._opening = part, task, opening
        self._form, self._is_mixed = form, is_mixed

    async def start(self) -> list[Message]:
        """Return the messages that the policy reads first."""
        return self._opening

    async def step(self, reply: str) -> Turn:
        """Return the last turn, with the package's score of the answer as its reward. The reward is 0 without an
        answer, or with an empty answer."""
        answer = read_answer(reply, self._form).text
        reward = self._part.score(answer, self._task.data) if answer else 0.0
        metrics = {"exact": float(reward >= SUCCESS), "answered": float(bool(answer))}
        if self._is_mixed:
            metrics[self._part.name] = reward
        return Turn(done=True, reward=reward, metrics=metrics)


def _configs(names: Sequence[str], config: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the settings of each task. A single task has the whole `config`. In a mixture each task has the table
    under its name. Raise UserError for other names in the `config` of a mixture."""
    if len(names) == 1:
        return {names[0]: config}
    for name, settings in config.items():
        if name not in names:
            raise UserError(
                f"reasoning-gym: in a mixture `config` holds the settings of each task under its name, and `{name}` is "
                f"none of them.{nearest(name, names)}"
            )
        if not isinstance(settings, Mapping):
            raise UserError(f"reasoning-gym: `config` of {name} must be a table of settings, not {settings!r:.80}.")
    return {name: config.get(name, {}) for name in names}
