"""The commands: what they print, what they return, and that asking is cheap."""

import os
import signal
import subprocess
import sys
import time
import types
from importlib.util import find_spec
from pathlib import Path

import pytest

from slimrl import cli
from slimrl.config.base import CommandConfig
from slimrl.config.reading.load import Resolved, load
from slimrl.config.run import COMMANDS, RLConfig
from slimrl.errors import UserError

ENV = ["--orchestrator.env.0.id", "reverse-text"]
ARGV = {
    "rl": ENV,
    "sft": ["--data.type", "expert", "--data.env.id", "reverse-text"],
    "trainer": ["--model.num_threads", "3"],
    "eval": ["--env.0.id", "reverse-text"],
    "inference": ["--port", "3"],
    "probe": [*ENV, "--teacher.type", "model", "--teacher.name", "owner/larger"],
    "play": ["--id", "reverse-text"],
}
LAUNCHERS = tuple(f"slimrl.commands.{name}" for name in ("rl", "sft", "trainer", "eval", "inference", "probe", "play"))
SCRIPTS = {"rl": cli.rl, "sft": cli.sft, "trainer": cli.trainer, "eval": cli.eval_, "inference": cli.inference}


class FakeLaunch(types.ModuleType):
    """Stands in for the launchers, which would load a model: remembers what it was given."""

    def __init__(self, failure: BaseException | None = None) -> None:
        super().__init__("slimrl.commands.rl")
        self.started: list[tuple[str, Resolved[CommandConfig]]] = []
        self._failure = failure
        for command in COMMANDS:
            setattr(self, f"run_{command}", self._runner(command))

    def _runner(self, command: str) -> object:
        def run(resolved: Resolved[CommandConfig]) -> int:
            self.started.append((command, resolved))
            if self._failure:
                raise self._failure
            return 7

        return run


@pytest.fixture
def launch(monkeypatch: pytest.MonkeyPatch) -> FakeLaunch:
    return install(monkeypatch, FakeLaunch())


def install(monkeypatch: pytest.MonkeyPatch, fake: FakeLaunch) -> FakeLaunch:
    for launcher in LAUNCHERS:
        monkeypatch.setitem(sys.modules, launcher, fake)
    for name in [name for name in os.environ if name.startswith(("SLIMRL_", "PRIME_"))]:
        monkeypatch.delenv(name)
    return fake


@pytest.mark.parametrize("command", COMMANDS)
def test_command_starts_its_run_and_returns_its_status(command: str, launch: FakeLaunch) -> None:
    argv = ARGV[command]
    assert cli.run([command, *argv]) == 7
    [(started, resolved)] = launch.started
    assert started == command
    assert resolved == load(COMMANDS[command], argv, {})


@pytest.mark.parametrize("target", cli.RUNS.values())
def test_what_starts_a_command_is_there(target: str) -> None:
    module, function = target.split(":")
    spec = find_spec(module)
    assert spec is not None and spec.origin is not None
    assert f"\ndef {function}(" in Path(spec.origin).read_text(encoding="utf-8")


def test_every_configuration_has_a_command() -> None:
    assert set(cli.RUNS) | {"play"} == set(COMMANDS)


@pytest.mark.parametrize("command", SCRIPTS)
def test_console_script_is_the_command(command: str, launch: FakeLaunch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [command, *ARGV[command]])
    assert SCRIPTS[command]() == 7
    monkeypatch.setattr(sys, "argv", ["slimrl", command, *ARGV[command]])
    assert cli.main() == 7
    assert [started for started, _ in launch.started] == [command, command]


@pytest.mark.parametrize("argv", [[], ["--help"], ["-h"], ["help"]])
def test_slimrl_alone_teaches(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(argv) == 0
    out = capsys.readouterr().out
    for command in COMMANDS:
        assert f"  slimrl {command} " in out


def test_the_overview_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    cli.run(["no such command"])
    known = capsys.readouterr().err.split("Known: ")[1].rstrip(".\n").split(", ")
    assert set(known) > set(COMMANDS)
    listed = [
        line.split()[1] for line in cli.OVERVIEW.splitlines() if line.startswith("  slimrl ") and "  " in line[9:]
    ]
    assert sorted(listed) == sorted(known)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["--version"]) == 0
    assert capsys.readouterr().out.startswith("slimrl 0.")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["rll"], "slimrl: there is no command `rll`. Did you mean `rl`? Known: check, check-curve, compare, "),
        (["@", "f.toml"], "slimrl: @: the command comes first"),
        (["--seed", "3"], "slimrl: --seed: the command comes first"),
        (["rl", "--sed", "3"], "slimrl: --sed: there is no such setting. Did you mean `seed`?"),
    ],
)
def test_mistake_is_one_message_and_status_2(
    argv: list[str], message: str, launch: FakeLaunch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(argv) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith(message)
    assert captured.out == ""
    assert not launch.started


def test_mistake_found_while_running_is_a_message_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install(monkeypatch, FakeLaunch(UserError("the model directory holds no weights")))
    assert cli.run(["rl", *ENV]) == 2
    assert capsys.readouterr().err == "slimrl: the model directory holds no weights\n"


def test_bug_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, FakeLaunch(ZeroDivisionError()))
    with pytest.raises(ZeroDivisionError):
        cli.run(["rl", *ENV])


