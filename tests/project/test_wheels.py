"""Each distribution's wheel is installed by pip beside the core's, in an environment of its own without uv, and runs.

The packages that all of them need are installed once, and shared by links, as they take gigabytes.
"""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.project.distributions import HOMES, project_of

pytestmark = [pytest.mark.nightly, pytest.mark.skipif(shutil.which("uv") is None, reason="needs uv")]

TINY = (
    "--warmup.max_steps 0 --seq_len 256 --orchestrator.batch_size 4 --orchestrator.rollouts_per_example 4 "
    "--orchestrator.sampling.max_tokens 8 --eval.num_examples 2"
)
RUN_CODE = (
    "python -c 'import asyncio; from slimrl_sandbox.local import BubblewrapSandbox\n"
    "async def main():\n"
    "    async with BubblewrapSandbox({}) as sandbox:\n"
    '        print((await sandbox.run("print(6 * 7)")).stdout)\n'
    "asyncio.run(main())'"
)
ANSWERS = Path(__file__).parents[2] / "benchmarks" / "results" / "judge" / "answers.jsonl"
# The extras of each plug-in that its smallest command needs, the command, and a pattern of its output.
SMALLEST = {
    "slimrl-serve": ("[server]", "slimrl inference --model.name smollm2-135m --port 0", r"http://127\.0\.0\.1:\d+"),
    "slimrl-cluster": (
        "[server]",
        f"rl --orchestrator.env.0.id reverse-text --deployment.type processes --max_steps 1 {TINY}",
        r"step 1/1",
    ),
    "slimrl-search": ("", f"slimrl judge calibrate {ANSWERS}", r"match"),
    "slimrl-sandbox": ("", RUN_CODE, r"^42$"),
    "slimrl-envs": ("", "eval --env.0.id alphabet-sort --num_examples 2 --sampling.max_tokens 8", r"outputs/eval"),
    "slimrl-view": ("", "slimrl view . --no-open --port 0", r"http://127\.0\.0\.1:\d+"),
    "slimrl-tools": ("", "slimrl check reverse-text", r"no problem"),
}
SERVERS = ("slimrl-serve", "slimrl-view")


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the wheels of all distributions."""
    target = tmp_path_factory.mktemp("wheels")
    for home in HOMES.values():
        subprocess.run(["uv", "build", "--wheel", "-q", "--out-dir", target, home], check=True)
    assert len(list(target.glob("*.whl"))) == len(HOMES)
    return target


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment that has pip, the packages that all distributions need, and those of a server."""
    directory = tmp_path_factory.mktemp("shared") / "venv"
    subprocess.run([sys.executable, "-m", "venv", directory], check=True)
    needed = [one for package in HOMES for one in project_of(package)["dependencies"] if not one.startswith("slimrl")]
    needed += project_of("slimrl_serve")["optional-dependencies"]["server"]
    subprocess.run(["uv", "pip", "install", "-q", "--python", directory / "bin/python", *needed], check=True)
    return directory


def install(shared: Path, wheels: Path, directory: Path, *names: str) -> Path:
    """Make an environment with some distributions, installed by pip from their wheels alone."""
    shutil.copytree(shared, directory, symlinks=True, copy_function=os.link)
    offline = ["--no-index", "--find-links", str(wheels)]
    subprocess.run([directory / "bin/python", "-m", "pip", "install", "-q", *offline, *names], check=True)
    return directory


def started(venv: Path, command: str, cwd: Path) -> "subprocess.Popen[str]":
    """A command of an environment, which finds neither this checkout nor its environment."""
    program, *words = shlex.split(command)
    unset = ("PYTHONPATH", "VIRTUAL_ENV", "UV")
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    environment["PATH"] = f"{venv / 'bin'}:/usr/local/bin:/usr/bin:/bin"
    return subprocess.Popen(
        [venv / "bin" / program, *words],
        cwd=cwd,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def run(venv: Path, command: str, cwd: Path) -> str:
    """The output of a command of an environment. Fails unless its status is 0."""
    with started(venv, command, cwd) as process:
        output, _ = process.communicate()
    assert process.returncode == 0, output
    return output


def serve(venv: Path, command: str, cwd: Path, pattern: str) -> None:
    """Start a server, wait for the line with its address, and end it by Ctrl-C."""
    with started(venv, command, cwd) as process:
        assert process.stdout
        lines = []
        for line in process.stdout:
            lines.append(line)
            if re.search(pattern, line):
                break
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
    assert re.search(pattern, lines[-1]), "".join(lines)


def test_the_core_alone_trains_and_names_what_is_not_there(shared: Path, wheels: Path, tmp_path: Path) -> None:
    venv = install(shared, wheels, tmp_path / "venv", "slimrl")
    assert "examples" in run(venv, "slimrl init .", tmp_path)
    run(venv, "rl @ examples/reverse_text/rl.toml --max_steps 6 --eval.num_examples 40", tmp_path)
    (summary,) = tmp_path.glob("outputs/*/summary.json")
    first, *_, last = json.loads(summary.read_text(encoding="utf-8"))["stages"]
    assert last["held_out"]["greedy"]["low"] > first["held_out"]["greedy"]["high"]
    with started(venv, "slimrl view .", tmp_path) as process:
        output, _ = process.communicate()
    assert process.returncode == 2 and "`pip install slimrl-view`" in output


@pytest.mark.parametrize("name", SMALLEST)
def test_a_plugin_alone_runs_its_smallest_command(name: str, shared: Path, wheels: Path, tmp_path: Path) -> None:
    extras, command, pattern = SMALLEST[name]
    venv = install(shared, wheels, tmp_path / "venv", name + extras)
    (tmp_path / "metrics.jsonl").write_text('{"step": 0, "reward/mean": 0.5}\n', encoding="utf-8")  # a run to view
    if name in SERVERS:
        serve(venv, command, tmp_path, pattern)
    else:
        assert re.search(pattern, run(venv, command, tmp_path), re.MULTILINE)


def test_all_of_them_stand_beside_each_other(shared: Path, wheels: Path, tmp_path: Path) -> None:
    venv = install(shared, wheels, tmp_path / "venv", "slimrl", *SMALLEST)
    output = run(venv, "slimrl --help", tmp_path)
    assert all(f"slimrl {name} " in output for name in ("rl", "view", "doctor", "judge", "inference", "status"))
    assert "cannot be loaded" not in output


def test_uv_installs_it_as_a_tool(wheels: Path, tmp_path: Path) -> None:
    tools = {**os.environ, "UV_TOOL_DIR": str(tmp_path / "tools"), "UV_TOOL_BIN_DIR": str(tmp_path / "bin")}
    words = ["uv", "tool", "install", "-q", "--find-links", str(wheels), "--python", sys.executable, "slimrl[tools]"]
    subprocess.run(words, env=tools, check=True)
    output = subprocess.run([tmp_path / "bin/slimrl", "--help"], capture_output=True, text=True, check=True).stdout
    assert "slimrl doctor" in output
