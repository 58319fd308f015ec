"""Episodes sorted by what went wrong, and written for people."""

import math
from dataclasses import replace

import pytest

from slimrl.eval.evaluate import HeldOutTask
from slimrl.eval.failures import failures_by_kind, failures_markdown, kind_of
from slimrl.types import Rollout, Task, Taskset
from tests.eval.episodes import Sums, rollout
from tests.rollout.scripted import OneTask, Quiz


def asked(taskset: Taskset, number: int = 0) -> HeldOutTask:
    return HeldOutTask("sums", taskset, Task(f"test/{number}", {"answer": "seven"}), 3)


class Lenient(Sums):
    def failure_kind(self, rollout: Rollout) -> str | None:
        return None if rollout.reward > 0.5 else ""


class ByTask(Sums):
    def failure_kind(self, rollout: Rollout) -> str | None:
        return f"{rollout.task_id} asked for {rollout.task_data['answer']}"


NEARLY = math.nextafter(1.0, 0.0)  # six turns of a sixth each
CASES = [
    (OneTask(Quiz), rollout("test/0"), ""),
    (OneTask(Quiz), rollout("test/0", NEARLY), ""),
    (OneTask(Quiz), rollout("test/0", 0.5), "wrong"),
    (OneTask(Quiz), rollout("test/0", 0.0, unfinished=1.0), "ran out of turns"),
    (OneTask(Quiz), rollout("test/0", 0.0, unfinished=1.0, context_full=1.0), "ran out of context"),
    (OneTask(Quiz), rollout("test/0", failure="judge_timeout"), "dropped: judge_timeout"),
    (Sums(), rollout("test/0", 0.0), "said a"),
    (Sums(), rollout("test/0", 0.0, unfinished=1.0), "ran out of turns"),
    (Lenient(), rollout("test/0", 0.9), ""),
    (Lenient(), rollout("test/0", 0.5), "wrong"),
    # Read from a file, an episode has the evaluation's id of its task, and shortened data.
    (ByTask(), replace(rollout("sums/test/0", 0.5), task_data={"answer": "sev …"}), "test/0 asked for seven"),
]


@pytest.mark.parametrize(("taskset", "played", "kind"), CASES)
def test_an_episode_that_did_not_earn_everything_has_a_kind_unless_the_taskset_knows_better(
    taskset: Taskset, played: Rollout, kind: str
):
    assert kind_of(asked(taskset), played) == kind


def test_the_file_has_counts_and_a_few_whole_conversations():
    taskset = OneTask(Quiz)
    rollouts = [rollout(f"test/{n}", 0.0, question="#1 `x`\n# y") for n in range(4)]
    rollouts += [rollout("test/4", failure="timeout"), rollout("test/5")]
    kinds = failures_by_kind([asked(taskset, n) for n in range(6)], rollouts)
    assert [(kind.name, kind.num) for kind in kinds] == [("wrong", 4), ("dropped: timeout", 1)]
    text = failures_markdown("model, greedy", kinds, 6, num_examples=2)
    assert "5 of 6 episodes failed" in text and "| wrong | 4 |" in text
    assert text.count("#### sums/test/") == 3 and "The answer is: seven" in text
    assert "\n    # y test/0" in text  # indented: no heading of this file
    assert "timeout: of itself" in text
