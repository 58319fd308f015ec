"""Timing with random weights: real modules, and a model of which only some layers are measured."""

import json
from pathlib import Path

import pytest

from slimrl.config.reading.load import load
from slimrl.config.run import RLConfig, SFTConfig
from slimrl.launch.planning import make_planner
from slimrl.plan.devices import Device, Machine
from slimrl.plan.measure import cached_speeds, measure
from slimrl.plan.timing import rough_speeds

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


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SLIMRL_CACHE", str(tmp_path / "cache"))
    (tmp_path / "config.json").write_text(json.dumps(SHAPE))
    return tmp_path


@pytest.mark.parametrize("lora", ["0", "4"])
def test_speeds_are_measured_once_and_then_known(model: Path, lora: str) -> None:
    pytest.importorskip("peft")
    words = ["--model.name", str(model), "--model.dtype", "float32", "--orchestrator.env.0.id", "reverse-text"]
    config = load(RLConfig, [*words, "--model.lora.rank", lora, "--orchestrator.batch_size", "16"], {}).config
    planner = make_planner(config, 0.8e9)
    demand = planner.on(MACHINE).demand
    assert cached_speeds(config, demand, planner.workload) is None
    speeds = measure(config, demand, planner.workload, 24e9)
    assert speeds.decode_step + speeds.decode_row > 0
    assert speeds.train > 0
    assert cached_speeds(config, demand, planner.workload) == speeds
    assert planner.on(MACHINE, measures=True).speeds == speeds


def test_a_large_model_is_measured_with_some_of_its_layers(model: Path) -> None:
    words = ["--model.name", str(model), "--model.dtype", "float32", "--data.type", "expert"]
    config = load(SFTConfig, [*words, "--data.env.id", "reverse-text", "--batch_size", "4"], {}).config
    planner = make_planner(config, 0.8e9)
    demand = planner.on(MACHINE).demand
    speeds = measure(config, demand, planner.workload, 1e6)
    assert "2 and 4 of 8 layers" in speeds.source
    assert speeds.train > 0


def test_estimates_follow_bandwidth_and_operations(model: Path) -> None:
    words = ["--model.name", str(model), "--model.dtype", "float32", "--orchestrator.env.0.id", "reverse-text"]
    planner = make_planner(load(RLConfig, words, {}).config, 0.8e9)
    demand = planner.on(MACHINE).demand
    slow = rough_speeds(demand, MACHINE.device, planner.workload)
    fast = rough_speeds(demand, Device("CPU", "cpu", 24e9, 4e10, 1e12, 8e11), planner.workload)
    assert fast.train == pytest.approx(slow.train / 4)
    assert fast.update == pytest.approx(slow.update / 2)
