"""Starts runs from a notebook or a script: `slimrl.rl("examples/reverse_text/rl.toml", max_steps=5)`.

Each function takes the arguments of its command: files, read from left to right, and settings as keywords. It returns
the result of the finished run; a mistake of the user raises `UserError`. Ctrl-C, or the stop button of a
notebook, interrupts a run, and `resume=True` continues it.
"""

import inspect
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from slimrl.commands.eval import run_eval
from slimrl.commands.rl import run_rl
from slimrl.commands.sft import run_sft
from slimrl.config.base import CommandConfig
from slimrl.config.reading.formats import flatten
from slimrl.config.reading.load import Resolved, resolve
from slimrl.config.reading.names import names_of, print_note
from slimrl.config.reading.sources import Setting, from_file
from slimrl.config.run import EvalRunConfig, RLConfig, SFTConfig
from slimrl.errors import UserError
from slimrl.io.files import decode_floats
from slimrl.io.run_dir import RunDir, step_directories
from slimrl.launch.open_dir import with_pinned_model
from slimrl.monitor.sinks import read_metrics
from slimrl.stats import Estimate

C = TypeVar("C", bound=CommandConfig)
Source = str | Path
ENVIRONMENTS = (("env",), ("orchestrator", "env"))


@dataclass(frozen=True, slots=True, repr=False)
class TrainingResult:
    """The result of `rl` or `sft` in `output_dir`.

    Attributes:
        output_dir: the directory of the run.
        metrics: one mapping per step, with `step` and the names of docs/metrics.md.
        held_out: the mean reward as `held_out[stage][mode]`, with a stage such as `after RL` and the mode `greedy` or
            `sampled`. Each value is an `Estimate`: `mean`, `low` and `high` of its 95% interval, `num` episodes.
            Empty after `sft`.
        weights: a directory in Hugging Face format.
    """

    output_dir: Path
    metrics: tuple[Mapping[str, float], ...]
    held_out: Mapping[str, Mapping[str, Estimate]]
    weights: Path

    def __repr__(self) -> str:
        head = f"TrainingResult in {self.output_dir}: {len(self.metrics)} lines of metrics, weights {self.weights}"
        return "\n".join([head, *_lines(self.held_out)])


@dataclass(frozen=True, slots=True, repr=False)
class EvaluationResult:
    """The result of `evaluate` in `output_dir`.

    Attributes:
        output_dir: the directory of the evaluation, with the tables in `report.md`.
        rewards: the mean reward as `rewards[name][mode]`, with the name of a model or script and the mode `greedy`,
            `sampled` or `scripted`. Each value is an `Estimate`: `mean`, 95% interval `low` to `high`, `num` episodes.
    """

    output_dir: Path
    rewards: Mapping[str, Mapping[str, Estimate]]

    def __repr__(self) -> str:
        return "\n".join([f"EvaluationResult in {self.output_dir}", *_lines(self.rewards)])


def _lines(rewards: Mapping[str, Mapping[str, Estimate]]) -> list[str]:
    """Return a line for each mean reward, for a cell of a notebook."""
    return [
        f"  {name}, {mode}: {estimate.mean:.3f} ({estimate.interval}), {estimate.num} episodes"
        for name, modes in rewards.items()
        for mode, estimate in modes.items()
    ]


def rl(*sources: Source, **settings: Any) -> TrainingResult:
    """Train by reinforcement learning, as the command `slimrl rl` does, and return the result.

    `sources` are settings files. `settings` are keys of the command: `max_steps=5`,
    `trainer={"optim": {"lr": 1e-5}}`, or with dots, `**{"trainer.optim.lr": 1e-5}`. `env` is short for
    `orchestrator.env`. Its value may be a class, so that a taskset in a notebook needs no file: `env=Shout`. A taskset
    with arguments is a dictionary: `env={"id": "shout.py:Shout", "args": {"n": 3}}`. Several environments are a list.

    Raises:
        UserError: a setting is wrong, or the run cannot continue; the text has the remedy.
    """
    if "env" in settings:
        settings["orchestrator.env"] = settings.pop("env")
    return _read_training(_run(RLConfig, run_rl, sources, settings))


def sft(*sources: Source, **settings: Any) -> TrainingResult:
    """Train on given conversations, as the command `slimrl sft` does, and return the result; see `rl`."""
    return _read_training(_run(SFTConfig, run_sft, sources, settings))


def evaluate(*sources: Source, **settings: Any) -> EvaluationResult:
    """Evaluate a model on held-out tasks, as the command `slimrl eval` does, and return the result; see `rl`."""
    output_dir = _run(EvalRunConfig, run_eval, sources, settings)
    results = json.loads(RunDir(output_dir).results.read_text(encoding="utf-8"))
    rewards = {
        name: {mode: Estimate(**decode_floats(found["reward"])) for mode, found in modes.items()}
        for name, modes in results["evaluations"].items()
    }
    return EvaluationResult(output_dir, rewards)


def _run(
    config_class: type[C], run: Callable[[Resolved[C]], int], sources: tuple[Source, ...], settings: dict[str, Any]
) -> Path:
    """Run a command and return its output directory."""
    resolved = with_pinned_model(_resolve(config_class, sources, settings))
    run(resolved)
    return Path(vars(resolved.config)["output_dir"])


def _resolve(config_class: type[C], sources: tuple[Source, ...], settings: dict[str, Any]) -> Resolved[C]:
    given: list[Setting] = []
    names = names_of(config_class, print_note)
    for source in sources:
        if not isinstance(source, (str, Path)):
            raise UserError(f"found a {type(source).__name__}, expected a settings file.")
        given += names.translate(from_file(str(source)))
    keywords: list[Setting] = []
    for key, value in settings.items():
        path = tuple(key.split("."))
        if path in ENVIRONMENTS and not isinstance(value, (list, tuple)):
            value = [value]  # one environment, as a class, a name or a dictionary
        keywords += [Setting(part, leaf, f"{key} =") for part, leaf in flatten(_plain(value), path)]
    return resolve(config_class, given + names.translate(keywords), os.environ, names)


def _plain(value: Any) -> Any:
    """Convert Python values to values of a settings file: tuples to lists, paths to texts, taskset classes to names."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if inspect.isclass(value):  # a taskset's class, which can be found again by this name, even in a notebook
        # Run it in this process, because it may share objects with the notebook.
        return {"id": f"{value.__module__}:{value.__qualname__}", "worker": "none"}
    return str(value) if isinstance(value, Path) else value


def _read_training(output_dir: Path) -> TrainingResult:
    steps: dict[int, dict[str, float]] = {}
    run = RunDir(output_dir)
    for step, metrics in read_metrics(run.metrics):
        steps.setdefault(step, {"step": float(step)}).update(metrics)
    try:
        stages = json.loads(run.summary.read_text(encoding="utf-8"))["stages"] if run.summary.is_file() else []
        held_out = {
            stage["name"]: {mode: Estimate(**decode_floats(found)) for mode, found in stage["held_out"].items()}
            for stage in stages
        }
    except (ValueError, LookupError, TypeError, AttributeError):
        raise UserError(f"{run.summary} is no summary of a run. Delete it; `resume=True` writes it again.") from None
    if not (weights := step_directories(run.weights)):
        raise UserError(f"{run.weights} has no weights. `resume=True` saves them again.")
    return TrainingResult(output_dir, tuple(steps.values()), held_out, weights[-1])
