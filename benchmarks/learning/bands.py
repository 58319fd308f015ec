"""Makes the recorded curves that `slimrl check-curve` and the viewer compare runs with, from seeds that are kept.

`uv run python -m benchmarks.learning.bands`: writes `slimrl_tools/curves/bands/NAME.json` for each recipe below, from
`benchmarks/results/`. Takes seconds; run it when seeds were recorded anew, or a recipe's settings were renamed.
"""

import json
import math
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness.runs import ROOT
from slimrl.config.reading.load import load
from slimrl.config.reading.saved import NO_RECIPE, flat_settings
from slimrl.config.run import RLConfig
from slimrl.io.run_dir import RunDir
from slimrl.monitor.series import Series, load_series
from slimrl_tools.curves.reference import SAME_NUMBERS

RESULTS = ROOT / "benchmarks" / "results"
BANDS = ROOT / "packages" / "tools" / "src" / "slimrl_tools" / "curves" / "bands"
CURVES = (
    "reward/mean", "reward/zero_signal_groups", "rollout/tokens_sampled_mean", "rollout/truncated", "loss/entropy",
    "optim/grad_norm",
)  # fmt: skip
DIGITS = 5
MAY_DIFFER = ("max_async_level", "model.dtype")  # `auto` is one of the values that were recorded


@dataclass(frozen=True, slots=True)
class Recorded:
    """A recipe, and the directories below `benchmarks/results/` with its seeds."""

    name: str
    config: str
    results: Sequence[str]


RECORDED = (
    Recorded("alphabet_sort", "examples/alphabet_sort/rl.toml", ["alphabet_sort"]),
    Recorded("context_distill", "experiments/context_distill/rl.toml", ["context_distill"]),
    Recorded("matching_game", "examples/matching_game/rl.toml", ["matching_game"]),
    Recorded("reverse_text", "examples/reverse_text/rl.toml", ["reverse_text", "reverse_text_bfloat16"]),
    Recorded("wiki_search", "examples/wiki_search/rl.toml", ["wiki_search"]),
    Recorded("wordle", "examples/wordle/rl.toml", ["wordle"]),
)


def content_of(recorded: Recorded) -> dict[str, Any]:
    """What a band file holds. Exits if a seed was made with other settings than the recipe has now."""
    config = load(RLConfig, ["@", str(ROOT / recorded.config)], {}).config
    seeds = [path for result in recorded.results for path in sorted((RESULTS / result).glob("seed_*"))]
    for seed in seeds:
        _check_settings(seed, config, recorded.config)
    runs = [load_series(seed) for seed in seeds]
    shared = set.intersection(*(set(run) for run in runs))
    names = [name for name in sorted(shared) if name in CURVES or name.startswith(("env/", "held_out/reward_"))]
    return {
        "recipe": recorded.name,
        "config": recorded.config,
        "source": ", ".join(f"benchmarks/results/{result}" for result in recorded.results),
        "command": config.command,
        "settings": _given_settings(config, ROOT / recorded.config),
        "seeds": [seed.relative_to(RESULTS).as_posix() for seed in seeds],
        "curves": {name: [_rows(run[name]) for run in runs] for name in (*names, "held_out/num")},
    }


def main() -> None:
    BANDS.mkdir(exist_ok=True)
    for recorded in RECORDED:
        content = content_of(recorded)
        path = BANDS / f"{recorded.name}.json"
        path.write_text(text_of(content), encoding="utf-8")
        print(f"{path.relative_to(ROOT)}: {len(content['seeds'])} seeds, {path.stat().st_size // 1024} KiB")


def _given_settings(config: RLConfig, path: Path) -> dict[str, Any]:
    """The settings that a file gives, without defaults, so that a new setting changes no band file."""
    given = tomllib.loads(path.read_text(encoding="utf-8"))
    if RLConfig.model_validate_json(json.dumps(given)) != config:
        sys.exit(f"{path} says something by an old name or in another form: write it as `--dry-run` does.")
    return given


def _rows(series: Series) -> list[list[Any]]:
    steps, values = series
    return [steps.tolist(), [float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None for value in values]]


def text_of(content: dict[str, Any]) -> str:
    """The JSON of a band file, with a line for each member and for each metric, which a diff can show."""
    curves = ",\n".join(f"  {json.dumps(name)}: {json.dumps(rows)}" for name, rows in content["curves"].items())
    rest = [f" {json.dumps(key)}: {json.dumps(value)}" for key, value in content.items() if key != "curves"]
    return "{\n" + ",\n".join([*rest, f' "curves": {{\n{curves}\n }}']) + "\n}\n"


def _check_settings(seed: Path, config: RLConfig, recipe: str) -> None:
    """Some seeds were kept without their settings: of these the recipe's are believed, if the steps agree."""
    if not RunDir(seed).settings.exists():
        num = len(load_series(seed)["reward/mean"][0])
        if num != config.max_steps:
            sys.exit(f"{seed} has {num} steps, and {recipe} asks for {config.max_steps}: record it anew.")
        return
    made = flat_settings(load(RLConfig, ["@", str(RunDir(seed).settings)], {}, note=lambda text: None).config)
    asked = flat_settings(config)
    differing = [
        key
        for key in sorted(made.keys() | asked.keys())
        if made.get(key) != asked.get(key)
        and not (NO_RECIPE.fullmatch(key) or SAME_NUMBERS.fullmatch(key) or key in MAY_DIFFER)
    ]
    if differing:
        sys.exit(f"{seed} was made with other settings than {recipe} has now: {', '.join(differing)}.")


if __name__ == "__main__":
    main()
