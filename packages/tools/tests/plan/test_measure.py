"""Timing with random weights: real modules, and a model of which only some layers are measured."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from packages.tools.tests.plan.made import cpu, on, planner, settings, sft_settings
from slimrl.models.native import ops
from slimrl_tools.plan.devices import Device
from slimrl_tools.plan.measure import measure, recall_speeds
from slimrl_tools.plan.plan import Plan, Planner
from slimrl_tools.plan.report import two_lines
from slimrl_tools.plan.timing import rough_speeds

MACHINE = cpu(24)
SMALL = replace(MACHINE, memory=1e6)
SHAPE = {
    **{"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 8},
    **{"num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 300},
}


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SLIMRL_CACHE", str(tmp_path / "cache"))
    (tmp_path / "config.json").write_text(json.dumps(SHAPE))
    return tmp_path


def rl(model: Path, *more: str) -> Planner:
    return planner(settings(model, "--model.dtype", "float32", *more))


def sft(model: Path, *more: str) -> Plan:
    return on(sft_settings(model, "--model.dtype", "float32", *more), SMALL)


@pytest.mark.slow
@pytest.mark.parametrize("lora", ["0", "4"])
def test_speeds_are_measured_once_and_then_known(model: Path, lora: str) -> None:
    pytest.importorskip("peft")
    plan = rl(model, "--model.lora.rank", lora, "--orchestrator.batch_size", "16").on(MACHINE)
    assert recall_speeds(plan) is None
    speeds = measure(plan)
    assert min(speeds.decode_step, speeds.decode_row, speeds.prefill, speeds.train, speeds.update) > 0
    assert speeds.attend / speeds.train == pytest.approx(plan.speeds.attend / plan.speeds.train)
    assert recall_speeds(plan) == measure(plan) == speeds


@pytest.mark.slow
def test_a_large_model_is_measured_with_some_of_its_layers(model: Path) -> None:
    speeds = measure(sft(model, "--batch_size", "4"))
    assert "2 and 4 of 8 layers" in speeds.source
    assert min(speeds.train, speeds.update) > 0


@pytest.mark.parametrize(
    ("few", "more", "train"), [(1e-3, 2e-3, 4e-3), (3e-3, 1e-3, None), (0.0, 0.0, None)]
)  # of 2 and 4 layers
def test_a_speed_that_noise_hides_is_estimated_and_never_kept_as_nothing(
    few: float, more: float, train: float | None, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = sft(model)
    found = iter([{"train": few, "update": 0.1}, {"train": more, "update": 0.2}])
    monkeypatch.setattr("slimrl_tools.plan.measure._measure", lambda *arguments: next(found))
    speeds = measure(plan)
    assert speeds.train == pytest.approx(train or plan.speeds.train)
    assert ("but for train, which noise hid" in speeds.source) == (train is None)
    assert speeds.update == pytest.approx(0.1 + 0.1 * (8 - 2) / 2)
    assert recall_speeds(plan) == speeds


@pytest.mark.slow
def test_estimates_follow_bandwidth_and_operations(model: Path) -> None:
    plan = rl(model).on(MACHINE)
    slow, fast = (
        rough_speeds(plan.demand, Device("CPU", "cpu", 24e9, bandwidth, 1e12, flops), plan.workload)
        for bandwidth, flops in ((2e10, 2e11), (4e10, 8e11))
    )
    assert fast.head == pytest.approx(slow.head / 4)
    assert slow.train / 4 < fast.train < slow.train / 2
    assert fast.update == pytest.approx(slow.update / 2)


def test_without_kernels_a_step_is_expected_to_take_twice_as_long(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = rl(model)

    def plan_where(has_kernels: bool) -> Plan:
        monkeypatch.setattr(ops, "available", lambda tensor: has_kernels)
        return made.on(MACHINE)

    fast, slow = plan_where(True), plan_where(False)
    assert slow.speeds.train > 1.5 * fast.speeds.train
    assert slow.speeds.decode_row > 1.5 * fast.speeds.decode_row
    assert "without the C++ kernels" in two_lines(slow)[1]
    assert "without the C++ kernels" not in two_lines(fast)[1]