@pytest.mark.parametrize(
    ("argv", "last_words"),
    [
        (
            ["rl", *ENV, "--wandb.name", "a b"],
            "uv run slimrl rl --orchestrator.env.0.id reverse-text --wandb.name 'a b' --resume\n",
        ),
        (["trainer", "--resume"], "uv run slimrl trainer --resume\n"),
        (["eval", *ARGV["eval"]], "uv run slimrl eval --env.0.id reverse-text --resume\n"),
        (["inference", "--port", "0"], "uv run slimrl inference --port 0\n"),
    ],
)
def test_interrupt_says_how_to_go_on(
    argv: list[str], last_words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install(monkeypatch, FakeLaunch(KeyboardInterrupt()))
    monkeypatch.setenv("UV", "/usr/bin/uv")  # as `uv run` does
    monkeypatch.setattr(sys, "prefix", "/project/.venv")
    assert cli.run(argv) == 130
    err = capsys.readouterr().err
    assert err.startswith("Interrupted. ")
    assert err.endswith(last_words)
    assert err.count("\n") == 1


@pytest.mark.parametrize("gap_s", [0.0, *(pytest.param(gap_s, marks=pytest.mark.slow) for gap_s in (0.003, 0.05))])
def test_a_second_interrupt_brings_no_traceback(gap_s: float) -> None:
    command = [sys.executable, "-m", "slimrl", "play", "reverse-text"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        time.sleep(gap_s)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode in (130, -signal.SIGINT)
    assert b"KeyboardInterrupt" not in err


@pytest.mark.parametrize(("uv", "prefix"), [("", "/project/.venv"), ("/usr/bin/uv", "/cache/uv/archive-v0/x")])
def test_a_command_installed_by_pip_or_run_by_uvx_is_named_as_it_was_called(
    uv: str, prefix: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install(monkeypatch, FakeLaunch(KeyboardInterrupt()))
    monkeypatch.setenv("UV", uv)
    monkeypatch.setattr(sys, "prefix", prefix)
    cli.run(["trainer", "--resume"])
    assert capsys.readouterr().err.endswith(": slimrl trainer --resume\n")


@pytest.mark.parametrize("spelling", ["--dry-run", "--dry_run"])
def test_dry_run_prints_a_config_that_loads_and_starts_nothing(
    spelling: str, launch: FakeLaunch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["rl", *ENV, spelling, "--max_steps", "3"]) == 0
    path = tmp_path / "c.toml"
    path.write_text(capsys.readouterr().out)
    assert "max_steps = 3  # --max_steps\n" in path.read_text()
    assert load(RLConfig, ["@", str(path)], {}).config == load(RLConfig, [*ENV, "--max_steps", "3"], {}).config
    assert not launch.started


@pytest.mark.parametrize("command", COMMANDS)
def test_help_needs_no_valid_configuration(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run([command, "--unknown", "--help"]) == 0
    assert capsys.readouterr().out.startswith(f"usage: slimrl {command} ")


@pytest.mark.parametrize(
    ("argv", "unneeded"),
    [
        (["--help"], ["torch", "transformers", "pydantic"]),
        (["rl", "--help"], ["torch", "transformers", "numpy", "rich", "yaml", "pydantic_settings"]),
        (["rl", *ENV, "--dry-run"], ["torch", "transformers", "numpy", "rich"]),
        pytest.param(
            ["rl", *ENV, "--model.name", "outputs/nowhere/weights/step_1"],
            ["torch", "transformers", "numpy"],
            marks=pytest.mark.slow,
        ),
        pytest.param(["translate", "nowhere.toml"], ["torch", "transformers", "numpy"], marks=pytest.mark.slow),
        pytest.param(["rl", "--sed", "3"], ["torch", "transformers", "numpy", "rich"], marks=pytest.mark.slow),
    ],
)
def test_asking_loads_nothing_heavy(argv: list[str], unneeded: list[str]) -> None:
    program = (
        "import sys; from slimrl.cli import main; main(); "
        f"sys.exit(repr([name for name in {unneeded} if name in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", program, *argv], capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1] == "[]"


def test_closed_pipe_is_no_error() -> None:
    program = "import sys; from slimrl.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", program, "rl", "--help"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait() == 0


@pytest.mark.parametrize("part", ["inference", "orchestrator", "trainer"])
def test_a_part_of_a_run_reads_the_file_of_the_run(part: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run([part, "@", "examples/reverse_text/rl.toml", "--dry-run"]) == 0
    assert "[orchestrator]" in capsys.readouterr().out
    assert cli.run([part, "@", "examples/reverse_text/rl.toml", "--eval.num_example", "3"]) == 2
    assert "eval.num_examples" in capsys.readouterr().err


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


@pytest.mark.parametrize("word", [b"outputs/\xff", b"\xc3("])
def test_an_argument_that_is_no_text_is_named(word):
    command = [sys.executable, "-m", "slimrl", "rl", "--output_dir", word]
    refused = subprocess.run(command, capture_output=True, check=False)
    assert refused.returncode == 2 and b"is no UTF-8 text" in refused.stderr and b"Traceback" not in refused.stderr
