"""Whole runs of a tiny random model with a planted fault: each is noticed by the monitor that is for it."""

from contextlib import nullcontext
from pathlib import Path

import pytest

from benchmarks.harness.planted_runs import PATHOLOGIES, Pathology, judge_of_yes, run_with_first_weights, settings_of
from benchmarks.harness.runs import flags
from slimrl.cli import run
from slimrl.config.reading.load import load
from slimrl.config.run import RLConfig
from slimrl.io.files import read_lines
from slimrl.monitor.sinks import read_metrics
from slimrl.trainer.step import StepRefusedError

STEPS = {"repeated text": 20, "judge that says yes to all": 4, "zero-variance rewards": 5}
SHORT = {"eval.num_examples": 2}


def train(fault: Pathology, model: Path, output_dir: Path) -> list[dict]:
    """Train with the fault. Returns the alarms."""
    with judge_of_yes() if fault.asks_judge else nullcontext("") as url:
        settings = settings_of(fault, str(model), output_dir, True, url) | SHORT
        settings["max_steps"] = STEPS.get(fault.name, 8)
        if fault.keeps_weights:
            with pytest.raises(StepRefusedError):
                run_with_first_weights(load(RLConfig, flags(settings), {}))
        else:
            assert run(["rl", *flags(settings)]) == 0
    return read_lines(output_dir / "monitors.jsonl")


QUICK = ("zero-variance rewards",)


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(one, id=one.name, marks=pytest.mark.slow if one.name in QUICK else pytest.mark.nightly)
        for one in PATHOLOGIES
    ],
)
def test_a_planted_fault_is_noticed_within_a_few_steps(fault, tiny_dir, tmp_path, capsys):
    alarms = train(fault, tiny_dir, tmp_path / "run")
    raised = {alarm["monitor"] for alarm in alarms}
    assert raised & {*fault.expected} and raised <= {*fault.expected, *fault.likely}
    assert all(alarm["step"] - alarm["onset"] <= 5 for alarm in alarms)
    said = capsys.readouterr().out
    assert all(f"alarm, step {alarm['step'] + 1}: {alarm['monitor']}" in said for alarm in alarms)
    lines = [metrics for _, metrics in read_metrics(tmp_path / "run" / "metrics.jsonl")]
    assert lines[0]["monitor/alarms"] == 0.0 and lines[-1]["monitor/alarms"] >= 1.0
