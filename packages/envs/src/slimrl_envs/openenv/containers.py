"""Starts an environment's server in a container, by Docker or Podman, and again when it has ended."""

import shutil
import subprocess
import time
import weakref
from contextlib import suppress

from slimrl.errors import UserError, visible
from slimrl.io.http import is_healthy
from slimrl_envs.openenv.hosted import HostedServer
from slimrl_envs.openenv.pages import PAGE_S

ENGINES = ("docker", "podman")
PORT = 8000  # on which the servers of OpenEnv's images listen
COMMAND_S, PULL_S, READY_S = 60.0, 1800.0, 180.0


class ContainerServer(HostedServer):
    """The server in a container of an image. Only this machine reaches its port."""

    def __init__(self, image: str) -> None:
        super().__init__("container")
        self._image = image
        self._running: list[tuple[str, str]] = []  # the engine, and the container's id
        weakref.finalize(self, _end_all, self._running)

    def runs(self, url: str) -> bool:
        # The engine is asked: a server that is busy with a long step answers nobody, and has not ended.
        return bool(self._running) and _runs(*self._running[-1])

    def close(self) -> None:
        _end_all(self._running)

    def start(self) -> str:
        engine = engine_of()
        if not engine:
            raise UserError(
                f"openenv: the image {self._image} needs Docker or Podman, and neither answers here (`docker info`, "
                "`podman info`). Install or start one, name a server that runs (`openenv:http://...`), or the "
                "environment's class (`openenv:module:Class`)."
            )
        run = [engine, "run", "--detach", "--rm", "--publish", f"127.0.0.1::{PORT}", self._image]
        container = _output(run, PULL_S).split()[-1]
        self._running.append((engine, container))
        ports = _output([engine, "port", container, f"{PORT}/tcp"], COMMAND_S)
        url = f"http://127.0.0.1:{ports.split()[0].rpartition(':')[2]}"
        deadline = time.monotonic() + READY_S
        while not is_healthy(url, PAGE_S):
            if time.monotonic() > deadline:
                _end_all(self._running)
                raise UserError(f"openenv: the container of {self._image} was not ready within {READY_S:g} s.")
            time.sleep(0.25)
        return url


def engine_of() -> str:
    """The first engine that answers; empty where none does. Docker's command is on machines where nothing serves it."""
    for name in ENGINES:
        if shutil.which(name):
            with suppress(UserError):
                _output([name, "info"], COMMAND_S)
                return name
    return ""


def _runs(engine: str, container: str) -> bool:
    command = [engine, "inspect", "--format", "{{.State.Running}}", container]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_S, check=False, errors="replace")
    except subprocess.TimeoutExpired:  # it says nothing of the container
        return True
    return done.stdout.strip() == "true"


def _output(command: list[str], timeout_s: float) -> str:
    """What a command of the engine prints. Raises UserError if it fails or prints nothing."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False, errors="replace")
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UserError(f"openenv: `{' '.join(command)}` failed: {error}.") from error
    if done.returncode or not done.stdout.strip():
        said = visible(done.stderr.strip(), 1000)
        raise UserError(f"openenv: `{' '.join(command)}` failed with status {done.returncode}: {said}")
    return done.stdout


def _end_all(running: list[tuple[str, str]]) -> None:
    while running:
        engine, container = running.pop()
        subprocess.run([engine, "rm", "--force", container], capture_output=True, timeout=COMMAND_S, check=False)
