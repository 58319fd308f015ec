"""A run on a Ray cluster of three nodes: it learns, survives a node, and has as many samplers as are wanted."""

import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.harness.ray_nodes import Nodes
from packages.cluster.tests.commands.test_processes import Started
from packages.cluster.tests.helpers import ray_nodes
from slimrl.cli import run
from slimrl.errors import UserError
from slimrl.monitor.sinks import read_metrics
from slimrl_cluster.launch.status import find_status
from slimrl_cluster.services.ray_cluster import connect
from slimrl_cluster.services.ray_host import describe_differences, versions
from tests.commands.test_rl import rl_flags

STEPS = 1000  # more than any test waits for: it is interrupted when all has been seen


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    with ray_nodes(3) as cluster:
        yield cluster


class OnRay(Started):
    """A run of two samplers and a trainer of two ranks on the cluster."""

    def __init__(self, model: Path, output_dir: Path, address: str, *more: str) -> None:
        self.output_dir = output_dir
        deployment = {"address": address, "num_samplers": 2, "num_trainers": 2, "cpus": 0.6}
        flags = [word for key, value in deployment.items() for word in (f"--deployment.{key}", str(value))]
        words = rl_flags(model, output_dir, "--max_steps", str(STEPS), "--max_async_level", "1", *flags, *more)
        super().__init__(words, output_dir.with_suffix(".log"), "ray")

    def where(self, name: str) -> str:
        """The address of the node that a part runs on."""
        return re.findall(rf"^{name} is process \d+ on ([\d.]+)$", self.said, re.MULTILINE)[-1]

    @property
    def steps(self) -> list[int]:
        """The steps that it has trained, in the order of its metrics."""
        return [step for step, one in read_metrics(self.output_dir / "metrics.jsonl") if "loss/tokens" in one]

    def num_samplers(self) -> int:
        """How many samplers take part, as `slimrl status` shows them."""
        return sum(does.startswith("samples at") for _, _, does in find_status(self.output_dir).parts)

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)
        assert self.process.wait(60) == 130, self.said


@pytest.mark.nightly
def test_a_run_survives_a_node_and_has_as_many_samplers_as_are_wanted(nodes, tiny_dir, tmp_path, capsys):
    output_dir = tmp_path / "run"
    with OnRay(tiny_dir, output_dir, nodes.address) as one:
        one.await_step(output_dir, 4)
        lost = one.where("trainer")
        nodes.kill(int(lost.rpartition(".")[2]) - 2)
        one.until(lambda: "trainer and orchestrator go on from the last checkpoint" in one.said)
        nodes.add(4)
        one.await_step(output_dir, 8)
        assert run(["status", str(output_dir)]) == 0
        shown = capsys.readouterr().out
        assert "of its programs have died so far" in shown and "samples at http://127.0.0." in shown
        for num in (3, 1):
            assert run(["scale", str(output_dir), str(num)]) == 0
            one.until(lambda num=num: one.num_samplers() == num)
        one.await_step(output_dir, one.steps[-1] + 3)
        one.interrupt()
        assert one.steps == [*range(len(one.steps))]
        assert lost != one.where("trainer")
        assert not find_status(output_dir).parts
        assert not list((output_dir / "transport").glob("*-[0-9].json"))  # Ray alone knows its members


@pytest.mark.nightly
def test_a_run_on_a_cluster_trains_all_its_steps_and_ends(nodes, tiny_dir, tmp_path):
    with OnRay(tiny_dir, tmp_path / "run", nodes.address, "--max_steps", "3") as one:
        assert one.wait() == 0, one.said
        assert one.steps == [0, 1, 2]


def test_a_cluster_that_is_not_there_is_told_with_what_to_do():
    pytest.importorskip("ray", reason="the extra `ray` is not installed")
    with pytest.raises(UserError, match=r"nobody listens at deployment.address = 127.0.0.1:1 .*ray start --head"):
        connect("127.0.0.1:1")


def test_nodes_with_other_versions_are_told_by_name():
    own = versions()
    assert len(own["slimrl"]) == 12
    assert not describe_differences(own, dict(own))
    others = {**own, "torch": "1.0"}
    assert describe_differences(own, others) == f"torch 1.0 in place of {own['torch']}"
