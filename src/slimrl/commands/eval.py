"""The `eval` command: it compares a model with baselines on the same held-out tasks, with intervals and failures.

Models are loaded one after another, and only if they have episodes left to play.
"""

import json
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from slimrl.config.reading.load import Resolved
from slimrl.config.run import EvalRunConfig
from slimrl.errors import UserError
from slimrl.eval.baselines import make_script_policy, script_of
from slimrl.eval.compare import Episodes, Pair, common_tasks, compare
from slimrl.eval.evaluate import (
    EvalPolicy,
    Evaluation,
    HeldOutTask,
    draw_sizes,
    make_eval_policy,
    mode_of,
    reward_by_environment,
    tasks_held_out,
)
from slimrl.eval.failures import FailureKind, failures_by_kind, failures_markdown
from slimrl.eval.report import environments_table, failures_table, pairs_table, scores_table
from slimrl.io.files import replace_file, without_nan
from slimrl.io.run_dir import RunDir
from slimrl.launch.held_out import HeldOut, HeldOutPlan, note_drawn
from slimrl.launch.open_dir import open_evaluation_dir
from slimrl.launch.parts import make_context, open_policy
from slimrl.launch.tasksets import load_tasksets
from slimrl.monitor.console import RunConsole
from slimrl.monitor.tables import as_markdown, for_terminal
from slimrl.rollout.episode import RolloutContext

MODEL = "eval"  # the slug of the evaluated model's files
SCRIPTED = "scripted"  # the mode of scripts, which sample nothing
NUM_EXAMPLES = 5  # conversations of each kind of failure in failures.md


@dataclass(frozen=True, slots=True)
class Results:
    """The evaluations by policy and decoding mode, the model first. `tasks` and the rollouts have the same order."""

    config: EvalRunConfig
    tasks: list[HeldOutTask]
    evaluations: Mapping[str, Mapping[str, Evaluation]]

    @property
    def model(self) -> str:
        return self.config.model.name

    def in_mode(self, mode: str) -> dict[str, Evaluation]:
        """Return the evaluations of models in a decoding mode, and of scripts, which have no decoding modes."""
        return {
            name: modes[mode] if mode in modes else modes[SCRIPTED]
            for name, modes in self.evaluations.items()
            if mode in modes or SCRIPTED in modes
        }

    def kinds(self, evaluation: Evaluation) -> tuple[FailureKind, ...]:
        return failures_by_kind(self.tasks, evaluation.rollouts)

    def pairs(self, mode: str) -> dict[str, list[Pair]]:
        """Compare the model with every other policy that finished at least one of the same tasks."""
        found = {name: self._episodes(evaluation) for name, evaluation in self.in_mode(mode).items()}
        mine = found.pop(self.model)
        return {name: compare(mine, other) for name, other in found.items() if common_tasks(mine, other)}

    def _episodes(self, evaluation: Evaluation) -> Episodes:
        return {rollout.task_id: rollout for rollout in evaluation.rollouts}


def run_eval(resolved: Resolved[EvalRunConfig]) -> int:
    """Run the `eval` command. It writes `report.md`, `results.json`, `failures.md` and all rollouts to `output_dir`."""
    config, console, began = resolved.config, RunConsole(), time.monotonic()
    tasksets = dict(zip(config.labels, load_tasksets(config.env, config.episode_timeout_s), strict=True))
    tasks = tasks_held_out(tasksets, config.split, config.num_examples)
    note_drawn(tasks, config.num_examples, console.note)
    _check_baselines(config, tasks[0])
    samplings = [config.sampling.params(temperature, config.seed) for temperature in config.temperatures]
    plan = HeldOutPlan(tasksets, config.split, config.num_examples, samplings, config.resume)

    @cache  # called for a script too, which needs the model's chat template
    def model() -> RolloutContext:
        return _player(config, config.model.name, console)

    with open_evaluation_dir(resolved, Path(config.output_dir), config.resume, console.note) as output_dir:
        evaluations: dict[str, dict[str, Evaluation]] = {}
        for name in (config.model.name, *config.baselines):
            held_out = HeldOut(plan, _eval_policy(config, name, model, console), output_dir, console)
            slug = MODEL if name == config.model.name else slug_of(name)
            if script_of(name):
                evaluations[name] = {SCRIPTED: held_out.play(slug, name, samplings[0], SCRIPTED)}
            else:
                evaluations[name] = {mode_of(s.temperature): held_out.play(slug, name, s) for s in samplings}
            held_out.record(slug, name, list(evaluations[name].values()))
        results = Results(config, tasks, evaluations)
        _show(results, output_dir, console)
        _write_results(results, RunDir(output_dir).results)
        console.note(f"{time.monotonic() - began:.0f} s; report.md, failures.md and every rollout: {output_dir}")
    return 0


