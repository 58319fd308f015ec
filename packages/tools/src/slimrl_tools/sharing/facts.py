"""Reads facts about saved weights from the files of their run: settings, evaluations, cost, versions, base model."""

import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from huggingface_hub import ModelCard

from slimrl.config.base import CommandConfig
from slimrl.config.data import ExpertDataConfig
from slimrl.config.reading.saved import read_run_config
from slimrl.config.run import RLConfig, SFTConfig, TrainingRunConfig
from slimrl.errors import UserError
from slimrl.io.regular_file import read_json, read_regular
from slimrl.io.run_dir import STEP, RunDir, step_of
from slimrl.models.names import PACKAGED, ModelKind, kind_of
from slimrl.monitor.series import Series, load_series
from slimrl.monitor.summary import Stage
from slimrl.plugins import call
from slimrl.types import Metrics
from slimrl_tools.doctor.machine import version_of

MAX_BYTES = 2**24
PACKAGES = ("slimrl", "torch", "transformers", "peft")
# Models that are available as packages: their name on the Hub, licence, and a note.
HUB_NAMES = {
    "smollm2-135m": ("HuggingFaceTB/SmolLM2-135M-Instruct", "apache-2.0", "as its 4-bit GGUF file (Q4_1) has it"),
}


@dataclass(frozen=True, slots=True)
class BaseModel:
    """The model before training. `hub_name` is its name on the Hub. `hub_name` and `licence` are empty if unknown.
    `note` is a remark for the card."""

    name: str
    hub_name: str = ""
    licence: str = ""
    note: str = ""

    @property
    def best_name(self) -> str:
        """Return the name under which other people are most likely to find the model."""
        return self.hub_name or self.name


@dataclass(frozen=True, slots=True)
class RunFacts:
    """Facts about the weights that a run saved at `step`. `stages` are the run's evaluations in order of time, each
    with its held-out metrics. If `evaluated` is True, the last stage evaluates these weights. `cost` is empty unless
    these weights are from the run's last step."""

    config: TrainingRunConfig
    step: int
    base: BaseModel
    stages: tuple[tuple[Stage, Metrics], ...]
    evaluated: bool
    series: Mapping[str, Series]
    cost: Mapping[str, float]
    versions: Mapping[str, str]

    @property
    def environments(self) -> list[str]:
        """Return the names of the environments that the run trained on, without directories. Without environments,
        return `conversations`."""
        match self.config:
            case RLConfig():
                return list(dict.fromkeys(env.id.rpartition("/")[2] for env in self.config.orchestrator.env))
            case SFTConfig(data=ExpertDataConfig() as data):
                return [data.env.id.rpartition("/")[2]]
        return ["conversations"]


def read_facts(run_dir: Path, weights: Path) -> RunFacts:
    """Return facts on `weights`, a directory `step_N` of the run. Raises UserError if the run's files cannot be
    read."""
    config = read_run_config(run_dir)
    if not isinstance(config, TrainingRunConfig) or not STEP.fullmatch(weights.resolve().name):
        raise UserError(f"{weights} is no directory of weights that a run has saved, as {run_dir}/weights/step_N.")
    step = step_of(weights.resolve())
    is_last, summary = step == config.max_steps, RunDir(run_dir).summary
    slugs = ("base", "start", "final" if is_last else f"step_{step}")
    # Import this function only when it is called: the import loads transformers, which would delay `slimrl push
    # --help`.
    recall = partial(call, "slimrl.launch.held_out:recall_stage", run_dir)
    stages = {slug: stage for slug in slugs if (stage := recall(slug, lambda damage: None))}
    return RunFacts(
        config=config,
        step=step,
        base=base_of(config),
        stages=tuple(stages.values()),
        evaluated=slugs[-1] in stages,
        series=load_series(run_dir),
        cost=read_json(summary, MAX_BYTES) if is_last and summary.is_file() else {},
        versions={"python": platform.python_version()} | {name: version_of(name) for name in PACKAGES},
    )


def base_of(config: CommandConfig) -> BaseModel:
    """Return the base model of a run, from local files only."""
    name = config.model.name if isinstance(config, TrainingRunConfig) else ""
    if name in PACKAGED:
        return BaseModel(name, *HUB_NAMES[name])
    try:
        kind = kind_of(name)
    except UserError:  # a directory that was moved after the run
        return BaseModel(Path(name).name)
    if kind is ModelKind.HUB:
        return BaseModel(name, name)
    path = Path(name).expanduser().resolve()
    readme = path / "README.md"
    if kind is ModelKind.DIRECTORY and readme.is_file():
        return BaseModel(path.name, _of_card(readme, "base_model"), _of_card(readme, "license"))
    return BaseModel(path.name)


def _of_card(readme: Path, key: str) -> str:
    """Return the text at `key` in a model card's metadata, or an empty text if it is missing or invalid."""
    try:
        value = ModelCard(read_regular(readme, MAX_BYTES).decode(), ignore_metadata_errors=True).data.get(key)
    except (UserError, ValueError):
        return ""
    return value if isinstance(value, str) and re.fullmatch(r"[\w./-]{1,96}", value) else ""
