"""slimrl's server as the teacher of a run: it scores and plays as the weights of the run's own process do."""

import json

import pytest

from packages.serve.tests.conftest import serving
from slimrl.cli import run
from slimrl.config.teacher import ServerTeacherConfig
from slimrl.orchestrator.teacher_server import ServerTeacher
from tests.launch.test_teacher import SAMPLES, flags, naive_scores
from tests.launch.test_teacher import environment as environment

pytestmark = pytest.mark.slow


def test_a_server_scores_as_the_weights_of_this_process_do(tiny_dir):
    with serving(tiny_dir) as server:
        config = ServerTeacherConfig(base_url=f"{server.address}/v1", model="tiny", timeout_s=60.0)
        scores = ServerTeacher(config).score(SAMPLES, 1.0)
    for ours, theirs in zip(scores, naive_scores(tiny_dir, 1.0), strict=True):
        assert ours == pytest.approx(theirs, abs=1e-4)


def test_a_teacher_behind_http_is_played_by_the_probe_too(tiny_dir, environment, tmp_path):
    with serving(tiny_dir) as server:
        more = ["--teacher.base_url", f"{server.address}/v1", "--teacher.model", "tiny"]
        argv = flags(tiny_dir, environment, tmp_path, "--teacher.type", "server", *more, "--eval.temperatures", "[0.0]")
        assert run(["probe", *argv]) == 0
    probe = json.loads((tmp_path / "probe" / "probe.json").read_text())
    gap = probe["gaps"]["greedy"]  # the same weights that read the same say the same
    assert gap["gap"]["mean"] == 0 and gap["teacher"] == gap["student"]
    assert abs(probe["distance"]["distill/reverse_kl"]) < 1e-4
