"""Timing with random weights."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from packages.tools.tests.plan.made import cpu, on, planner, settings, sft_settings
from slimrl.models.native import ops
from slimrl_tools.plan.devices import Device, Machine
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


def sft(model: Path, machine: Machine) -> Plan:
    return on(sft_settings(model, "--model.dtype", "float32"), machine)


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


def test_a_model_that_is_too_large_is_estimated(model: Path) -> None:
    plan = sft(model, SMALL)
    assert measure(plan) == plan.speeds


@pytest.mark.parametrize("train", [4e-3, 0.0, -1e-3])
def test_a_speed_that_noise_hides_is_estimated_and_never_kept_as_nothing(
    train: float, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = sft(model, MACHINE)
    monkeypatch.setattr("slimrl_tools.plan.measure._measure", lambda plan: {"train": train, "update": 0.1})
    speeds = measure(plan)
    assert speeds.train == pytest.approx(train if train > 0 else plan.speeds.train)
    assert ("but for train, which noise hid" in speeds.source) == (train <= 0)
    assert speeds.update == pytest.approx(0.1)
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
