"""Are planted faults noticed by the monitor that is for them, and do healthy runs raise no alarm?

    python -m benchmarks.checks.monitors                     all three parts
    python -m benchmarks.checks.monitors --parts recorded    one; the others in the result file stay

`planted` trains with six faults, on SmolLM2-135M or with `--tiny` on a random model of two layers. `recorded` shows the
monitors the metrics of every run under `benchmarks/results/`, and of `--more` directories of runs with rollouts, which
are measured where the run did not do so itself. `healthy` trains short runs of the examples and measures what the
monitors cost. Writes `benchmarks/results/monitors.json`; exits with 1 if a fault was missed or an alarm was false.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.harness.measure import RESULTS, ROOT, machine_facts, markdown_table, write_result
from benchmarks.harness.planted_runs import PATHOLOGIES, Pathology, judge_of_yes, run_with_first_weights, settings_of
from benchmarks.harness.runs import Job, drop_weights, finish, flags
from slimrl.config.monitors import MonitorsConfig
from slimrl.config.reading.load import load
from slimrl.config.run import RLConfig
from slimrl.io.files import read_lines
from slimrl.io.run_dir import RunDir
from slimrl.monitor.health.health import Health
from slimrl.monitor.health.measure import measure
from slimrl.monitor.rollouts import read_rollouts
from slimrl.monitor.sinks import read_metrics
from slimrl.types import Metrics, Rollout
from tests.tiny import tiny_model_dir

PARTS = ("planted", "recorded", "healthy")
FEW = 5  # steps from the onset of a fault to its alarm


@dataclass(frozen=True, slots=True)
class Healthy:
    """A short run of an example."""

    name: str
    recipe: str
    settings: Mapping[str, Any] = field(default_factory=dict)


SHORT = {"max_steps": 10, "eval.num_examples": 16, "ckpt.interval_steps": 0}
HEALTHY = (
    *(Healthy(f"reverse_text, seed {seed}", "examples/reverse_text/rl.toml", {"seed": seed}) for seed in (3, 4)),
    Healthy("reverse_text, grpo", "examples/reverse_text/rl.toml", {"trainer.loss.type": "grpo"}),
    Healthy("reverse_text, level 2", "examples/reverse_text/rl.toml", {"max_async_level": 2}),
    Healthy(
        "reverse_text, LoRA",
        "examples/reverse_text/rl.toml",
        {"model.lora.rank": 8, "trainer.optim.lr": 2e-4, "warmup.optim.lr": 1e-3, "seed": 6},
    ),
    Healthy("reverse_text, longer warm-up", "examples/reverse_text/rl.toml", {"warmup.max_steps": 8, "seed": 5}),
    *(Healthy(f"alphabet_sort, seed {seed}", "examples/alphabet_sort/rl.toml", {"seed": seed}) for seed in (3, 4)),
    Healthy("wordle", "examples/wordle/rl.toml", {"seed": 3, "max_steps": 6}),
    Healthy("wiki_search", "examples/wiki_search/rl.toml", {"seed": 3, "max_steps": 6}),
    Healthy("matching_game", "examples/matching_game/rl.toml", {"seed": 3, "max_steps": 5}),
)


def main() -> None:
    if sys.argv[1:2] == ["--keeps-weights"]:  # a run, for the process below
        run_with_first_weights(load(RLConfig, sys.argv[2:], {}))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--tiny", action="store_true", help="plant the faults in runs of a tiny random model")
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--only", nargs="+", default=[], help="planted faults or healthy runs, by their names")
    parser.add_argument("--more", nargs="+", type=Path, default=[], help="directories of other healthy runs")
    parser.add_argument("--runs", type=Path, default=ROOT / "outputs" / "monitors")
    parser.add_argument("--output", type=Path, default=RESULTS / "monitors.json")
    arguments = parser.parse_args()
    facts = machine_facts()
    content = json.loads(arguments.output.read_text(encoding="utf-8")) if arguments.output.exists() else {}
    kept = {key: value for key, value in content.items() if key.partition(",")[0] in PARTS}
    if "planted" in arguments.parts:
        key = "planted, tiny model" if arguments.tiny else "planted"
        kept[key] = {**kept.get(key, {}), **planted(arguments)}
    if "recorded" in arguments.parts:
        kept["recorded"] = recorded(arguments.more)
    if "healthy" in arguments.parts:
        kept["healthy"] = {**kept.get("healthy", {}), **healthy(arguments)}
    print(table(kept))
    private = {str(arguments.runs): "RUNS"} | {str(path): "RUN" for path in arguments.more}
    write_result(arguments.output, facts, kept, private)
    sys.exit(not is_good(kept))


def planted(arguments: argparse.Namespace) -> dict[str, Any]:
    """What became of each fault that was asked for."""
    found = {}
    with tempfile.TemporaryDirectory() as directory:
        model = str(tiny_model_dir(Path(directory))) if arguments.tiny else arguments.model
        for fault in PATHOLOGIES:
            if not arguments.only or fault.name in arguments.only:
                run = arguments.runs / f"{'tiny_' if arguments.tiny else ''}{fault.name.replace(' ', '_')}"
                run_planted(fault, model, run, arguments.tiny)
                found[fault.name] = outcome(fault, run)
                drop_weights(run)
                print(f"{fault.name}: {found[fault.name]}", flush=True)
    return found


def run_planted(fault: Pathology, model: str, run: Path, is_tiny: bool) -> None:
    """Train with the fault, in a process of its own. A guard that ends it is one of the things that may happen."""
    with judge_of_yes() if fault.asks_judge else nullcontext("") as url:
        words = flags(settings_of(fault, model, run, is_tiny, url))
        program = [sys.executable, "-m", "slimrl", "rl"]
        if fault.keeps_weights:
            program = [sys.executable, "-m", "benchmarks.checks.monitors", "--keeps-weights"]
        subprocess.run([*program, *words], check=not fault.keeps_weights)


def outcome(fault: Pathology, run: Path) -> dict[str, Any]:
    """The alarms of a run with a planted fault, and whether they are the right ones."""
    alarms = read_lines(RunDir(run).alarms)
    raised = {alarm["monitor"]: {"step": alarm["step"], "onset": alarm["onset"]} for alarm in reversed(alarms)}
    found = [raised[name] for name in fault.expected if name in raised]
    return {
        "expected": fault.expected,
        "raised": raised,
        "steps": sum("reward/mean" in metrics for _, metrics in read_metrics(RunDir(run).metrics)),
        "right": bool(found) and min(one["step"] - one["onset"] for one in found) <= FEW,
        "others": sorted(set(raised) - {*fault.expected, *fault.likely}),
        "message": next((alarm["message"] for alarm in alarms if alarm["monitor"] in fault.expected), ""),
    }


def recorded(more: Sequence[Path]) -> dict[str, Any]:
    """The alarms of runs that are known to be healthy, by run: an empty list for each if all is well."""
    found = {
        str(path.parent.relative_to(RESULTS)): replay(path.parent) for path in sorted(RESULTS.rglob("metrics.jsonl"))
    }
    return found | {f"another run, {path.name}": {**replay(path), **cost(path)} for path in more}


def replay(run: Path) -> dict[str, Any]:
    """What the monitors say of a run's metrics, with the numbers of its rollouts if they are kept."""
    health, alarms, num, num_measured = Health(MonitorsConfig()), [], 0, 0
    for step, metrics in read_metrics(RunDir(run).metrics):
        if "reward/mean" in metrics and (more := numbers_of_rollouts(run, step, metrics)):
            metrics, num_measured = metrics | more, num_measured + 1
        alarms += [f"{alarm.monitor}, step {alarm.step}: {alarm.message}" for alarm in health.look(step, metrics)]
        num += "reward/mean" in metrics
    return {"steps": num, "steps_with_rollouts": num_measured, "alarms": alarms}


