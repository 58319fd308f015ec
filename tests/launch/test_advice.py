"""Unusual settings, and runs that cannot learn, get a note."""

from typing import cast

import pytest

from slimrl.config.model import LoraConfig
from slimrl.config.reading.load import load
from slimrl.config.run import RLConfig
from slimrl.launch.advice import advise, note_unusual_lora
from slimrl.monitor.console import RunConsole
from slimrl.types import Script, Taskset


class Noting:
    """A console that keeps its notes."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str, style: str = "") -> None:
        self.notes.append(text)


@pytest.mark.parametrize(
    ("rank", "alpha", "lr", "starts"),
    [
        (0, 1e6, 1e-5, []),
        (8, 32.0, 2e-4, []),
        (1, 32.0, 1e-3, []),
        (8, 32.0, 1e-5, ["optim.lr = 1e-05"]),
        (8, 32.0, 0.1, ["optim.lr = 0.1"]),
        (8, 1024.0, 2e-4, ["model.lora.alpha / model.lora.rank = 128"]),
        (64, 1.0, 1e-5, ["optim.lr", "model.lora.alpha"]),
    ],
)
def test_unusual_settings_get_a_note(rank: int, alpha: float, lr: float, starts: list[str]) -> None:
    console = Noting()
    note_unusual_lora(LoraConfig(rank=rank, alpha=alpha), "optim.lr", lr, cast(RunConsole, console))
    assert [text.startswith(start) for text, start in zip(console.notes, starts, strict=True)] == [True] * len(starts)


class Tasks(Taskset):
    """A taskset with the scripts of the given names."""

    def __init__(self, *scripts: str) -> None:
        self._names = scripts

    @property
    def scripts(self) -> dict[str, Script]:
        return dict.fromkeys(self._names, lambda task, seed: [])


HIGH = "held_out/reward_greedy_high"  # the interval's end, which is above 0 where nothing was earned
ZERO = {"reward/max": 0.0}


@pytest.mark.parametrize(
    ("flags", "script", "metrics", "said"),
    [
        ("", "expert", ZERO, "--warmup.max_steps 20"),
        ("", "expert", {"reward/max": -0.5, "held_out/reward_greedy": 0.0, HIGH: 0.16}, "--warmup.max_steps 20"),
        ("--warmup.max_steps 7", "expert", ZERO, "raise --warmup.max_steps, which is 7"),
        ("", "random", ZERO, "slimrl sft"),
        ("", "expert", {"reward/max": 0.1}, ""),
        ("", "expert", {**ZERO, "held_out/reward_greedy": 0.05}, ""),  # two rollouts may well fail
    ],
)
def test_a_model_that_earns_nothing_gets_advice_on_its_warm_up(
    flags: str, script: str, metrics: dict[str, float], said: str
) -> None:
    config = load(RLConfig, ["--orchestrator.env.0.id", "reverse-text", *flags.split()], {}).config
    console = Noting()
    advise(config, [Tasks(script)], metrics, cast(RunConsole, console))
    assert len(console.notes) == bool(said) and said in "".join(console.notes)
