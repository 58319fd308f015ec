"""Episodes sorted by what went wrong, and written for people."""

import math

from slimrl.eval.evaluate import HeldOutTask
from slimrl.eval.failures import failures_by_kind, failures_markdown, kind_of
from slimrl.types import Rollout, Task, Taskset
from tests.eval.episodes import Sums, rollout
from tests.rollout.scripted import OneTask, Quiz


def asked(taskset: Taskset, number: int = 0) -> HeldOutTask:
    return HeldOutTask("sums", taskset, Task(f"test/{number}", {"answer": "seven"}))


def test_every_episode_that_did_not_earn_everything_has_a_kind():
    plain = asked(OneTask(Quiz))
    assert kind_of(plain, rollout("test/0")) == ""
    assert kind_of(plain, rollout("test/0", math.nextafter(1.0, 0.0))) == ""  # six turns of a sixth each
    assert kind_of(plain, rollout("test/0", 0.5)) == "wrong"
    assert kind_of(plain, rollout("test/0", 0.0, unfinished=1.0)) == "ran out of turns"
    assert kind_of(plain, rollout("test/0", 0.0, unfinished=1.0, context_full=1.0)) == "ran out of context"
    assert kind_of(plain, rollout("test/0", failure="judge_timeout")) == "dropped: judge_timeout"


def test_a_taskset_may_know_better():
    assert kind_of(asked(Sums()), rollout("test/0", 0.0)) == "said a"
    assert kind_of(asked(Sums()), rollout("test/0", 0.0, unfinished=1.0)) == "ran out of turns"


class Lenient(Sums):
    def failure_kind(self, rollout: Rollout) -> str | None:
        return None if rollout.reward > 0.5 else ""


def test_a_taskset_may_say_that_it_is_no_failure():
    assert kind_of(asked(Lenient()), rollout("test/0", 0.9)) == ""
    assert kind_of(asked(Lenient()), rollout("test/0", 0.5)) == "wrong"
    rollouts = [rollout("test/0", 0.9), rollout("test/1", 0.5), rollout("test/2", failure="timeout")]
    kinds = failures_by_kind([asked(Lenient(), n) for n in range(3)], rollouts)
    assert [(kind.name, kind.num) for kind in kinds] == [("dropped: timeout", 1), ("wrong", 1)]


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
