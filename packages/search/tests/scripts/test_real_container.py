r"""The sandbox in a container, really: built, started, tested from outside, removed. Minutes, gigabytes and an engine:

    TEST_CONTAINER_IMAGE=docker.io/library/python:3.12-slim-bookworm \
        uv run --group test pytest packages/search/tests/scripts/test_real_container.py

The variable names the base image, a Debian or Ubuntu that the engine has or can fetch.
"""

import asyncio
import os
from pathlib import Path

import pytest

from packages.search.tests.scripts.test_wiki_scripts import ROOT, free_port, set_up, status_of
from slimrl.errors import UserError
from slimrl_sandbox.base import Execution
from slimrl_sandbox.client import HttpSandbox
from slimrl_search.retrieval.prepare import Source
from slimrl_search.services.container import build_image, find_compose, token_of

NUM_AT_ONCE = 500


@pytest.fixture
def port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """Skips where nobody asked for it, or nothing runs containers."""
    image = os.environ.get("TEST_CONTAINER_IMAGE")
    if not image:
        pytest.skip("TEST_CONTAINER_IMAGE, the base image to build the sandbox's container from, is not set")
    try:
        find_compose()
    except UserError as error:
        pytest.skip(str(error))
    number = free_port()
    monkeypatch.chdir(ROOT)
    settings = {"BASE_IMAGE": image, "SANDBOX_PORT": str(number), "SLIMRL_CACHE": str(tmp_path / "cache")}
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    return number


def test_the_container_is_built_started_tested_and_removed(
    tmp_path: Path, port: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(script: str, *arguments: str) -> tuple[int, str]:
        status = status_of(script, arguments, monkeypatch)
        shown = capsys.readouterr()
        return status, shown.out + shown.err

    set_up(tmp_path / "data", Source("generated", 10))
    build_image()  # as setup_environment.py --docker-only
    status, said = run("run_environment", "--container", "--data-dir", str(tmp_path / "data"))
    assert status == 0, said
    try:
        for script in ("test_environment", "test_sandbox"):
            status, said = run(script)
            assert status == 0, said
        results = asyncio.run(at_once(port))
        assert [result.stdout for result in results] == [f"{number}\n" for number in range(NUM_AT_ONCE)]
    finally:
        status, said = run("run_environment", "--stop")
    assert status == 0, said
    assert run("test_environment")[0] == 2


async def at_once(port: int) -> list[Execution]:
    async with HttpSandbox(f"http://127.0.0.1:{port}", token_of()) as sandbox:
        return await asyncio.gather(*(sandbox.run(f"print({number})") for number in range(NUM_AT_ONCE)))
