"""Without the extra `server` its command says what to install; everything else goes on working."""

import subprocess
import sys

import pytest


def run(program: str, *argv: str) -> subprocess.CompletedProcess[str]:
    missing = "import sys; sys.modules['fastapi'] = None; "
    return subprocess.run([sys.executable, "-c", missing + program, *argv], capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_the_command_names_the_extra() -> None:
    done = run("from slimrl.cli import main; sys.exit(main())", "inference")
    assert done.returncode == 2
    assert (
        done.stderr.startswith("slimrl: The inference server needs the extra [server] (") and "fastapi" in done.stderr
    )
    assert "uv sync --inexact --extra server" in done.stderr


@pytest.mark.nightly
def test_the_engine_does_without_it() -> None:
    assert run("import slimrl.inference.local_client, slimrl.launch.parts").returncode == 0
