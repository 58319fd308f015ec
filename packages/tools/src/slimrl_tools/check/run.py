"""Checks one environment from its tasks to its episodes, and returns all findings in a fixed order.

Checks that depend on something broken are skipped: episodes need tasks, and a failed episode has no meaningful reward.
"""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from slimrl.environments.base import CONSTANT
from slimrl.environments.find import call_user_code
from slimrl.environments.scripts import EXPERT
from slimrl.errors import RolloutError, UserError
from slimrl.monitor.findings import Finding, Level
from slimrl.rollout.loop import run_episodes
from slimrl.types import Split, Task, Taskset
from slimrl_tools.check import course, messages, rewards, subjects, tasks
from slimrl_tools.check.plays import (
    Hostile,
    Sample,
    choose_samples,
    play_again,
    play_beside,
    play_hostile,
    play_in,
    play_scripts,
    spread,
)
from slimrl_tools.check.trial import Played, Trial

NUM_STAGES = 5


@dataclass(frozen=True, slots=True)
class Places:
    """The environment outside of training: in this process, in a worker process, and in a process where Python hashes
    texts with the given seed. `worker` and `elsewhere` raise UserError if they cannot make it."""

    here: Taskset
    worker: Callable[[], Taskset]
    elsewhere: Callable[[str], Taskset]


