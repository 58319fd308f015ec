"""Checks one environment from its tasks to its episodes, and returns all findings in a fixed order.

A check is skipped if it depends on something broken: episodes need tasks, and a failed episode has no valid reward.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from slimrl.environments.scripts import EXPERT
from slimrl.errors import UserError
from slimrl.rollout.loop import run_episodes
from slimrl.types import Split, Task, Taskset
from slimrl_tools.check import course, messages, rewards, tasks
from slimrl_tools.check.plays import (
    choose_samples,
    openings_of,
    play_again,
    play_all,
    play_beside,
    play_scripts,
    play_useless,
    spread,
)
from slimrl_tools.check.subjects import problem, verdict
from slimrl_tools.check.trial import Played, Trial
from slimrl_tools.findings import Finding, Level


@dataclass(slots=True)
class Check:
    """The check of the environment in `trial`, on `num_examples` tasks of a split.

    `here` is the environment in this process. `worker` starts the environment in a worker process, and `elsewhere` in a
    process with the given Python hash seed. Both functions raise UserError if the start fails.
    """

    trial: Trial
    here: Taskset
    worker: Callable[[], Taskset]
    elsewhere: Callable[[str], Taskset]
    split: Split
    num_examples: int
    findings: list[Finding] = field(default_factory=list)

    def run(self) -> list[Finding]:
        """Return all findings. Raises UserError if the split has no tasks."""
        found = self._check_tasks()
        if found:
            chosen = spread(found, self.num_examples)
            scripts = run_episodes(play_scripts(self.trial, chosen))
            played = [*scripts, *run_episodes(play_useless(self.trial, chosen, scripts))]
            self.findings += self._report(played)
            if samples := choose_samples(played, chosen):
                self._check_course(samples)
        # Omit a good finding if its subject also has a problem.
        return [one for one in self.findings if one.level is not Level.OK or not self._is_broken(one.subject)]

    def _check_tasks(self) -> Sequence[Task]:
        """Check the tasks, and return the tasks to play. Return no tasks if their faults prevent any episode."""
        # Look for crashes only in a worker process. A crash in this process would stop the check, and `check_tasks`
        # must measure the first call in this process.
        if self.trial.taskset is not self.here:
            self.findings += tasks.crash_of_tasks(self.trial.taskset)
            if self._is_broken("crash"):
                return ()
        given, found = tasks.check_tasks(self.here)
        self.findings += found
        if self._is_broken("tasks"):
            return ()
        # Another process sends its tasks as JSON, and rejects duplicate ids.
        if self._is_broken("ids", "json"):
            self.trial = replace(self.trial, taskset=self.here)
        elif not self._is_broken("same tasks"):
            self.findings.append(tasks.processes_finding(given, self.elsewhere))
        if not given[self.split]:
            raise UserError(f"there are no tasks in split = {self.split}; choose another `--split`.")
        return given[self.split]

    def _report(self, played: Sequence[Played]) -> Iterator[Finding]:
        """Yield the findings on opening messages, tools, rewards and failures."""
        if openings := [*openings_of(played).values()]:
            yield messages.opening_finding(openings)
            if tools := messages.tools_of(openings[0]):
                yield messages.tools_finding(tools, [one for one in played if one.kind == "call"])
        played = [one for one in played if one.kind != "call"]
        by_expert = [one for one in played if one.kind == "script" and one.what == EXPERT]
        yield from messages.expert_calls(by_expert)
        yield from rewards.reward_findings(played, EXPERT in self.trial.taskset.scripts)
        yield from course.failure_findings(played)
        yield from course.end_findings(played, self.trial.limits.max_turns)

    def _check_course(self, samples: Sequence[Played]) -> None:
        """Check whether episodes can be repeated. Replay some of them alone, beside another episode, in a worker
        process, and on tasks that were stored as JSON."""
        again = run_episodes(play_again(self.trial, samples))
        pairs = [(first, other) for first, *others in again for other in others]
        fault = course.deviation(pairs, "the same replies to the same task ({who}) gave {what}")
        self.findings.append(verdict("repeatable", fault))
        if not fault:  # episodes that vary cannot be compared
            pairs = run_episodes(play_beside(self.trial, [first for first, *_ in again]))
            fault = course.deviation(pairs, "beside another episode, {who} gave {what}")
            self.findings.append(verdict("isolated", fault))
            if not self._is_broken("ids", "json", "crash"):
                self.findings += self._check_places(samples)
        self.findings += course.time_findings(again)

    def _check_places(self, samples: Sequence[Played]) -> Iterator[Finding]:
        """Compare episodes in this process with episodes in a worker process, and with episodes on tasks stored as
        JSON."""
        play = partial(play_all, self.trial, samples)
        here = run_episodes(play(self.here))
        try:
            there = run_episodes(play(self.worker()))
            fault = course.deviation(zip(here, there, strict=True), "in another process, {who} gave {what}")
            yield verdict("worker", fault)
        except UserError as error:
            yield problem("worker", str(error))
        read = run_episodes(play(self.here, lambda task: Task(task.id, json.loads(json.dumps(task.data)))))
        text = "a task that was written to JSON and read again ({who}) gave {what}"
        if fault := course.deviation(zip(here, read, strict=True), text):
            yield problem("json", fault, "Take lists where the data has tuples: JSON knows no other.")

    def _is_broken(self, *subjects: str) -> bool:
        return any(one.subject in subjects and one.level is Level.PROBLEM for one in self.findings)