def numbers_of_rollouts(run: Path, step: int, metrics: Metrics) -> Metrics:
    """The numbers `monitor/...` of a step, from the run's file of rollouts."""
    path = RunDir(run).rollouts_of(step)
    if not path.exists() or "monitor/surprise" in metrics:
        return {name: value for name, value in metrics.items() if name.startswith("monitor/")}
    return measure(groups_of(path))


def groups_of(path: Path) -> list[list[Rollout]]:
    """The rollouts of a file by task and role, without failed ones."""
    groups: dict[tuple[str, str], list[Rollout]] = {}
    for rollout in (record.rollout for record in read_rollouts(path) if not record.rollout.failure):
        groups.setdefault((rollout.task_id, rollout.role), []).append(rollout)
    return list(groups.values())


def healthy(arguments: argparse.Namespace) -> dict[str, Any]:
    """The alarms of short runs of the examples, and the monitors' share of their time."""
    found = {}
    for run in HEALTHY:
        if not arguments.only or run.name in arguments.only:
            directory = arguments.runs / run.name.replace(", ", "_").replace(" ", "_")
            settings = {**SHORT, **run.settings, "output_dir": directory}
            finish(Job("rl", ["@", str(ROOT / run.recipe), *flags(settings)], directory))
            drop_weights(directory)
            alarms = [
                f"{one['monitor']}, step {one['step']}: {one['message']}"
                for one in read_lines(RunDir(directory).alarms)
            ]
            found[run.name] = {"alarms": alarms, **cost(directory)}
            print(f"{run.name}: {found[run.name]}", flush=True)
    return found


