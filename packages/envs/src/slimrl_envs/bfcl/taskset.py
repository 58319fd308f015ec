"""`bfcl:CATEGORY`: the function calls of the Berkeley Function Calling Leaderboard, or a mixture, `bfcl:NAME+NAME`.

Tasks, right answers, checkers and simulated APIs are those of the installed package bfcl-eval. The reward is 1 if its
checker accepts the calls, else 0. Functions of test tasks are in no training task.
"""

import random
from ast import literal_eval
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from slimrl.environments.base import CONSTANT
from slimrl.environments.scripts import converse
from slimrl.environments.splits import split_by_hash
from slimrl.errors import UserError, nearest
from slimrl.io.cache import say
from slimrl.io.settings import refuse_idle
from slimrl.models.chat.python_calls import python_call
from slimrl.tools.base import EXAMPLES
from slimrl.types import Environment, Message, Rollout, Script, Split, StopReason, Task, Taskset
from slimrl_envs.bfcl.calls import json_schema, read_calls, right_calls, write_calls
from slimrl_envs.bfcl.multi_turn import MultiTurnEpisode, check_turns, split_steps
from slimrl_envs.bfcl.package import Entry, load_entries
from slimrl_envs.bfcl.single_turn import IRRELEVANCE, SingleTurnEpisode, check_reply

SINGLE = (
    *("simple_python", "multiple", "parallel", "parallel_multiple", IRRELEVANCE),
    *("live_simple", "live_multiple", "live_parallel", "live_parallel_multiple"),
)
MULTI = ("multi_turn_base", "multi_turn_miss_func", "multi_turn_miss_param")
# The APIs of the multi-turn tests. A hash would hold out an API that no task uses alone.
HELD_OUT_APIS = ("MessageAPI", "TradingBot")
REFUSAL = "None of the functions can do this."
DONE = "Done."


@dataclass
class Bfcl(Taskset):
    """A taskset of one or several categories. The fields after `name` are the `args` of the config section.

    With `held_out = "functions"`, a hash of a function's name decides whether the function is held out. With `all`,
    every task is a test task, which gives the accuracy on the whole leaderboard. With `partial`, each right turn of a
    multi-turn task pays a share of the reward.
    """

    name: str
    held_out: Literal["functions", "all"] = "functions"
    partial: bool = False

    def __post_init__(self) -> None:
        names = [name.strip().replace("-", "_") for name in self.name.split("+")]
        if unknown := [name for name in names if name not in SINGLE + MULTI]:
            raise UserError(f"bfcl: there is no category `{unknown[0]}`.{nearest(unknown[0], SINGLE + MULTI)}")
        if len(set(names)) < len(names):
            raise UserError(f"bfcl: a category is twice in `{self.name}`.")
        if not set(names) & set(MULTI):
            refuse_idle(self, ["partial"], "bfcl", "without a multi-turn category")
        self._names = names
        self._entries = {id: entry for name in names for id, entry in load_entries(name).items()}

    def prepare(self) -> None:
        """Report that a refusal earns the whole reward if no category asks for calls."""
        if self._names == [IRRELEVANCE]:
            say(f"bfcl: a reply without a call earns 1 on every task of {IRRELEVANCE}. Mix it with other categories.")

    def tasks(self, split: Split) -> Sequence[Task]:
        """Return the tasks of a split in a shuffled order, the same at every call. The split `validation` has the tasks
        of which some functions are held out, and others are not."""
        found = [_task(id, entry) for id, entry in self._entries.items() if self._split_of(entry) == split]
        random.Random(f"bfcl/{split}").shuffle(found)
        return found

    def environment(self, task: Task) -> Environment:
        """Return a fresh episode on the task."""
        entry = self._entries[task.id]
        return MultiTurnEpisode(entry, self.partial) if entry["category"] in MULTI else SingleTurnEpisode(entry)

    @property
    def scripts(self) -> dict[str, Script]:
        """The scripts. `expert` makes the right calls, `random` calls a random function with example values, and
        `constant` refuses every request."""
        return {
            "expert": lambda task, seed: self._converse(task, _right_replies(self._entries[task.id])),
            "random": self._call_at_random,
            CONSTANT: lambda task, seed: self._converse(task, [REFUSAL] * len(self._entries[task.id]["question"])),
        }

    def failure_kind(self, rollout: Rollout) -> str | None:
        """Return BFCL's type of the error. Return an empty text if the episode was cut off, or if the recorded replies
        do not show the calls that the environment has read."""
        entry = self._entries[rollout.task_id.rpartition("/")[2]]
        replies = [message["content"] for message in rollout.messages if message["role"] == "assistant"]
        num_calls = sum(len(read_calls(reply)) for reply in replies)
        if rollout.stop_reason is not StopReason.DONE or num_calls != rollout.metrics.get("calls"):
            return ""
        turns = split_steps(replies, len(entry["question"]))
        verdict = check_turns(entry, turns) if entry["category"] in MULTI else check_reply(entry, replies[0])
        return None if verdict["valid"] else str(verdict["error_type"])

    def _call_at_random(self, task: Task, seed: int) -> list[Message]:
        entry = self._entries[task.id]
        function = random.Random(f"{seed}/{task.id}").choice(entry["function"])
        kinds = json_schema(function["parameters"])["properties"]
        examples = {name: EXAMPLES[kinds[name]["type"]] for name in function["parameters"]["required"]}
        call = function["name"], {name: literal_eval(example) for name, example in examples.items()}
        return self._converse(task, [write_calls([call]), DONE] * len(entry["question"]))

    def _converse(self, task: Task, replies: Sequence[str]) -> list[Message]:
        rest = iter(replies)
        return converse(self.environment(task), lambda: next(rest, None))

    def _split_of(self, entry: Entry) -> Split:
        if self.held_out == "all":
            return "test"
        if apis := entry.get("involved_classes"):
            offered, called, held_out = apis, apis, {*HELD_OUT_APIS}
        else:
            offered = [function["name"] for function in entry["function"]]
            called = [name for call in entry["ground_truth"] for name in call] or offered
            held_out = {name for name in offered if split_by_hash(name) == "test"}
        if held_out.isdisjoint(offered):
            return "train"
        return "test" if held_out.issuperset(called) else "validation"


def _task(id: str, entry: Entry) -> Task:
    calls = [python_call(name, (), arguments) for turn in right_calls(entry) for name, arguments in turn]
    question = [message["content"] for turn in entry["question"] for message in turn]
    return Task(id, {"category": entry["category"], "question": question, "answer": "\n".join(calls) or "no call"})


def _right_replies(entry: Entry) -> list[str]:
    """Return a reply with all right calls of each turn of the user, if there are any, and a reply without calls that
    ends the turn."""
    replies = []
    for calls in right_calls(entry):
        replies += [write_calls(calls), DONE] if calls else [REFUSAL]
    return replies
