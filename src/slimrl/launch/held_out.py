"""Evaluates a policy on held-out tasks at the stages of a run. Results are stored on disk, so a resumed run does not
evaluate a stage again."""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

from slimrl.environments.base import CONSTANT
from slimrl.errors import UserError
from slimrl.eval.episodes import episode_line, is_of, past_episodes, write_episodes
from slimrl.eval.evaluate import (
    EvalPolicy,
    Evaluation,
    HeldOutTask,
    draw_sizes,
    evaluation_metrics,
    evaluation_of,
    mode_of,
    play_tasks,
    tasks_held_out,
)
from slimrl.io.checksums import add_digest
from slimrl.io.files import LineFile, decode_floats, parse_object, replace_file, without_nan
from slimrl.io.regular_file import read_regular
from slimrl.io.run_dir import RunDir
from slimrl.monitor.console import RunConsole
from slimrl.monitor.summary import Stage
from slimrl.stats import Estimate
from slimrl.types import Metrics, Rollout, SamplingParams, Split, Taskset

MAX_BYTES = 2**24  # maximum size of an evaluation's result file


@dataclass(frozen=True, slots=True)
class HeldOutPlan:
    """The tasks and the decoding modes of an evaluation. Each entry of `samplings` is one decoding mode. With `keep`,
    episodes that an earlier process finished are used and not played again."""

    tasksets: Mapping[str, Taskset]  # by the names of their environments
    split: Split
    num_examples: int
    samplings: Sequence[SamplingParams]
    keep: bool = False


def note_drawn(tasks: Sequence[HeldOutTask], num_examples: int, note: Callable[[str], None]) -> None:
    """Log the number of drawn tasks of each environment, unless `num_examples` is the size of the split."""
    for env, (num, size) in draw_sizes(tasks).items():
        if num < num_examples:
            note(f"{env} has {num} held-out tasks; num_examples = {num_examples} asks for more")
        elif num < size:
            note(f"{env}: {num} of {size} held-out tasks, the same every time")


@dataclass
class HeldOut:
    """The held-out evaluation of a policy with its current weights. `eval_policy` makes the policy, and is called only
    if some episodes must still be played. `constant` makes the baseline that always gives the best constant answer. A
    stage's result is stored in `output_dir/held_out/<stage>.json`, and its rollouts in the same directory."""

    plan: HeldOutPlan
    eval_policy: Callable[[], EvalPolicy]
    output_dir: Path
    console: RunConsole
    constant: Callable[[], EvalPolicy] | None = None

    @cached_property
    def tasks(self) -> list[HeldOutTask]:
        """The drawn tasks."""
        return tasks_held_out(self.plan.tasksets, self.plan.split, self.plan.num_examples)

    def measure(self, slug: str, name: str) -> tuple[Stage, Metrics]:
        """Evaluate now, and store the result. `slug` names the stage in file names, `name` in the closing table."""
        self._measure_constant()
        return self.record(slug, name, [self.play(slug, name, sampling) for sampling in self.plan.samplings])

    def _measure_constant(self) -> None:
        tasks = [asked for asked in self.tasks if CONSTANT in asked.taskset.scripts]
        if self.constant is None or not tasks or RunDir(self.output_dir).stage(CONSTANT).exists():
            return
        make, self.constant = self.constant, None  # try only once, even if it fails
        rollouts = play_tasks(tasks, make(), self.plan.samplings[0], lambda _: None)
        if any(not rollout.failure for rollout in rollouts):
            self.record(CONSTANT, "the same answer to all", [evaluation_of("constant", rollouts)])

    def record(self, slug: str, name: str, evaluations: Sequence[Evaluation]) -> tuple[Stage, Metrics]:
        """Write a stage's evaluations to its file. Returns the stage and the `held_out/` metrics."""
        held_out = {evaluation.mode: evaluation.reward for evaluation in evaluations}
        metrics = evaluation_metrics(evaluations)
        content = {
            "name": name,
            "held_out": {mode: without_nan(asdict(estimate)) for mode, estimate in held_out.items()},
            "metrics": without_nan(metrics),
        }
        text = json.dumps(content, indent=1, allow_nan=False)
        replace_file(RunDir(self.output_dir).stage(slug), [add_digest(text.encode())])
        return Stage(name, held_out), metrics

    def play(self, slug: str, name: str, sampling: SamplingParams, mode: str = "") -> Evaluation:
        """Play every task once, and return the evaluation. `mode` is the name of the decoding mode; by default it
        depends on the temperature. Episodes of other tasks, from an earlier process, are kept but not counted."""
        mode = mode or mode_of(sampling.temperature)
        path = RunDir(self.output_dir).episodes(slug, mode)
        past = past_episodes(path) if self.plan.keep else {}
        changed = [asked.id for asked in self.tasks if asked.id in past and not is_of(past[asked.id], asked.task)]
        if changed:
            self.console.note(f"{len(changed)} of {len(past)} episodes in {path} are played again: tasks have changed")
        for task_id in changed:
            del past[task_id]
        # A finished evaluation is read from its file, so no model is loaded for it.
        missing = [asked for asked in self.tasks if asked.id not in past]
        if others := len(past) - len(self.tasks) + len(missing):
            self.console.note(f"{others} of {len(past)} episodes in {path} are of tasks that are not asked: left out")
        rollouts = dict(past)
        if missing:
            eval_policy = self.eval_policy()
            write_episodes(path, past.values(), eval_policy.text)  # without a line that a crash has cut off
            with (
                closing(LineFile(path, keep=True, digests=True)) as file,
                self.console.progress(f"held-out evaluation, {name}, {mode}", len(self.tasks)) as bar,
            ):
                bar.advance(len(self.tasks) - len(missing))

                def on_done(rollout: Rollout) -> None:
                    file.append(episode_line(rollout, eval_policy.text))
                    bar.advance()

                played = play_tasks(missing, eval_policy, sampling, on_done)
            rollouts |= {rollout.task_id: rollout for rollout in played}
            # Sort the requested tasks first, in their order, so that equal evaluations write equal files.
            rollouts = {asked.id: rollouts[asked.id] for asked in self.tasks} | rollouts
            write_episodes(path, rollouts.values(), eval_policy.text)
        evaluation = evaluation_of(mode, [rollouts[asked.id] for asked in self.tasks])
        for reason, count in evaluation.failures.items():
            self.console.note(f"{count} of {len(self.tasks)} episodes were left out: {reason}", style="yellow")
        return evaluation


def recall_stage(output_dir: Path, slug: str, note: Callable[[str], None]) -> tuple[Stage, Metrics] | None:
    """Return the stage `slug` and its metrics, as an earlier process of the run has stored them. Return None if the
    file is missing or damaged. Damage is logged."""
    path = RunDir(output_dir).stage(slug)
    if not path.exists():
        return None
    try:
        content = parse_object(read_regular(path, MAX_BYTES))
        held_out = {mode: Estimate(**decode_floats(estimate)) for mode, estimate in content["held_out"].items()}
        return Stage(content["name"], held_out), decode_floats(content["metrics"])
    except (LookupError, TypeError, ValueError, AttributeError, UserError) as error:
        note(f"{path} is damaged, and not used ({type(error).__name__}: {error})")
        return None