def cost(run: Path) -> dict[str, Any]:
    """The time that the monitors take for the run's steps, measured again on its files, beside that of the steps."""
    health, spent, steps = Health(MonitorsConfig()), 0.0, []
    for step, metrics in read_metrics(RunDir(run).metrics):
        if "time/step_s" in metrics:
            groups = groups_of(RunDir(run).rollouts_of(step))
            began = time.perf_counter()
            measure(groups)
            health.look(step, metrics)
            spent += time.perf_counter() - began
            steps.append(metrics["time/step_s"])
    return {"steps": len(steps), "monitors_s": spent, "steps_s": sum(steps), "share": spent / sum(steps)}


def is_good(content: Mapping[str, Any]) -> bool:
    """Whether every fault was noticed by the right monitor alone, and nothing else raised an alarm."""
    faults = [one for key in content if key.startswith("planted") for one in content[key].values()]
    runs = [one for key in ("recorded", "healthy") for one in content.get(key, {}).values()]
    return all(one["right"] and not one["others"] for one in faults) and not any(one["alarms"] for one in runs)


def table(content: Mapping[str, Any]) -> str:
    """What was planted and what was raised; and the numbers of healthy runs and of their alarms."""
    rows = [
        (
            f"{name}{key.removeprefix('planted')}",
            ", ".join(f"{one} ({at['step'] + 1})" for one, at in fault["raised"].items()),
            "yes" if fault["right"] and not fault["others"] else "no",
        )
        for key in content
        if key.startswith("planted")
        for name, fault in content[key].items()
    ]
    parts = [markdown_table(("planted", "raised (at step)", "right"), rows)] if rows else []
    for key in ("recorded", "healthy"):
        runs = content.get(key, {})
        if runs:
            steps, alarms = sum(one["steps"] for one in runs.values()), sum(len(one["alarms"]) for one in runs.values())
            parts.append(f"{key}: {len(runs)} runs of {steps} steps, {alarms} alarms")
    runs = [one for key in ("recorded", "healthy") for one in content.get(key, {}).values()]
    if shares := [one["share"] for one in runs if "share" in one]:
        parts.append(f"the monitors' share of a step: {max(shares):.2%} at most")
    return "\n\n".join(parts)


if __name__ == "__main__":
    main()
