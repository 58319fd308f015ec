"""The batch script of `slimrl launch --slurm`: what it asks SLURM for, and its logic, run for real with programs that
stand for SLURM, Ray and slimrl."""

import io
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from slimrl.cli import run

pytestmark = pytest.mark.slow

PROGRAMS = Path(__file__).with_name("slurm_programs")
FILE = Path(__file__).parents[4] / "examples/reverse_text/rl.toml"
PATIENCE_S = 30


def free_job_id() -> int:
    """A job's number whose port is free: the port follows from the number."""
    for job_id in random.sample(range(10_000), 100):
        with socket.socket() as tried:
            try:
                tried.bind(("127.0.0.1", 20_000 + job_id))
            except OSError:
                continue
            return 70_000 + job_id
    raise AssertionError("no port is free")


def write_script(tmp_path: Path, *more: str, programs: str = str(PROGRAMS)) -> Path:
    """Write a script that finds the stand-ins in the directories `programs` first."""
    script, printed = tmp_path / "job.sh", io.StringIO()
    words = ["--slurm", "@", str(FILE), "--output_dir", str(tmp_path / "a run"), "--gpus_per_node", "2", "--time", "60"]
    with redirect_stdout(printed):
        assert run(["launch", *words, *more]) == 0
    script.write_text(printed.getvalue().replace("export PATH=", f"export PATH={programs}:"))
    return script


