"""What run_environment.py --container asks of an engine, which a program of a few lines stands in for. A real one:
`test_wiki_scripts.py`, by TEST_CONTAINER_IMAGE."""

import json
import os
import re
import socket
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from slimrl.errors import UserError
from slimrl_search.services.container import TOOLS, main

ROOT = Path(__file__).parents[4]
# Serves for `up`; says for every command what it was given.
ENGINE = """\
#!{python}
import http.server, json, os, sys

class Healthy(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()

wanted = ("SANDBOX_PORT", "SANDBOX_RESTART", "SECCOMP_PROFILE", "DATA_DIR")
with open({log!r}, "a") as log:
    print(json.dumps([sys.argv[1:], {{name: os.environ.get(name) for name in wanted}}]), file=log)
if "up" in sys.argv:
    http.server.HTTPServer(("127.0.0.1", int(os.environ["SANDBOX_PORT"])), Healthy).serve_forever()
sys.exit({status} if "down" in sys.argv else 0)
"""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


@pytest.fixture
def port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    number = free_port()
    monkeypatch.chdir(ROOT)
    settings = {"SANDBOX_PORT": str(number), "PATH": str(tmp_path / "bin"), "SLIMRL_CACHE": str(tmp_path / "cache")}
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    return number


def engine(directory: Path, status: int = 0) -> Path:
    """Puts the only engine there is on the PATH; the file with what it was asked for."""
    log, program = directory / "asked", directory / "bin" / "podman-compose"
    program.parent.mkdir(exist_ok=True)
    program.write_text(ENGINE.format(python=sys.executable, log=str(log), status=status))
    program.chmod(0o755)
    return log


def asked(log: Path, verb: str) -> list[tuple[list[str], dict[str, str]]]:
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    return [(arguments, environment) for arguments, environment in rows if verb in arguments]


@pytest.mark.slow
def test_podman_compose_alone_starts_and_removes_a_container(tmp_path: Path, port: int) -> None:
    log = engine(tmp_path)
    assert main(["--container", "--data-dir", str(tmp_path)], tmp_path) == 0
    try:
        ((arguments, environment),) = asked(log, "up")
        files = [str(ROOT / "docker" / name) for name in ("docker-compose.yml", "docker-compose.tools.yml")]
        assert arguments[:6] == ["-f", files[0], "-f", files[1], "-p", f"slimrl-sandbox-{port}"]
        assert environment["SANDBOX_RESTART"] == "no"
        assert environment["DATA_DIR"] == str(tmp_path)
        assert os.path.isabs(environment["SECCOMP_PROFILE"]) and os.path.isfile(environment["SECCOMP_PROFILE"])
        assert not asked(log, "down")
    finally:
        assert main(["--stop"], tmp_path) == 0
    ((arguments, _),) = asked(log, "down")
    assert arguments[2:] == ["-p", f"slimrl-sandbox-{port}", "down"]
    assert main(["--stop"], tmp_path) == 1
    assert len(asked(log, "down")) == 1


@pytest.mark.slow
def test_a_container_that_cannot_be_removed_is_told(tmp_path: Path, port: int) -> None:
    engine(tmp_path, status=3)
    main(["--container", "--data-dir", str(tmp_path)], tmp_path)
    with pytest.raises(UserError, match=r"may still run: .*down` ended with status 3"):
        main(["--stop"], tmp_path)
    engine(tmp_path)
    assert main(["--stop"], tmp_path) == 0


@pytest.mark.slow
def test_the_image_has_all_of_slimrl_that_its_server_and_the_tools_import() -> None:
    """Without the checkout's other packages: `-S` leaves out what is installed in place."""
    docker = ROOT / "docker"
    copied = re.search(r"^COPY (.*) /app/src/$", (docker / "Dockerfile").read_text(encoding="utf-8"), re.MULTILINE)
    assert copied
    sources = copied[1].split()
    sent = (docker / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    assert [line for line in sent if line.startswith("!")] == [f"!{source}" for source in sources]
    directories = [*(str(ROOT / source) for source in sources), sysconfig.get_path("purelib")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(directories)}
    module, _, name = TOOLS.partition(":")
    for words in (["-m", "slimrl_sandbox", "--help"], ["-c", f"from {module} import {name}"]):
        done = subprocess.run([sys.executable, "-S", *words], capture_output=True, text=True, env=environment)
        assert done.returncode == 0, done.stderr