@dataclass(slots=True)
class Check:
    """The check of a trial's environment, on `num_examples` tasks of a split. `advance` is called after each of the
    `NUM_STAGES` stages."""

    trial: Trial
    places: Places
    split: Split
    num_examples: int
    advance: Callable[[], None]
    findings: list[Finding] = field(default_factory=list)

    def run(self) -> list[Finding]:
        """Return all findings. Raises UserError if the split has no tasks."""
        found = self._check_tasks()
        self.advance()
        if not found:
            return self.findings
        chosen = spread(found, self.num_examples)
        scripts = run_episodes(play_scripts(self.trial, chosen))
        self.advance()
        hostile = run_episodes(play_hostile(self.trial, chosen, scripts))
        self._report(scripts, hostile)
        self.advance()
        if samples := choose_samples(scripts, hostile, chosen):
            self._check_course(samples)
        return self.findings

    def _check_tasks(self) -> Sequence[Task]:
        """Return the tasks to play on; none if they are broken."""
        # In this process a crash would end the check itself, and the first call would not be timed.
        if self.trial.taskset is not self.places.here and (crash := _crash_of_tasks(self.trial.taskset)):
            self._add(crash)
            return ()
        began = time.perf_counter()
        given, found = tasks.read_tasks(self.places.here)
        first_s = time.perf_counter() - began
        self._add(found)
        if self._is_broken("tasks"):
            return ()
        began = time.perf_counter()
        again, found_again = tasks.read_tasks(self.places.here)
        self._add(tasks.time_finding(first_s, time.perf_counter() - began))
        self._add(
            subjects.IDS.verdict(tasks.double_ids(given)),
            subjects.JSON.verdict(tasks.data_fault(given)),
            subjects.SPLITS.verdict(tasks.shared_fault(given)),
            tasks.repeat_finding(given, again, found_again),
        )
        # Another process sends its tasks as JSON, and rejects duplicate ids.
        if self._is_broken("ids", "json"):
            self.trial = replace(self.trial, taskset=self.places.here)
        elif not self._is_broken("same tasks"):
            self._add(tasks.processes_finding(given, self.places.elsewhere))
        if not given[self.split]:
            raise UserError(f"there are no tasks in split = {self.split}; choose another `--split`.")
        return given[self.split]

    def _report(self, scripts: Sequence[Played], hostile: Hostile) -> None:
        """Add the findings on opening messages, rewards and failures."""
        played = [*scripts, *hostile.nothing, *hostile.garbage, *hostile.copies]
        earned = rewards.earnings_of(scripts)
        if hostile.openings:
            self._add(messages.opening_finding(hostile.openings))
        self._add(*hostile.tools)
        if earned.expert:
            self._add(expert := rewards.expert_finding(earned))
            if expert.level is not Level.PROBLEM:  # without rewards of the expert there is nothing to compare with
                self._add(rewards.random_finding(earned))
                if CONSTANT in earned.scripts:
                    self._add(rewards.constant_finding(earned))
        elif EXPERT not in self.trial.taskset.scripts:
            self._add(rewards.NO_EXPERT)
        self._add(*islice(messages.expert_calls([one for one in scripts if one.what == EXPERT]), 1))
        if silent := _whole(hostile.nothing):
            self._add(rewards.silence_finding(silent))
        if useless := _whole(hostile.garbage):
            self._add(rewards.useless_finding(subjects.PAY_OF_GARBAGE, useless, earned, 1.0))
        if copied := _whole(hostile.copies):
            self._add(rewards.useless_finding(subjects.COPYING, copied, earned, rewards.COPY_SHARE))
        self._add(*course.failure_findings(played), subjects.METRICS.verdict(course.odd_metric(played)))
        self._add(*course.end_findings(played, self.trial.limits.max_turns))

    def _check_course(self, samples: Sequence[Sample]) -> None:
        """Replay some episodes: alone, beside another one, in a worker process, and on tasks reread from JSON."""
        again = run_episodes(play_again(self.trial, samples))
        pairs = [(first, other) for first, *others in again for other in others]
        fault = course.deviation(pairs, "the same replies to the same task ({who}) gave {what}")
        self._add(subjects.REPEATABLE.verdict(fault))
        self.advance()
        if not fault:  # episodes that vary cannot be compared
            pairs = run_episodes(play_beside(self.trial, samples, [first for first, *_ in again]))
            self._add(subjects.ISOLATED.verdict(course.deviation(pairs, "beside another episode, {who} gave {what}")))
            if not self._is_broken("ids", "json", "crash"):
                self._check_places(samples)
        self._add(course.hold_finding(again), course.time_finding(again))
        self.advance()

    def _check_places(self, samples: Sequence[Sample]) -> None:
        """Compare the episodes here with episodes in a worker process and on tasks reread from JSON."""
        here = run_episodes(play_in(self.trial, samples, self.places.here))
        try:
            there = run_episodes(play_in(self.trial, samples, self.places.worker()))
            fault = course.deviation(zip(here, there, strict=True), "in another process, {who} gave {what}")
            self._add(subjects.WORKER.verdict(fault))
        except UserError as error:
            self._add(subjects.WORKER.problem(str(error)))
        read = [replace(one, task=_from_json(one.task)) for one in samples]
        played = run_episodes(play_in(self.trial, read, self.places.here))
        text = "a task that was written to JSON and read again ({who}) gave {what}"
        if fault := course.deviation(zip(here, played, strict=True), text):
            self._add(subjects.JSON.problem(fault, "Take lists where the data has tuples: JSON knows no other."))

    def _is_broken(self, *subjects: str) -> bool:
        return any(one.subject in subjects and one.level is Level.PROBLEM for one in self.findings)

    def _add(self, *findings: Finding) -> None:
        """Add findings. A problem replaces earlier findings of its subject that all is well."""
        broken = {one.subject for one in findings if one.level is Level.PROBLEM}
        kept = [one for one in self.findings if one.subject not in broken or one.level is not Level.OK]
        self.findings = [*kept, *findings]


def _crash_of_tasks(taskset: Taskset) -> Finding | None:
    """Return a problem if the taskset's process ends while it makes its tasks."""
    try:
        call_user_code("tasks('train') failed", lambda: taskset.tasks("train"))
    except UserError as error:  # reading the tasks later reports any other error
        if isinstance(error.__cause__, RolloutError):
            return subjects.CRASH.problem(str(error))
    return None


def _whole(played: Sequence[Played]) -> list[Played]:
    """Return the episodes that did not fail."""
    return [one for one in played if not one.rollout.failure]


def _from_json(task: Task) -> Task:
    return Task(task.id, json.loads(json.dumps(task.data)))
