"""`docker compose up` without a secret: what the files say, and the container's own command run on this machine.

No engine is needed: variables are filled in here as Compose does it, which Compose itself was not asked about.
"""

import asyncio
import os
import re
import socket
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from io import StringIO
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from dotenv import dotenv_values

from slimrl_sandbox.client import HttpSandbox
from slimrl_sandbox.server import gateways, make_app

DOCKER = Path(__file__).parents[4] / "docker"
VARIABLE = re.compile(r"\$\{(?P<name>\w+):(?P<kind>[-?])(?P<rest>[^}]*)\}")
# As people write it: units in capitals, a fraction, a relative directory, a comment, and nothing about a secret.
DOTENV = """
SANDBOX_PORT=8081
DATA_DIR=./data
DOCKER_MEMORY_LIMIT=4G
DOCKER_CPU_LIMIT=2.0

# Weights & Biases (optional - set to enable logging)
WANDB_PROJECT=SomeProject
"""


def service(file: str, variables: Mapping[str, str | None]) -> dict[str, Any]:
    """The service of a compose file with its variables filled in. Raises ValueError as Compose refuses a file."""

    def fill_in(match: re.Match[str]) -> str:
        value = variables.get(match["name"])
        if not value and match["kind"] == "?":
            raise ValueError(f"required variable {match['name']} is missing a value: {match['rest']}")
        return value or match["rest"]

    text = VARIABLE.sub(fill_in, (DOCKER / file).read_text(encoding="utf-8"))
    return dict(yaml.safe_load(text)["services"]["sandbox"])


def test_without_any_variable_it_starts_on_the_loopback_address() -> None:
    found = service("docker-compose.yml", {})
    assert found["ports"] == ["127.0.0.1:8080:8080"]
    assert found["environment"] == {"SANDBOX_TOKEN": ""} and found["command"] == ["--published"]
    assert "volumes" not in found


def test_a_dotenv_file_of_usual_values_is_taken_as_it_stands() -> None:
    found = service("docker-compose.yml", dotenv_values(stream=StringIO(DOTENV)))
    assert found["ports"] == ["127.0.0.1:8081:8080"]
    assert re.fullmatch(r"\d+[kKmMgG]", found["mem_limit"]) and found["memswap_limit"] == found["mem_limit"] == "4G"
    assert float(found["cpus"]) == 2.0
    assert service("docker-compose.yml", {"SANDBOX_TOKEN": "s"})["environment"]["SANDBOX_TOKEN"] == "s"


def test_the_tools_alone_ask_for_the_script_that_knows_them() -> None:
    with pytest.raises(ValueError, match=r"run_environment\.py --container"):
        service("docker-compose.tools.yml", {"DATA_DIR": "./data"})
    found = service("docker-compose.tools.yml", {"DATA_DIR": "/abs/data", "SANDBOX_TOOLS": "a:b"})
    assert found == {"environment": {"SANDBOX_TOOLS": "a:b"}, "volumes": ["/abs/data:/data:ro"]}


@pytest.mark.nightly
def test_the_command_of_the_container_serves_this_machine_without_a_token(isolated: None) -> None:
    entry = re.search(r"^ENTRYPOINT (\[.*\])$", (DOCKER / "Dockerfile").read_text(encoding="utf-8"), re.MULTILINE)
    assert entry
    _, *words = yaml.safe_load(entry[1])
    command = [sys.executable, *words, *service("docker-compose.yml", {})["command"], "--port", "0"]
    environment = {**os.environ, "SANDBOX_TOKEN": ""}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout
            port = re.search(r"0\.0\.0\.0:(\d+)", process.stdout.readline())
            assert port
            reply = httpx.post(f"http://127.0.0.1:{port[1]}/execute", json={"code": "print(6 * 7)"}, timeout=30)
            assert reply.json()["stdout"] == "42\n"
        finally:
            process.terminate()


def run_in_the_image(*words: str) -> "subprocess.CompletedProcess[str]":
    """Runs Python with the directories that the image is made of, and none of the checkout's other packages: `-S`
    leaves out what is installed in place."""
    copied = re.search(r"^COPY (.*) /app/src/$", (DOCKER / "Dockerfile").read_text(encoding="utf-8"), re.MULTILINE)
    assert copied
    directories = [*(str(DOCKER.parent / source) for source in copied[1].split()), sysconfig.get_path("purelib")]
    sent = (DOCKER / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    assert [line for line in sent if line.startswith("!")] == [f"!{source}" for source in copied[1].split()]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(directories)}
    return subprocess.run([sys.executable, "-S", *words], capture_output=True, text=True, env=environment, check=False)


def test_the_image_has_all_of_slimrl_that_its_server_imports() -> None:
    done = run_in_the_image("-m", "slimrl_sandbox", "--help")
    assert done.returncode == 0 and done.stdout.startswith("usage: python -m slimrl_sandbox "), done.stderr


@pytest.mark.parametrize(
    ("peer", "headers", "status"),
    [
        ("127.0.0.1", {}, 200),
        ("172.18.0.1", {}, 200),  # the engine, which forwards what came to the loopback address of the host
        ("172.18.0.7", {}, 403),  # another container
        ("192.168.1.20", {}, 403),  # another machine, to which an old Docker routes what it should not
        ("172.18.0.1", {"Origin": "https://example.com"}, 403),  # a web page
        ("172.18.0.1", {"Host": "example.com"}, 403),  # a web page after DNS rebinding
    ],
)
def test_without_a_token_only_this_machine_is_answered(peer: str, headers: dict[str, str], status: int) -> None:
    async def ask() -> int:
        app = make_app(HttpSandbox("http://127.0.0.1:9"), {}, "", forwarders={"172.18.0.1"})
        transport = httpx.ASGITransport(app, client=(peer, 4000))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost:8080") as http:
            return (await http.get("/tools", headers=headers)).status_code

    assert asyncio.run(ask()) == status


def test_the_gateway_is_read_from_the_routes(tmp_path: Path) -> None:
    routes = tmp_path / "route"
    header = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\n"
    default, own = (
        "eth0\t00000000\t010012AC\t0003\t0\t0\t0\t00000000\n",
        "eth0\t000012AC\t00000000\t0001\t0\t0\t0\t0000FFFF\n",
    )
    routes.write_text(header + default + own)
    assert gateways(routes) == {socket.inet_ntoa(bytes([172, 18, 0, 1]))}
    routes.write_text(header + own)
    assert gateways(routes) == gateways(tmp_path / "none") == frozenset()
