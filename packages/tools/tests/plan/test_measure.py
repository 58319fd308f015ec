"""Timing with random weights: real modules, and a model of which only some layers are measured."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from slimrl.config.reading.load import load
from slimrl.config.run import RLConfig, SFTConfig
from slimrl.models.native import ops
from slimrl_tools.plan.devices import Device, Machine
from slimrl_tools.plan.measure import measure, recall_speeds
from slimrl_tools.plan.plan import Plan
from slimrl_tools.plan.planner import make_planner
from slimrl_tools.plan.report import two_lines
from slimrl_tools.plan.timing import Speeds, rough_speeds

MACHINE = Machine("a CPU", Device("CPU", "cpu", 24e9, 2e10, 1e12, 2e11), 0, 24e9, 1e12)
SHAPE = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 8,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 300,
}


ROUGH = Speeds(1e-3, 1e-4, 1e-5, 7e-3, 1e-2, "estimated")


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SLIMRL_CACHE", str(tmp_path / "cache"))
    (tmp_path / "config.json").write_text(json.dumps(SHAPE))
    return tmp_path


def rl_config(model: Path, *more: str, env: str = "reverse-text") -> RLConfig:
    words = ["--model.name", str(model), "--model.dtype", "float32", "--orchestrator.env.0.id", env]
    return load(RLConfig, [*words, *more], {}).config


def sft_config(model: Path, *more: str) -> SFTConfig:
    words = ["--model.name", str(model), "--model.dtype", "float32", "--data.type", "expert"]
    return load(SFTConfig, [*words, "--data.env.id", "reverse-text", *more], {}).config


@pytest.mark.slow
@pytest.mark.parametrize("lora", ["0", "4"])
def test_speeds_are_measured_once_and_then_known(model: Path, lora: str) -> None:
    pytest.importorskip("peft")
    config = rl_config(model, "--model.lora.rank", lora, "--orchestrator.batch_size", "16")
    planner = make_planner(config, 0.8e9)
    demand = planner.on(MACHINE).demand
    assert recall_speeds(config, demand, planner.basis.workload) is None
    speeds = measure(config, demand, planner.basis.workload, 24e9, ROUGH)
    assert min(speeds.decode_step, speeds.decode_row, speeds.prefill, speeds.train, speeds.head, speeds.update) > 0
    assert recall_speeds(config, demand, planner.basis.workload) == speeds
    assert planner.on(MACHINE, measures=True).speeds == speeds


@pytest.mark.slow
def test_a_large_model_is_measured_with_some_of_its_layers(model: Path) -> None:
    config = sft_config(model, "--batch_size", "4")
    planner = make_planner(config, 0.8e9)
    demand = planner.on(MACHINE).demand
    speeds = measure(config, demand, planner.basis.workload, 1e6, ROUGH)
    assert "2 and 4 of 8 layers" in speeds.source
    assert min(speeds.train, speeds.update) > 0


Found = dict[str, float]


@pytest.mark.parametrize(
    ("few", "more", "train", "source"),
    [
        (1e-3, 2e-3, 4e-3, "layers"),
        (3e-3, 1e-3, ROUGH.train, "but for train, which noise hid"),
        (0.0, 0.0, ROUGH.train, "but for train, which noise hid"),
    ],
)
def test_a_speed_that_noise_hides_is_estimated_and_never_kept_as_nothing(
    few: float, more: float, train: float, source: str, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = sft_config(model)
    planner = make_planner(config, 0.8e9)
    demand = planner.on(MACHINE).demand
    found: Iterator[Found] = iter([{"train": few, "update": 0.1}, {"train": more, "update": 0.2}])  # 2 and 4 layers
    monkeypatch.setattr("slimrl_tools.plan.measure._measure", lambda *arguments: next(found))
    speeds = measure(config, demand, planner.basis.workload, 1e6, ROUGH)
    assert speeds.train == pytest.approx(train) and source in speeds.source
    assert speeds.update == pytest.approx(0.1 + 0.1 * (8 - 2) / 2)
    assert recall_speeds(config, demand, planner.basis.workload) == speeds


@pytest.mark.slow
def test_estimates_follow_bandwidth_and_operations(model: Path) -> None:
    planner = make_planner(rl_config(model), 0.8e9)
    demand = planner.on(MACHINE).demand
    slow = rough_speeds(demand, MACHINE.device, planner.basis.workload)
    fast = rough_speeds(demand, Device("CPU", "cpu", 24e9, 4e10, 1e12, 8e11), planner.basis.workload)
    assert fast.train == pytest.approx(slow.train / 4)
    assert fast.update == pytest.approx(slow.update / 2)


def test_without_kernels_a_step_is_expected_to_take_twice_as_long(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planner = make_planner(rl_config(model), 0.8e9)

    def plan_where(has_kernels: bool) -> Plan:
        monkeypatch.setattr(ops, "available", lambda tensor: has_kernels)
        return planner.on(MACHINE)

    fast, slow = plan_where(True), plan_where(False)
    assert slow.speeds.train > 1.5 * fast.speeds.train
    assert slow.speeds.decode_row > 1.5 * fast.speeds.decode_row
    assert "without the C++ kernels" in two_lines(slow)[1]
    assert "without the C++ kernels" not in two_lines(fast)[1]