def _check_baselines(config: EvalRunConfig, asked: HeldOutTask) -> None:
    """Raise UserError if baselines conflict, or if a script fails on the task `asked`. The check is early, because the
    model may play for an hour."""
    names = [config.model.name, *config.baselines]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UserError(
            f"`{twice}` stands twice among `model.name` and `baselines`: it cannot be compared with itself."
        )
    slugs = [slug_of(name) for name in config.baselines]
    if alike := [name for name in config.baselines if slugs.count(slug_of(name)) > 1]:
        raise UserError(
            f"the `baselines` {' and '.join(alike)} would have the same files, {slug_of(alike[0])}_...: evaluate them "
            "one at a time, each with an `--output_dir` of its own."
        )
    for name in config.baselines:
        if script := script_of(name):
            script(asked.taskset, asked.task, config.seed)


def slug_of(name: str) -> str:
    """Return the prefix of the names of a baseline's files."""
    return f"vs_{re.sub(r'[^A-Za-z0-9.-]+', '-', name).strip('-')}"


def _eval_policy(
    config: EvalRunConfig, name: str, model: Callable[[], RolloutContext], console: RunConsole
) -> Callable[[], EvalPolicy]:
    """Return a function that makes the policy `name`: the evaluated model, another model, or a script."""

    def make() -> EvalPolicy:
        if script := script_of(name):
            return make_script_policy(script, model())
        return make_eval_policy(model() if name == config.model.name else _player(config, name, console))

    return cache(make)


def _player(config: EvalRunConfig, name: str, console: RunConsole) -> RolloutContext:
    policy = open_policy(config.model.model_copy(update={"name": name}), console)
    return make_context(policy.module, policy.chat, config.inference, config, config.seq_len)


def _show(results: Results, output_dir: Path, console: RunConsole) -> None:
    """Show the tables and write them to report.md. Write the conversations of failures to failures.md."""
    report, failures = [f"# {results.model}", ""], ["# Failures", ""]
    drawn = [f"- {env}: {num} of {size} tasks" for env, (num, size) in draw_sizes(results.tasks).items()]
    for mode in results.evaluations[results.model]:
        found = results.in_mode(mode)
        kinds = {name: results.kinds(evaluation) for name, evaluation in found.items()}
        tables = [scores_table(found), *filter(None, [environments_table(found), failures_table(kinds)])]
        tables += [pairs_table(results.model, name, pairs) for name, pairs in results.pairs(mode).items()]
        console.note(f"{results.config.split}, {mode}", style="bold")
        for table in tables:
            console.show(for_terminal(table, console.is_live))
        report += [f"## {results.config.split}, {mode}", "", *drawn, "", *map(as_markdown, tables)]
        for name, kind in kinds.items():
            failures.append(failures_markdown(f"{name}, {mode}", kind, len(results.tasks), NUM_EXAMPLES))
    replace_file(output_dir / "report.md", ["\n".join(report).encode()])
    replace_file(output_dir / "failures.md", ["\n".join(failures).encode("utf-8", "replace")])


def _write_results(results: Results, path: Path) -> None:
    content = {
        "model": results.model,
        "split": results.config.split,
        "tasks": {env: {"num": num, "of": size} for env, (num, size) in draw_sizes(results.tasks).items()},
        "evaluations": {
            name: {mode: _evaluation(results, evaluation) for mode, evaluation in modes.items()}
            for name, modes in results.evaluations.items()
        },
        "pairs": {
            mode: {name: [asdict(pair) for pair in pairs] for name, pairs in results.pairs(mode).items()}
            for mode in results.evaluations[results.model]
        },
    }
    replace_file(path, [json.dumps(without_nan(content), indent=1, ensure_ascii=False, allow_nan=False).encode()])


def _evaluation(results: Results, evaluation: Evaluation) -> dict[str, Any]:
    return {
        "reward": asdict(evaluation.reward),
        "environments": {env: asdict(reward) for env, reward in reward_by_environment(evaluation).items()},
        "scores": {name: asdict(estimate) for name, estimate in evaluation.scores.items()},
        "dropped": evaluation.failures,
        "failures": {kind.name: kind.num for kind in results.kinds(evaluation)},
    }
