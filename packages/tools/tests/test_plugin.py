"""The command line of this plug-in."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from slimrl import cli
from slimrl.config.reading.load import load
from slimrl.plugins import ENVIRONMENTS, names
from tests.commands.early import HEAVY, run
from tests.distributions import commands_of
from tests.fake_launch import FakeLaunch

ENVIRONMENT = {"play": ["--id", "reverse-text"], "check": ["--env.0.id", "reverse-text"]}
CONFIGURED = {name: command for name, command in commands_of("slimrl-tools").items() if command.settings}


@pytest.fixture
def launch(monkeypatch: pytest.MonkeyPatch) -> FakeLaunch:
    return FakeLaunch(monkeypatch, CONFIGURED)


def test_a_switch_is_no_setting_and_stands_anywhere(launch: FakeLaunch) -> None:
    for argv in (["check", "--json", "reverse-text"], ["check", "reverse-text", "--json"]):
        assert cli.run(argv) == 7
    for _, resolved, more in launch.started:
        assert resolved == load(type(resolved.config), ["--env.0.id", "reverse-text"], {})
        assert more == ({"--json"},)


@pytest.mark.parametrize("command", ["play", "check"])
def test_an_environment_needs_no_flag_and_must_be_named(
    command: str, launch: FakeLaunch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run([command, "reverse-text", "--seed", "3"]) == 7
    [(_, resolved, _)] = launch.started
    assert resolved == load(type(resolved.config), [*ENVIRONMENT[command], "--seed", "3"], {})
    assert cli.run([command]) == 2
    known = ", ".join(name for name in names(ENVIRONMENTS) if not name.endswith(":"))
    assert capsys.readouterr().err == (
        f"slimrl: {command} needs an environment, as in `slimrl {command} reverse-text`. Known: {known}.\n"
    )


SLOW = """
import asyncio
from slimrl.types import Task
class Slow:
    def tasks(self, split): return [Task(split, {})]
    def environment(self, task): return self
    async def start(self):
        print("working", flush=True)
        await asyncio.sleep(600)
    async def step(self, reply): ...
    async def close(self): print("closed", flush=True)
"""


@pytest.mark.parametrize("gap_s", [0.0, *(pytest.param(gap_s, marks=pytest.mark.slow) for gap_s in (0.003, 0.05))])
def test_a_second_interrupt_brings_no_traceback(gap_s: float) -> None:
    with play("reverse-text") as process:
        read_to(process, "Task ")
        process.send_signal(signal.SIGINT)
        time.sleep(gap_s)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
    assert process.returncode in (130, -signal.SIGINT)
    assert "KeyboardInterrupt" not in out


@pytest.mark.slow
def test_ctrl_c_leaves_with_one_line_while_the_person_types_and_while_the_environment_works(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    for words, reached in ((["reverse-text"], "Task "), ([f"{tmp_path / 'slow.py'}:Slow"], "working")):
        with play(*words) as process:
            read_to(process, reached)
            process.send_signal(signal.SIGINT)
            out, _ = process.communicate(timeout=30)
        assert process.returncode == 130
        assert "Interrupted. To play again: " in out and f"slimrl play {words[0]}" in out and "Traceback" not in out
    assert "closed" in out


def play(*words: str) -> subprocess.Popen[str]:
    """The running command, whose errors go to its output."""
    command = [sys.executable, "-m", "slimrl", "play", *words]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def read_to(process: subprocess.Popen[str], text: str) -> None:
    assert process.stdout is not None
    assert any(text in line for line in process.stdout)


ASCII = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "1"}


@pytest.mark.slow
def test_a_letter_that_a_log_lacks_ends_nothing(tmp_path):
    path = tmp_path / "Bücher"
    path.mkdir()
    (path / "metrics.jsonl").write_text('{"step": 0, "reward/mean": 0.5}\n')
    command = [sys.executable, "-m", "slimrl", "plot", str(path), "--output", str(path / "ü.png")]
    plotted = subprocess.run(command, capture_output=True, env=ASCII, check=False)
    assert plotted.returncode == 0, plotted.stderr
    assert b"\\xfc" in plotted.stdout + plotted.stderr and b"Traceback" not in plotted.stderr
    assert (path / "ü.png").exists()


@pytest.mark.parametrize(
    ("words", "status"),
    [
        ("plan --on H1000 @ x", 2),
        *(
            pytest.param(f"{command} --help", 0, marks=pytest.mark.slow)
            for command in ("plan", "doctor", "push", "translate", "check-curve", "check", "play", "probe")
        ),
    ],
)
def test_help_and_what_is_refused_need_no_pytorch(words: str, status: int) -> None:
    _, last = run(*words.split())
    assert last == f"{status} []"


@pytest.mark.slow
def test_a_file_that_cannot_be_translated_is_told_with_little_loaded() -> None:
    said, last = run("translate", "nowhere.toml", heavy=(*HEAVY, "numpy"))
    assert "nowhere.toml" in said and last == "2 []"
