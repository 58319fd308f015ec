"""The `probe` command."""

import json

import pytest

from slimrl.cli import run
from tests.launch.test_teacher import HINT, environment, flags

__all__ = ["environment"]  # a fixture


@pytest.mark.nightly
def test_the_probe_measures_student_teacher_and_their_distance(tiny_dir, environment, tmp_path):
    argv = flags(tiny_dir, environment, tmp_path, "--teacher.type", "policy", *HINT)
    assert run(["probe", *argv]) == 0
    probe = json.loads((tmp_path / "probe" / "probe.json").read_text())
    assert set(probe["gaps"]) == {"greedy", "sampled"}
    gap = probe["gaps"]["greedy"]
    assert gap["gap"]["mean"] == pytest.approx(gap["teacher"]["mean"] - gap["student"]["mean"])
    assert gap["gap"]["num"] == 4 and probe["num_rollouts"] == 8
    assert probe["distance"]["distill/reverse_kl"] != 0
    assert "gap" in (tmp_path / "probe" / "probe.md").read_text()
    assert run(["rl", *argv, "--max_steps", "1"]) == 0  # in the same directory, which holds no run yet


def test_a_probe_without_a_teacher_is_refused(tiny_dir, environment, tmp_path, capsys):
    assert run(["probe", *flags(tiny_dir, environment, tmp_path)]) == 2
    assert "nothing to probe" in capsys.readouterr().err
