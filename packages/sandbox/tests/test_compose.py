"""`docker compose up` without a secret: what the files say, and the container's own command run on this machine.

No engine is needed: variables are filled in here as Compose does it, which Compose itself was not asked about.
"""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from io import StringIO
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from dotenv import dotenv_values

DOCKER = Path(__file__).parents[3] / "docker"
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
