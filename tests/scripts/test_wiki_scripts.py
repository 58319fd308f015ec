"""The scripts as a person runs them: help, mistakes, and a server that is started, tested and stopped."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from slimrl.monitor.sinks import JsonlSink, Monitor

pytest.importorskip("chromadb", reason="the extra [search] is not installed")
ROOT = Path(__file__).parents[2]


def run(script: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "scripts" / f"{script}.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment}, timeout=200)


@pytest.mark.parametrize(
    ("script", "flags"),
    [
        ("train", "--num_samples --num_epochs --max_turns --num_rollouts --lr --max_new_tokens --model_name "
                  "--judge_model --live-plot"),
        ("eval", "--model --split --num_samples"),
        ("plot_metrics", "--output --no-show"),
        ("run_environment", "--stop --container"),
        ("setup_environment", "--data-dir --skip-index --docker-only"),
    ],
)  # fmt: skip
def test_help_names_every_flag(script: str, flags: str):
    result = run(script, "--help")
    assert result.returncode == 0, result.stderr
    assert [flag for flag in flags.split() if flag not in result.stdout] == []


@pytest.mark.parametrize(
    ("script", "arguments", "said"),
    [
        ("train", ("--num_sample", "0"), "max_steps"),
        ("train", ("--batchsize", "3"), "there is no such setting"),
        ("plot_metrics", ("nowhere",), "could not be read"),
        ("run_environment", ("--data-dir", "nowhere"), "there is no index in nowhere"),
        ("test_environment", (), "does not answer"),
        ("test_sandbox", (), "does not answer"),
        ("setup_environment", ("--docker-only",), "docker is not on the PATH"),
        ("run_environment", ("--container",), "nothing here can run a container"),
    ],
)
def test_mistakes_are_told_without_a_traceback(tmp_path: Path, script: str, arguments: tuple[str, ...], said: str):
    result = run(script, *arguments, SANDBOX_PORT=str(free_port()), PATH=str(tmp_path), SLIMRL_CACHE=str(tmp_path))
    assert result.returncode in (1, 2) and said in result.stderr and "Traceback" not in result.stderr


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


def test_a_run_is_drawn(tmp_path: Path):
    with Monitor([JsonlSink(tmp_path / "metrics.jsonl")]) as monitor:
        monitor.log(0, {"reward/mean": 0.5})
    result = run("plot_metrics", str(tmp_path), "--no-show", "--output", str(tmp_path / "out" / "custom.png"))
    assert result.returncode == 0, result.stderr
    assert result.stdout == f"{tmp_path}/out/custom.png\n"
    assert (tmp_path / "out" / "custom.png").read_bytes().startswith(b"\x89PNG")
    assert run("plot_metrics", str(tmp_path), DISPLAY="").returncode == 0  # no window is no failure


def test_the_server_is_started_tested_and_stopped(tmp_path: Path):
    if not Path("/usr/bin/bwrap").exists():
        pytest.skip("bubblewrap is not installed")
    settings = {"DEV": "1", "DATA_DIR": str(tmp_path / "data"), "SANDBOX_PORT": str(free_port())}
    settings |= {"SLIMRL_CACHE": str(tmp_path / "cache"), "SANDBOX_TOKEN": "a-token"}
    assert run("setup_environment", **settings).returncode == 0
    started = run("run_environment", **settings)
    try:
        assert started.returncode == 0, started.stderr
        assert f"Server ready! Endpoint: http://127.0.0.1:{settings['SANDBOX_PORT']}" in started.stdout
        tools = run("test_environment", **settings)
        assert tools.returncode == 0 and "17 of 17 passed" in tools.stdout, tools.stdout + tools.stderr
        isolation = run("test_sandbox", **settings)
        assert isolation.returncode == 0 and "18 of 18 passed" in isolation.stdout, isolation.stdout + isolation.stderr
        assert run("test_environment", **{**settings, "SANDBOX_TOKEN": "another"}).returncode == 1
    finally:
        stopped = run("run_environment", "--stop", **settings)
    assert stopped.returncode == 0 and "stopped" in stopped.stderr
    assert run("run_environment", "--stop", **settings).returncode == 1
