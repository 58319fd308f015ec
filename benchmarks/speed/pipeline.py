"""Is the model of the pipeline right? Real runs of reverse_text in five placements, of which two calibrate it.

    python -m benchmarks.speed.pipeline                                  18 minutes on two quiet cores
    python -m benchmarks.speed.pipeline --only "one process, level 0" "one process, level 2" --steps 8

One process at `max_async_level` 0 and 2, and processes at level 0, where those that share the machine take turns,
with an environment whose every step takes 2 s (`harness/slow_reverse.py`) and with one that answers at once. Of each
kind the run at level 0 with 2 s calibrates the model (`slimrl_tools/plan/pipeline.py`): its speeds, and its episodes.
With these the model foretells the others. It is also held against what `benchmarks.speed.async_levels` has recorded,
by that file's own run at level 0. Runs of the same settings are not made again. Writes
`benchmarks/results/pipeline.json`.
"""

import argparse
import json
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.harness.measure import RESULTS, ROOT, machine_facts, markdown_table, write_result
from benchmarks.harness.runs import Job, drop_weights, finish, flags
from benchmarks.harness.warmup import warm_up
from slimrl.config.reading.saved import read_run_config
from slimrl.config.run import RLConfig
from slimrl_tools.plan.measure import this_machine
from slimrl_tools.plan.pipeline import IDLE, RecordedEpisodes, RecordedRun, calibrate, read_run
from slimrl_tools.plan.plan import make_planner
from slimrl_tools.plan.replica import Costs, Recipe
from slimrl_tools.plan.simulate import EpisodeGroup, Outcome, Placement, simulate
from slimrl_tools.plan.timing import Speeds
from slimrl_tools.system import own_memory

SLOW_S = 2.0
SIMULATED_STEPS = 100
WITHIN = 0.15
FITTED = "sampling", "training", "weights_s", "batch_s"
ASYNC_LEVELS = "async_levels.json"


@dataclass(frozen=True, slots=True)
class Case:
    """A placement to measure: its kind, its level, and the seconds that the environment takes over a reply."""

    kind: str
    level: int
    delay_s: float

    @property
    def calibrates(self) -> bool:
        """Whether the model is calibrated by this run."""
        return self.level == 0 and self.delay_s > 0

    @property
    def name(self) -> str:
        """What it is called."""
        kind = "one process" if self.kind == "one-process" else "processes"
        return f"{kind}, level {self.level}{'' if self.delay_s else ', no wait'}"


CASES = (
    Case("one-process", 0, SLOW_S),
    Case("one-process", 2, SLOW_S),
    Case("one-process", 0, 0.0),
    Case("processes", 0, SLOW_S),
    Case("processes", 0, 0.0),
)


def run(case: Case, weights: Path, arguments: argparse.Namespace) -> Path:
    """The directory of a finished run."""
    directory: Path = arguments.runs / case.name.replace(",", "").replace(" ", "_")
    environment = {
        "id": f"{ROOT / 'benchmarks' / 'harness' / 'slow_reverse.py'}:SlowReverseText",
        "args": {"delay_s": case.delay_s, "style": "code", "min_length": 4, "max_length": 10},
        "worker": "none",
    }
    settings = {
        "output_dir": directory,
        "max_steps": arguments.steps,
        "max_async_level": case.level,
        "deployment.type": case.kind,
        "model.name": weights,
        "model.dtype": arguments.dtype,
        "warmup.max_steps": 0,
        "orchestrator.batch_size": arguments.batch_size,
        "inference.max_slots": 3 * arguments.batch_size,  # all that is in flight at once, at every level
        "eval.num_examples": 1,
        "eval.temperatures": "[0.0]",
        "ckpt.interval_steps": 0,
        "plan": "off",
        "orchestrator.env": json.dumps([environment]),
    }
    finish(Job("rl", ["@", str(ROOT / "examples/reverse_text/rl.toml"), *flags(settings)], directory))
    drop_weights(directory)
    return directory


def speeds_of(directory: Path) -> Speeds:
    """The estimated speeds of this machine for a run's model, which calibration stretches."""
    config = read_run_config(directory)
    assert isinstance(config, RLConfig)
    return make_planner(config, own_memory()).on(this_machine(directory, config.model.device)).speeds


def with_delay(episodes: RecordedEpisodes, delay_s: float) -> RecordedEpisodes:
    """The episodes, in an environment that takes so many seconds over every reply."""

    def changed(group: EpisodeGroup) -> EpisodeGroup:
        played = ((start, *(turn._replace(env_s=delay_s) for turn in turns)) for start, *turns in group.episodes)
        return replace(group, episodes=tuple(played))

    return replace(episodes, groups=tuple(map(changed, episodes.groups)))


def compare(measured: RecordedRun, foretold: Outcome) -> dict[str, Any]:
    """What was measured beside what the model says."""
    step_s = measured.mean("time/step_s")
    return {
        "steps": len(measured.steps),
        "measured_steps_per_min": 60 / step_s,
        "foretold_steps_per_min": 60 / foretold.step_s,
        "foretold_over_measured": step_s / foretold.step_s,
        "measured_train_s": measured.mean("time/train_s"),
        "foretold_train_s": foretold.train_s,
        "measured_age_mean": measured.mean("async/age_mean"),
        "foretold_age_mean": foretold.age_mean,
        "measured_sampler_idle": measured.mean(IDLE),
        "measured_wait_weights_s": measured.mean("time/wait_weights_s"),
        "step_s": [round(metrics["time/step_s"], 3) for metrics in measured.steps],
    }


