"""A run on a Ray cluster of three nodes: it learns, survives a node, and has as many samplers as are wanted."""

import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmarks.harness.ray_nodes import Nodes
from slimrl.cli import run
from slimrl.errors import UserError
from slimrl.monitor.sinks import read_metrics
from slimrl_cluster.launch.status import find_status
from slimrl_cluster.services.ray_cluster import connect
from slimrl_cluster.services.ray_host import describe_differences, versions
from tests.commands.test_rl import rl_flags

STEPS = 1000  # more than any test waits for: it is interrupted when all has been seen
pytest.importorskip("ray", reason="the extra `ray` is not installed")


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    try:
        cluster = Nodes(3)
    except SystemExit as error:  # Ray gives up on nodes that a very busy machine starts too slowly
        pytest.skip(str(error))
    with cluster:
        yield cluster


class OnRay:
    """A run of two samplers and a trainer of two ranks on the cluster, as a process."""

    def __init__(self, model: Path, output_dir: Path, address: str, *more: str) -> None:
        self.output_dir, self.log = output_dir, output_dir.with_suffix(".log")
        deployment = {"type": "ray", "address": address, "num_samplers": 2, "num_trainers": 2, "cpus": 0.6}
        flags = [word for key, value in deployment.items() for word in (f"--deployment.{key}", str(value))]
        words = rl_flags(model, output_dir, "--max_steps", str(STEPS), "--max_async_level", "1", *flags, *more)
        with self.log.open("wb") as log:
            self.process = subprocess.Popen([sys.executable, "-m", "slimrl", *words], stdout=log, stderr=log)

    def __enter__(self) -> "OnRay":
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    @property
    def said(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    def where(self, name: str) -> str:
        """The address of the node that a part runs on."""
        return re.findall(rf"^{name} is process \d+ on ([\d.]+)$", self.said, re.MULTILINE)[-1]

    @property
    def steps(self) -> list[int]:
        """The steps that it has trained, in the order of its metrics."""
        path = self.output_dir / "metrics.jsonl"
        return [step for step, metrics in read_metrics(path) if "loss/tokens" in metrics] if path.exists() else []

    def num_samplers(self) -> int:
        """How many samplers take part, as `slimrl status` shows them."""
        return sum(does.startswith("samples at") for _, _, does in find_status(self.output_dir).parts)

    def await_step(self, step: int) -> None:
        self.wait_until(lambda: any(number >= step for number in self.steps))

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)
        assert self.process.wait(60) == 130, self.said

    def wait_until(self, is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 240
        while not is_so():
            assert self.process.poll() is None and time.monotonic() < deadline, self.said
            time.sleep(0.2)


@pytest.mark.nightly
def test_a_run_survives_a_node_and_has_as_many_samplers_as_are_wanted(nodes, tiny_dir, tmp_path, capsys):
    with OnRay(tiny_dir, tmp_path / "run", nodes.address) as one:
        one.await_step(4)
        lost = one.where("trainer")
        nodes.kill(int(lost.rpartition(".")[2]) - 2)
        one.wait_until(lambda: "trainer and orchestrator go on from the last checkpoint" in one.said)
        nodes.add(4)
        one.await_step(8)
        assert run(["status", str(one.output_dir)]) == 0
        shown = capsys.readouterr().out
        assert "of its programs have died so far" in shown and "samples at http://127.0.0." in shown
        for num in (3, 1):
            assert run(["scale", str(one.output_dir), str(num)]) == 0
            one.wait_until(lambda num=num: one.num_samplers() == num)
        one.await_step(one.steps[-1] + 3)
        one.interrupt()
        assert one.steps == [*range(len(one.steps))]
        assert lost != one.where("trainer")


@pytest.mark.nightly
def test_a_run_ends_with_its_programs_when_it_is_interrupted(nodes, tiny_dir, tmp_path):
    with OnRay(tiny_dir, tmp_path / "run", nodes.address) as one:
        one.await_step(1)
        one.interrupt()
        assert not find_status(one.output_dir).parts
        assert not list((one.output_dir / "transport").glob("*-[0-9].json"))  # Ray alone knows its members


@pytest.mark.nightly
def test_a_run_on_a_cluster_trains_all_its_steps_and_ends(nodes, tiny_dir, tmp_path):
    with OnRay(tiny_dir, tmp_path / "run", nodes.address, "--max_steps", "3") as one:
        assert one.process.wait(240) == 0, one.said
        assert one.steps == [0, 1, 2]


def test_a_cluster_that_is_not_there_is_told_with_what_to_do():
    with pytest.raises(UserError, match=r"nobody listens at deployment.address = 127.0.0.1:1 .*ray start --head"):
        connect("127.0.0.1:1")


def test_nodes_with_other_versions_are_told_by_name():
    own = versions()
    assert len(own["slimrl"]) == 12
    assert not describe_differences(own, dict(own))
    others = {**own, "torch": "1.0"}
    assert describe_differences(own, others) == f"torch 1.0 in place of {own['torch']}"