class Job:
    """A script that runs, as SLURM would run it on the first of its nodes."""

    def __init__(self, tmp_path: Path, script: Path, num_nodes: int, variables: dict[str, str]) -> None:
        self.id, self.calls_file, self.ready = free_job_id(), tmp_path / "calls", tmp_path / "ready"
        for path in (self.calls_file, self.ready, tmp_path / "nodes"):
            path.unlink(missing_ok=True)
        environ = {
            "SLURM_JOB_ID": str(self.id),
            "SLURM_JOB_NUM_NODES": str(num_nodes),
            "SLURMD_NODENAME": "n1",
            "RAY_HEAD_IP": "127.0.0.1",
            "PYTHONPATH": str(PROGRAMS / "modules"),
            "CALLS": str(self.calls_file),
            "NODES": str(tmp_path / "nodes"),
            "READY": str(self.ready),
        }
        self.process = subprocess.Popen(
            ["bash", str(script)],
            env={**os.environ, **environ, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not self.ready.exists():
            assert self.process.poll() is None, self.process.communicate()[0]
            assert time.monotonic() < deadline, "slimrl was not started"
            time.sleep(0.02)

    def end(self) -> tuple[int, str]:
        """The exit status, and what was printed."""
        output, _ = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, output

    @property
    def calls(self) -> list[str]:
        return self.calls_file.read_text().splitlines()

    def kill(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.communicate()


@pytest.fixture
def jobs() -> Iterator[list[Job]]:
    started: list[Job] = []
    yield started
    for job in started:
        job.kill()


def start(jobs: list[Job], tmp_path: Path, script: Path, num_nodes: int = 3, **variables: str) -> Job:
    jobs.append(Job(tmp_path, script, num_nodes, variables))
    return jobs[-1]


def test_options_for_sbatch(tmp_path: Path) -> None:
    text = write_script(tmp_path, "--nodes", "4").read_text()
    lines = [line.removeprefix("#SBATCH ") for line in text.splitlines() if line.startswith("#SBATCH ")]
    assert lines == [
        "--job-name=slimrl",
        "--nodes=4",
        "--ntasks-per-node=1",
        "--gpus-per-node=2",
        "--exclusive",
        "--mem=0",
        "--time=60",
        f"--chdir={Path.cwd()}",
        "--output=slimrl-%j.log",
        "--open-mode=append",
        "--requeue",
        "--signal=B:USR1@120",
    ]
    assert text.startswith("#!/bin/bash\n#SBATCH ")


def test_the_script_is_sound(tmp_path: Path) -> None:
    script = write_script(tmp_path, "--nodes", "2", "--orchestrator.sampling.stop", """["it's"]""")
    assert subprocess.run(["bash", "-n", str(script)], check=False).returncode == 0
    found = shutil.which("shellcheck", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if not found:
        pytest.skip("shellcheck is not installed: uv sync --group test")
    checked = subprocess.run([found, str(script)], capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stdout) == (0, "")


def test_ray_starts_on_all_nodes_before_the_run_and_ends_after_it(jobs: list[Job], tmp_path: Path) -> None:
    job = start(jobs, tmp_path, write_script(tmp_path, "--nodes", "3"), STATUS="0")
    status, output = job.end()
    assert status == 0, output
    port = 20_000 + job.id % 10_000
    head, worker = "srun --overlap --cpu-bind=none --nodes=1 ", "srun --overlap --cpu-bind=none --nodes=2 --ntasks=2 "
    assert job.calls[0].startswith(f"{head}--ntasks=1 --nodelist=n1 ")
    assert job.calls[1].startswith("ray start --num-cpus=3 --num-gpus=2 ")
    assert f" --head --node-ip-address=127.0.0.1 --port={port} --include-dashboard=false " in job.calls[1]
    assert job.calls[2].startswith(f"{worker}--exclude=n1 ")
    assert all(f" --address=127.0.0.1:{port}" in call and "--head" not in call for call in job.calls[3:5])
    words = f"rl @ {FILE} --output_dir {tmp_path / 'a run'} --deployment.type ray --deployment.address auto"
    assert job.calls[5] == f"slimrl {words}"
    assert job.calls[6:9] == ["worker ended", "worker ended", "head ended"]
    assert job.calls[9].endswith(f" --nodes=3 --ntasks=3 rm -rf -- /tmp/ray-{job.id}") and len(job.calls) == 10


def test_the_head_takes_an_address_that_other_nodes_see(jobs: list[Job], tmp_path: Path) -> None:
    given = """["it's", "$(exit 3) *"]"""
    own = tmp_path / "bin"
    own.mkdir()
    # As on Debian, where a host's own name is a loopback address.
    for name, line in (("getent", "127.0.1.1 STREAM n1"), ("hostname", "127.0.0.1 fd00::2")):
        (own / name).write_text(f"#!/bin/bash\necho '{line}'\n")
        (own / name).chmod(0o755)
    script = write_script(tmp_path, "--orchestrator.sampling.stop", given, programs=f"{own}:{PROGRAMS}")
    job = start(jobs, tmp_path, script, num_nodes=1, STATUS="7", RAY_HEAD_IP="")
    status, output = job.end()
    assert status == 7 and "the run ended with status 7" in output
    assert " --node-ip-address=127.0.0.1 " in job.calls[1]
    assert any(f" --orchestrator.sampling.stop {given} --deployment" in call for call in job.calls)
    assert sum(call.startswith("ray start") for call in job.calls) == 1  # one node needs no workers
    assert job.calls[-1] == "head ended" and not any("scontrol" in call for call in job.calls)


@pytest.mark.slow
def test_time_up_ends_the_run_and_puts_the_job_back(jobs: list[Job], tmp_path: Path) -> None:
    script = write_script(tmp_path, "--nodes", "3")
    job = start(jobs, tmp_path, script, CHECKPOINTS="2")
    job.wait_until_ready()
    job.process.send_signal(signal.SIGUSR1)
    status, output = job.end()
    assert status == 0 and "to go on from step 20" in output
    assert job.calls[-1] == f"scontrol requeue {job.id}" and "head ended" in job.calls

    again = start(jobs, tmp_path, script, SLURM_RESTART_COUNT="1", STATUS="0")
    assert again.end()[0] == 0
    assert next(call for call in again.calls if call.startswith("slimrl")).endswith(" --resume")


def test_a_start_without_a_new_checkpoint_is_not_repeated(jobs: list[Job], tmp_path: Path) -> None:
    (tmp_path / "a run/checkpoints/step_9").mkdir(parents=True)
    (tmp_path / "a run/checkpoints/step_10").mkdir()
    script = write_script(tmp_path, "--nodes", "3", "--resume")
    job = start(jobs, tmp_path, script)
    job.wait_until_ready()
    job.process.send_signal(signal.SIGUSR1)
    status, output = job.end()
    assert status == 1 and "raise --time, or lower ckpt.interval_steps" in output
    assert not any("scontrol" in call for call in job.calls)


def test_a_refused_requeue_is_a_failure(jobs: list[Job], tmp_path: Path) -> None:
    job = start(jobs, tmp_path, write_script(tmp_path, "--nodes", "3"), CHECKPOINTS="1", SCONTROL_STATUS="1")
    job.wait_until_ready()
    job.process.send_signal(signal.SIGUSR1)
    status, output = job.end()
    assert status == 1 and "submit this script again" in output


def test_a_cancelled_job_ends_run_and_ray(jobs: list[Job], tmp_path: Path) -> None:
    job = start(jobs, tmp_path, write_script(tmp_path, "--nodes", "3"), CHECKPOINTS="1")
    job.wait_until_ready()
    job.process.terminate()
    assert job.end()[0] == 143
    assert job.calls[-3:] == ["worker ended", "worker ended", "head ended"]


@pytest.mark.parametrize("role", ["head", "worker"])
def test_a_node_that_cannot_start_ray_ends_the_job(role: str, jobs: list[Job], tmp_path: Path) -> None:
    job = start(jobs, tmp_path, write_script(tmp_path, "--nodes", "2"), num_nodes=2, RAY_FAILS=role)
    status, output = job.end()
    assert status == 1 and "Ray ended on a node before all had joined" in output
    assert not any(call.startswith("slimrl") for call in job.calls)


@pytest.mark.nightly
def test_nodes_that_do_not_come_are_told(jobs: list[Job], tmp_path: Path) -> None:
    script = write_script(tmp_path, "--nodes", "2", programs=f"{tmp_path}/bin:{PROGRAMS}")
    script.write_text(script.read_text().replace("START_TIMEOUT_S=600", "START_TIMEOUT_S=8"))
    # Only one of the two workers that SLURM promises is started by the stand-in.
    (tmp_path / "bin").mkdir()
    fewer = (PROGRAMS / "srun").read_text().replace("num=1\n", 'num=1\nset -- "${@/--ntasks=2/--ntasks=1}"\n')
    (tmp_path / "bin/srun").write_text(fewer)
    (tmp_path / "bin/srun").chmod(0o755)
    status, output = start(jobs, tmp_path, script, num_nodes=3).end()
    assert status == 1 and "2 of 3 nodes had joined Ray" in output
