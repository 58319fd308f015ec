"""Settings that are allowed but unusual are pointed out."""

import pytest

from slimrl.config.model import LoraConfig
from slimrl.config.reading.load import load
from slimrl.config.run import RLConfig
from slimrl.launch.advice import lora_warnings, nothing_earned
from slimrl.types import Environment, Script, Split, Task, Taskset


@pytest.mark.parametrize(
    ("rank", "alpha", "lr", "complaints"),
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
def test_unusual_settings_are_pointed_out(rank: int, alpha: float, lr: float, complaints: list[str]) -> None:
    found = lora_warnings(LoraConfig(rank=rank, alpha=alpha), "optim.lr", lr)
    assert [text.startswith(start) for text, start in zip(found, complaints, strict=True)] == [True] * len(complaints)


HIGH = "held_out/reward_greedy_high"  # the interval's end, which is above 0 where nothing was earned


class Tasks(Taskset):
    """A taskset with the scripts of the given names."""

    def __init__(self, *scripts: str) -> None:
        self._names = scripts

    @property
    def scripts(self) -> dict[str, Script]:
        return dict.fromkeys(self._names, lambda task, seed: [])

    def tasks(self, split: Split) -> list[Task]:
        return []

    def environment(self, task: Task) -> Environment:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("flags", "scripts", "metrics", "said"),
    [
        ((), ("expert",), {"reward/max": 0.0}, "--warmup.max_steps 20"),
        (
            (),
            ("expert",),
            {"reward/max": -0.5, "held_out/reward_greedy": 0.0, HIGH: 0.16},
            "--warmup.max_steps 20",
        ),
        (("--warmup.max_steps", "7"), ("expert",), {"reward/max": 0.0}, "raise --warmup.max_steps, which is 7"),
        ((), ("random",), {"reward/max": 0.0}, "slimrl sft"),
        ((), ("expert",), {"reward/max": 0.1}, ""),
        ((), ("expert",), {"reward/max": 0.0, "held_out/reward_greedy": 0.05}, ""),  # two rollouts may well fail
    ],
)
def test_a_model_that_earns_nothing_is_told_of_the_warm_up(
    flags: tuple[str, ...], scripts: tuple[str, ...], metrics: dict[str, float], said: str
) -> None:
    config = load(RLConfig, ["--orchestrator.env.0.id", "reverse-text", *flags], {}).config
    advice = nothing_earned(config, [Tasks(*scripts)], metrics)
    assert said in advice and bool(said) == bool(advice)
