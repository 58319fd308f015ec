"""The arithmetic of benchmarks/learning/context_distill.py, on files as the commands write them."""

import json
from pathlib import Path

import pytest

from benchmarks.learning import context_distill


def estimate(mean: float) -> dict[str, float]:
    return {"mean": mean, "low": mean - 0.05, "high": mean + 0.05, "num": 128}


def a_run(directory: Path, before: float, teacher: float, after: float) -> Path:
    gap = {"student": estimate(before), "teacher": estimate(teacher), "gap": estimate(teacher - before)}
    stages = {"base": 0.0, "final": after}
    files = {
        "summary.json": {"duration_s": 120.0},
        "probe.json": {"gaps": {"greedy": gap, "sampled": gap}},
        **{
            f"held_out/{stage}.json": {"held_out": {"greedy": estimate(mean), "sampled": estimate(mean)}}
            for stage, mean in stages.items()
        },
    }
    for name, content in files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(json.dumps(content))
    steps = [
        {"step": n, "distill/reverse_kl": kl, "rollout/num": 64.0, "time/teacher_s": 1.0, "time/step_s": 4.0}
        for n, kl in enumerate((2.0, 1.0, 0.5))
    ]
    lines = [*steps, {"step": 3, "held_out/num": 128.0}]
    (directory / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return directory


def test_the_share_of_the_gap_that_was_closed(tmp_path: Path) -> None:
    result = context_distill.outcome(a_run(tmp_path, before=0.1, teacher=0.9, after=0.7))
    assert result["greedy"]["closed"] == pytest.approx(0.75)
    assert (result["minutes"], result["steps"], result["rollouts"]) == (2.0, 3, 192)
    assert (result["reverse_kl_first"], result["reverse_kl_last"]) == (2.0, 0.5)
    assert result["teacher_share_of_time"] == 0.25
    row = context_distill.table({"seed_0": result}).splitlines()[2]
    assert row.startswith("| seed_0 | greedy | 0.100 (0.050 to 0.150) | 0.900 (0.850 to 0.950) |")
    assert "| 75% |" in row
