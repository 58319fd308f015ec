"""The command line of this plug-in, also without the extra `server`."""

import subprocess
import sys

import pytest

from slimrl import cli
from slimrl.config.reading.load import Resolved, load
from slimrl.config.serve import ServeConfig
from slimrl.io.invocation import command_prefix
from tests.adversary.test_inputs import NAMES, refusal


def test_its_settings_start_a_server_by_both_names(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Resolved[ServeConfig]] = []

    def run(resolved: Resolved[ServeConfig]) -> int:
        started.append(resolved)
        return 7

    monkeypatch.setattr("slimrl_serve.start.run_inference", run)
    for argv, script in ((["slimrl", "inference"], cli.main), (["inference"], cli.inference)):
        monkeypatch.setattr(sys, "argv", [*argv, "--port", "3"])
        assert script() == 7
    assert started == [load(ServeConfig, ["--port", "3"], {})] * 2


def test_an_interrupted_server_says_how_to_serve_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(resolved: Resolved[ServeConfig]) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("slimrl_serve.start.run_inference", run)
    assert cli.run(["inference", "--port", "0"]) == 130
    assert capsys.readouterr().err.endswith(f"To serve again: {command_prefix()}slimrl inference --port 0\n")


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES, ids=lambda name: ascii(name)[:9])
def test_a_model_of_a_name_that_no_file_can_have_is_refused_in_a_line(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    refusal(["inference", "--model", name, "--dry-run"], capsys)


def run_without_fastapi(program: str, *argv: str) -> subprocess.CompletedProcess[str]:
    missing = "import sys; sys.modules['fastapi'] = None; "
    return subprocess.run([sys.executable, "-c", missing + program, *argv], capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_the_command_names_the_extra() -> None:
    done = run_without_fastapi("from slimrl.cli import main; sys.exit(main())", "inference")
    assert done.returncode == 2
    assert (
        done.stderr.startswith("slimrl: The inference server needs the extra [server] (") and "fastapi" in done.stderr
    )
    assert "uv sync --inexact --extra server" in done.stderr


@pytest.mark.nightly
def test_the_engine_does_without_it() -> None:
    assert run_without_fastapi("import slimrl.inference.local_client, slimrl.launch.parts").returncode == 0
