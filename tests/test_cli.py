"""The commands: what they print, what they return, and that asking is cheap."""

import resource
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from slimrl import cli
from slimrl.config.reading.load import load
from slimrl.config.run import COMMANDS as CONFIGS
from slimrl.config.run import RLConfig
from slimrl.errors import UserError
from slimrl.plugins import COMMANDS, CORE, OURS, names
from tests.distributions import check_help, commands_of
from tests.fake_launch import FakeLaunch

ENV = ["--orchestrator.env.0.id", "reverse-text"]
ARGV = {
    "rl": ENV,
    "sft": ["--data.type", "expert", "--data.env.id", "reverse-text"],
    "trainer": ["--model.num_threads", "3"],
    "eval": ["--env.0.id", "reverse-text"],
}
OF_THE_CORE = commands_of(CORE)
CONFIGURED = {name: command for name, command in OF_THE_CORE.items() if command.settings}
SCRIPTS = {"rl": cli.rl, "sft": cli.sft, "trainer": cli.trainer, "eval": cli.eval_}


@pytest.fixture
def launch(monkeypatch: pytest.MonkeyPatch) -> FakeLaunch:
    return FakeLaunch(monkeypatch, CONFIGURED)


@pytest.mark.parametrize("command", CONFIGURED)
def test_command_starts_its_run_and_returns_its_status(command: str, launch: FakeLaunch) -> None:
    argv = ARGV[command]
    assert cli.run([command, *argv]) == 7
    [(started, resolved, more)] = launch.started
    assert started == command
    assert resolved == load(type(resolved.config), argv, {})
    assert more == ((set(),) if CONFIGURED[command].switches else ())


def test_every_configuration_has_a_command_and_every_configured_command_of_the_core_is_tried() -> None:
    for name, config_class in CONFIGS.items():
        assert OURS[COMMANDS][name] != CORE or CONFIGURED[name].settings.endswith(f":{config_class.__name__}"), name
    assert ARGV.keys() == CONFIGURED.keys()


@pytest.mark.parametrize("command", SCRIPTS)
def test_console_script_is_the_command(command: str, launch: FakeLaunch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [command, *ARGV[command]])
    assert SCRIPTS[command]() == 7
    monkeypatch.setattr(sys, "argv", ["slimrl", command, *ARGV[command]])
    assert cli.main() == 7
    assert [started for started, *_ in launch.started] == [command, command]


@pytest.mark.parametrize("command", OF_THE_CORE)
def test_ctrl_c_ends_at_once_what_computes_and_only_a_process_of_its_own(
    command: str, launch: FakeLaunch, monkeypatch: pytest.MonkeyPatch
) -> None:
    advice: list[str] = []
    monkeypatch.setattr(cli, "end_when_interrupted", advice.append)
    for is_process in (False, True):
        assert advice == []
        with suppress(SystemExit):  # of argparse, about the missing words
            cli.run([command, *ARGV.get(command, [])], is_process)
    assert len(advice) == (command in ("rl", "sft", "trainer", "eval"))
    assert all(line.startswith("Interrupted. To ") and f"slimrl {command} " in line for line in advice)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["rll"], f"slimrl: there is no command `rll`. Did you mean `rl`? Known: {', '.join(names(COMMANDS))}.\n"),
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


def test_mistake_found_while_running_is_a_message_and_a_bug_keeps_its_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    FakeLaunch(monkeypatch, CONFIGURED, UserError("the model directory holds no weights"))
    assert cli.run(["rl", *ENV]) == 2
    assert capsys.readouterr().err == "slimrl: the model directory holds no weights\n"
    FakeLaunch(monkeypatch, CONFIGURED, ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        cli.run(["rl", *ENV])


CHECKPOINT = "from the last checkpoint, if one was saved"
UV = ("/usr/bin/uv", "/project/.venv")  # as `uv run` sets it


@pytest.mark.parametrize(
    ("argv", "way", "left", "command"),
    [
        (
            ["rl", *ENV, "--wandb.name", "a b"],
            UV,
            CHECKPOINT,
            "uv run slimrl rl --orchestrator.env.0.id reverse-text --wandb.name 'a b' --resume",
        ),
        (["trainer", "--resume"], UV, CHECKPOINT, "uv run slimrl trainer --resume"),
        (
            ["eval", *ARGV["eval"]],
            UV,
            "with the episodes that are left",
            "uv run slimrl eval --env.0.id reverse-text --resume",
        ),
        # Installed by pip, or run by uvx.
        (["trainer", "--resume"], ("", "/project/.venv"), CHECKPOINT, "slimrl trainer --resume"),
        (["trainer", "--resume"], ("/usr/bin/uv", "/cache/uv/archive-v0/x"), CHECKPOINT, "slimrl trainer --resume"),
    ],
)
def test_an_interrupt_prints_the_command_that_continues(
    argv: list[str],
    way: tuple[str, str],
    left: str,
    command: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    FakeLaunch(monkeypatch, CONFIGURED, KeyboardInterrupt())
    monkeypatch.setenv("UV", way[0])
    monkeypatch.setattr(sys, "prefix", way[1])
    assert cli.run(argv) == 130
    assert capsys.readouterr().err == f"Interrupted. To continue {left}: {command}\n"


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


@pytest.mark.parametrize("command", OF_THE_CORE)
def test_every_command_of_the_core_has_a_help_that_needs_no_valid_settings(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    check_help(command, capsys)
    if command in CONFIGURED:
        assert cli.run([command, "--unknown", "--help"]) == 0
        assert capsys.readouterr().out.startswith(f"usage: slimrl {command} ")


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["--version"]) == 0
    assert capsys.readouterr().out.startswith("slimrl 0.")


def test_the_overview_takes_half_a_second_of_cpu_at_most() -> None:
    def cpu_s() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-m", "slimrl", "--help"], capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    assert min(cpu_s() for _ in range(3)) < 0.5


def test_closed_pipe_is_no_error() -> None:
    program = "import sys; from slimrl.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", program, "rl", "--help"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait() == 0


@pytest.mark.parametrize("word", [b"outputs/\xff", b"\xc3("])
def test_an_argument_that_is_no_text_is_named(word):
    command = [sys.executable, "-m", "slimrl", "rl", "--output_dir", word]
    refused = subprocess.run(command, capture_output=True, check=False)
    assert refused.returncode == 2 and b"is no UTF-8 text" in refused.stderr and b"Traceback" not in refused.stderr
