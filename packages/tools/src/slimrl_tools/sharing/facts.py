"""Reads a run's files for facts on its saved weights: settings, evaluations, cost, versions, base model. Renders
nothing."""

import math
import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCard, try_to_load_from_cache

from slimrl.config.base import CommandConfig
from slimrl.config.reading.load import Resolved
from slimrl.config.reading.write import config_toml
from slimrl.config.run import TrainingRunConfig
from slimrl.errors import UserError
from slimrl.io.files import parse_object
from slimrl.io.regular_file import read_regular
from slimrl.models.names import PACKAGED, ModelKind, kind_of
from slimrl.monitor.run_settings import read_run_config
from slimrl.monitor.series import Series, load_series
from slimrl.stats import Estimate
from slimrl_tools.doctor.software import version_of
from slimrl_tools.sharing.places import shareable_text

STEP = re.compile(r"step_(\d+)")
MAX_BYTES = 2**24
PACKAGES = ("slimrl", "torch", "transformers", "peft")
# Models that are available as packages: their name on the Hub, licence, and a note.
HUB_NAMES = {
    "smollm2-135m": ("HuggingFaceTB/SmolLM2-135M-Instruct", "apache-2.0", "as its 4-bit GGUF file (Q4_1) has it"),
}


@dataclass(frozen=True, slots=True)
class Stage:
    """An evaluation of the run: the name of its weights, estimates by decoding mode, and other held-out metrics."""

    name: str
    held_out: Mapping[str, Estimate]
    metrics: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class BaseModel:
    """The model before training. `hub_name` is empty unless it is known on the Hub, `licence` if it is unknown; `note`
    is a remark for the card."""

    name: str
    hub_name: str
    licence: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class RunFacts:
    """Facts on the weights of one step of a run. `stages` are in order of time; the last one evaluates these weights if
    `evaluated` is True."""

    config: TrainingRunConfig
    step: int
    base: BaseModel
    stages: tuple[Stage, ...]
    evaluated: bool
    series: Mapping[str, Series]
    cost: Mapping[str, float]
    versions: Mapping[str, str]

    @property
    def settings(self) -> str:
        """Return the settings as TOML, without secrets and without this machine's paths and hosts."""
        return shareable_text(config_toml(Resolved(self.config, {})), ".toml")


def read_facts(run_dir: Path, weights: Path) -> RunFacts:
    """Return facts on `weights`, a directory `step_N` of the run. Raises UserError if the run's files cannot be
    read."""
    config = read_run_config(run_dir)
    found = STEP.fullmatch(weights.resolve().name)
    if not isinstance(config, TrainingRunConfig) or not found:
        raise UserError(f"{weights} is no directory of weights that a run has saved, as {run_dir}/weights/step_N.")
    step = int(found[1])
    slugs = ("base", "start", "final" if step == config.max_steps else f"step_{step}")
    stages = [(slug, stage) for slug in slugs if (stage := _read_stage(run_dir / "held_out" / f"{slug}.json"))]
    return RunFacts(
        config=config,
        step=step,
        base=base_of(config),
        stages=tuple(stage for _, stage in stages),
        evaluated=bool(stages) and stages[-1][0] == slugs[-1],
        series=load_series(run_dir),
        cost=_cost(run_dir / "summary.json") if step == config.max_steps else {},
        versions={
            "python": platform.python_version(),
            **{name: number for name in PACKAGES if (number := version_of(name))},
        },
    )


def base_of(config: CommandConfig) -> BaseModel:
    """Return the base model of a run, from local files only."""
    name = config.model.name if isinstance(config, TrainingRunConfig) else ""
    if name in PACKAGED:
        return BaseModel(name, *HUB_NAMES[name])
    try:
        kind = kind_of(name)
    except UserError:  # a directory that was moved since
        return BaseModel(Path(name).name, "", "")
    if kind is ModelKind.HUB:
        card = try_to_load_from_cache(name, "README.md")
        return BaseModel(name, name, _of_card(Path(card), "license") if isinstance(card, str) else "")
    path = Path(name).expanduser().resolve()
    readme = path / "README.md"
    if kind is ModelKind.DIRECTORY and readme.is_file():
        return BaseModel(path.name, _of_card(readme, "base_model"), _of_card(readme, "license"))
    return BaseModel(path.name, "", "")


def _of_card(readme: Path, key: str) -> str:
    """Return a text of a model card's metadata; empty if it has none."""
    try:
        data: Any = ModelCard(read_regular(readme, MAX_BYTES).decode("utf-8"), ignore_metadata_errors=True).data
    except (UserError, ValueError):
        return ""
    value = data.get(key)
    return value if isinstance(value, str) and re.fullmatch(r"[\w./-]{1,96}", value) else ""


def _read_stage(path: Path) -> Stage | None:
    """Return an evaluation in a run's files; None if it is missing or damaged."""
    if not path.is_file():
        return None
    try:
        content = parse_object(read_regular(path, MAX_BYTES))
        held_out = {mode: _estimate(**numbers) for mode, numbers in content["held_out"].items()}
        metrics = {name: value for name, value in content["metrics"].items() if isinstance(value, (int, float))}
        return Stage(content["name"], held_out, metrics)
    except (UserError, ValueError, LookupError, TypeError, AttributeError, OverflowError):
        return None


def _estimate(mean: float, low: float | None, high: float | None, num: int) -> Estimate:
    return Estimate(mean, math.nan if low is None else low, math.nan if high is None else high, num)


def _cost(path: Path) -> dict[str, float]:
    try:
        content = parse_object(read_regular(path, MAX_BYTES)) if path.is_file() else {}
        keys = ("duration_s", "tokens_sampled", "tokens_trained")
        return {key: float(content[key]) for key in keys if isinstance(content.get(key), (int, float))}
    except (ValueError, OverflowError):
        return {}
