"""What the learning benchmarks share: one recipe on several seeds, with held-out evaluation and intervals.

Trains the seeds one after the other through the public command, and copies what the claim rests on to
`benchmarks/results/`. Finished runs of the same settings are not made again, and interrupted ones go on.
"""

import argparse
import json
import re
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness.episodes import keep_rewards
from benchmarks.harness.runs import MAY_DIFFER, ROOT, SUMMARY, Job, finish
from benchmarks.harness.seed_plots import plot_runs
from slimrl.config.reading.load import Resolved, load
from slimrl.config.reading.saved import config_toml
from slimrl.config.run import RLConfig
from slimrl.io.run_dir import RunDir

# Held-out evaluations, and what they are of: with a warm-up before RL, and without one.
STAGES = {"base": "base", "start": "after_warmup", "final": "after_rl"}
STAGES_WITHOUT_WARMUP = {"start": "base", "final": "after_rl"}
KEPT = ("metrics.jsonl", SUMMARY)


@dataclass(frozen=True, slots=True)
class Recipe:
    """A recipe, below `examples/`; `metrics` are held-out ones to report at every stage, and `curves` training metrics
    to draw below the reward."""

    config: str
    name: str
    title: str
    metrics: Sequence[str]
    curves: Sequence[str] = ()

    @property
    def results(self) -> Path:
        return ROOT / "benchmarks" / "results" / self.name


def run_seeds(recipe: Recipe, arguments: argparse.Namespace) -> dict[int, Path]:
    """The runs, all of them finished. The outcome of these and of what is kept of other seeds is in `outcome.json`,
    their curves are in `docs/NAME.png`."""
    runs = {seed: arguments.runs / f"seed_{seed}" for seed in arguments.seeds}
    config = str(ROOT / "examples" / recipe.config)
    for seed, run in runs.items():
        argv = ["@", config, "--seed", str(seed), "--output-dir", str(run), *arguments.flags]
        finish(Job("rl", argv, run), resume=True)
        keep(run, recipe.results / run.name)
    seeds = runs_beside(recipe.results / runs[arguments.seeds[0]].name)
    table = {kept.name: outcome(kept, recipe.metrics) for kept in seeds}
    (recipe.results / "outcome.json").write_text(json.dumps(table, indent=1) + "\n")
    plot_runs(seeds, ROOT / "docs" / f"{recipe.name}.png", f"{recipe.title}, {len(seeds)} seeds", recipe.curves)
    for name, result in table.items():
        _show(name, result)
    return runs


def runs_beside(kept: Path) -> list[Path]:
    """What is kept of a seed, and of the others with its settings, in order: a seed may take an hour, and each can be
    made at another time."""
    asked = _settings(kept)
    return [one for one in sorted(kept.parent.glob("seed_*")) if _settings(one) == asked]


def parser(description: str, runs: str) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    made.add_argument("--runs", type=Path, default=Path(runs), help="where the runs go")
    made.add_argument("--flags", nargs=argparse.REMAINDER, default=[], help="more of the command's own, to the end")
    return made


def stages_of(run: Path) -> dict[str, str]:
    return STAGES if (run / "held_out" / "base.json").exists() else STAGES_WITHOUT_WARMUP


def outcome(run: Path, metrics: Sequence[str]) -> dict[str, Any]:
    """Held-out reward and metrics at every stage, and whether the 95% intervals before and after RL are apart."""
    names = stages_of(run)
    stages = {stage: json.loads((run / "held_out" / f"{stage}.json").read_text()) for stage in names}
    result: dict[str, Any] = {"minutes": json.loads((run / SUMMARY).read_text())["duration_s"] / 60}
    for mode in ("greedy", "sampled"):
        before, after = (stages[stage]["held_out"][mode] for stage in ("start", "final"))
        result[mode] = {
            **{name: stages[stage]["held_out"][mode] for stage, name in names.items()},
            "rise": after["mean"] - before["mean"],
            "intervals_apart": after["low"] > before["high"],
        }
        for metric in metrics:
            values = [stages[stage]["metrics"][f"held_out/{metric}_{mode}"] for stage in names]
            result[mode][metric] = [round(value, 4) for value in values]
    return result


def keep(run: Path, target: Path) -> None:
    """Copy what the claim rests on, without this machine's paths: of the settings, not where each came from; of the
    held-out rollouts, their rewards."""
    config = load(RLConfig, ["@", str(RunDir(run).settings)], {}).config
    for name in (*KEPT, *(f"held_out/{stage}.json" for stage in stages_of(run))):
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(run / name, target / name)
    keep_rewards(run, target)
    places = {run.parent, Path(config.output_dir).parent}  # a run may have been moved
    summary = target / SUMMARY
    summary.write_text(_without_places(summary.read_text(), places))
    # Its first line is the command that reads it, as in every TOML file of the repository.
    settings = config_toml(Resolved(config, {})).replace("@ config.toml", f"@ {RunDir(target).settings}", 1)
    RunDir(target).settings.write_text(_without_places(settings, places))


def _settings(kept: Path) -> dict[str, Any]:
    """The settings of a kept run without those that differ between seeds."""
    return load(RLConfig, ["@", str(RunDir(kept).settings)], {}).config.model_dump(exclude=MAY_DIFFER | {"seed"})


def _without_places(text: str, places: Iterable[Path]) -> str:
    """Runs are named as those of the repository; of other absolute paths, such as a corpus, the last name is left."""
    for place in places:
        if place.is_absolute():
            text = text.replace(f"{place}/", f"outputs/{place.name}/")
    return re.sub(r'"/[^"\n]*/([^"/\n]+)"', r'"\1"', text.replace(f"{ROOT}/", ""))


def _show(name: str, result: dict[str, Any]) -> None:
    for mode in ("greedy", "sampled"):
        row = result[mode]
        means = " -> ".join(f"{row[stage]['mean']:.3f}" for stage in STAGES.values() if stage in row)
        apart = "intervals apart" if row["intervals_apart"] else "intervals overlap"
        print(f"{name} {mode:>7}: {means}  rise by RL {row['rise']:.3f}, {apart}  {result['minutes']:.1f} min")