def check_recorded(speeds: Speeds, episodes: RecordedEpisodes) -> dict[str, Any]:
    """The runs of `async_levels.json`, in one process: those with 2 s at level 0 calibrate, and foretell the others. As
    its episodes are not kept, those of this benchmark stand for them: the task, the warm-up and the model are the
    same."""
    recorded = json.loads((RESULTS / ASYNC_LEVELS).read_text(encoding="utf-8"))
    summaries, batch = recorded["summary"], recorded["batch_size"]
    recipe = Recipe(batch, 8, 3, 2048)

    def made(delay: str, level: str) -> RecordedRun:
        one = dict(summaries[delay][level])
        metrics = {name: one[name] for name in one if "/" in name and isinstance(one[name], float)}
        metrics["time/step_s"] = 60 / one["steps_per_min"]
        placement = Placement("one-process", int(level), slots=3 * batch)
        return RecordedRun(placement, recipe, with_delay(episodes, float(delay)), [metrics])

    costs = calibrate(speeds, made("2", "0"))
    found: dict[str, Any] = {}
    for delay, levels in summaries.items():
        for level in levels:
            run = made(delay, level)
            outcome = simulate(run.placement, recipe, costs, run.episodes.groups, SIMULATED_STEPS)
            name = f"one process, level {level}{'' if float(delay) else ', no wait'}"
            found[name] = compare(run, outcome) | {"calibrates": (delay, level) == ("2", "0")}
    return found


def foretell(runs: dict[Case, RecordedRun], directories: dict[Case, Path]) -> Iterator[tuple[Case, Costs, Outcome]]:
    """The outcome of each placement by the model that the run of its kind has calibrated."""
    for calibrating in (case for case in runs if case.calibrates):
        run = runs[calibrating]
        costs = calibrate(speeds_of(directories[calibrating]), run)
        for case in (case for case in runs if case.kind == calibrating.kind):
            episodes = run.episodes if case.delay_s == calibrating.delay_s else with_delay(run.episodes, case.delay_s)
            yield case, costs, simulate(runs[case].placement, run.recipe, costs, episodes.groups, SIMULATED_STEPS)


def table(found: dict[str, dict[str, Any]]) -> str:
    """A line for each placement."""
    head = ["placement", "measured, steps a minute", "simulated", "simulated / measured", "age, measured", "simulated"]
    rows = []
    for name, one in found.items():
        ratio = f"{one['foretold_over_measured']:.2f}" + (" (calibrates)" if one["calibrates"] else "")
        speeds = [f"{one[f'{what}_steps_per_min']:.1f}" for what in ("measured", "foretold")]
        rows.append([name, *speeds, ratio, *(f"{one[f'{what}_age_mean']:.2f}" for what in ("measured", "foretold"))])
    return markdown_table(head, rows)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--skip", type=int, default=4, help="steps at the start that are not timed")
    parser.add_argument("--batch-size", type=int, default=32, help="rollouts in a step, in groups of 8")
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--only", nargs="+", help="these placements; those that calibrate must be among them")
    parser.add_argument("--runs", type=Path, default=Path("outputs/pipeline"), help="where the runs go")
    parser.add_argument("--output", type=Path, default=RESULTS / "pipeline.json")
    arguments = parser.parse_args(argv)
    machine, weights = machine_facts(), warm_up(arguments).resolve()
    chosen = [case for case in CASES if case.name in (arguments.only or [case.name])]
    directories = {case: run(case, weights, arguments) for case in chosen}
    here = this_machine(arguments.runs)
    runs = {case: read_run(directory, here, arguments.skip) for case, directory in directories.items()}
    found: dict[str, dict[str, Any]] = {}
    calibrated: dict[str, Any] = {}
    for case, costs, outcome in foretell(runs, directories):
        found[case.name] = compare(runs[case], outcome) | {"calibrates": case.calibrates}
        calibrated[case.kind] = {name: asdict(costs)[name] for name in FITTED}
    print(table(found))
    content = {name: vars(arguments)[name] for name in ("steps", "skip", "batch_size", "model", "dtype")}
    content |= {"calibrated": calibrated, "placements": found}
    if alone := next((case for case in chosen if case.calibrates and case.kind == "one-process"), None):
        content["async_levels"] = check_recorded(speeds_of(directories[alone]), runs[alone].episodes)
        print(f"\nheld against {ASYNC_LEVELS}\n{table(content['async_levels'])}")
    off = [abs(one["foretold_over_measured"] - 1) for one in found.values() if not one["calibrates"]]
    within = sum(one <= WITHIN for one in off)
    content |= {"within_15_percent": within, "foretold": len(off), "median_off": statistics.median(off) if off else 0.0}
    print(f"\n{within} of {len(off)} placements that were foretold are within {WITHIN:.0%}")
    write_result(arguments.output, machine, content, {str(arguments.runs): "RUNS"})


if __name__ == "__main__":
    main()
