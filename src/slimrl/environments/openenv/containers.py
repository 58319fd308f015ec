"""Starts an environment's server in a container, by Docker or Podman, and again when it has ended."""

import shutil
import subprocess
import threading
import time
import weakref

from slimrl.environments.openenv.pages import is_healthy
from slimrl.errors import RolloutError, UserError, visible

ENGINES = ("docker", "podman")
PORT = 8000  # on which the servers of OpenEnv's images listen
COMMAND_S, PULL_S, READY_S = 60.0, 1800.0, 180.0
MAX_STARTS = 16  # in a row, without a session that was answered


class ContainerServer:
    """The server in a container of an image. Only this machine reaches its port."""

    sessions = 0

    def __init__(self, image: str) -> None:
        self._image = image
        self._starting = threading.Lock()
        self._running: list[tuple[str, str]] = []  # the engine, and the container's id
        self._url, self._num_starts = "", 0
        weakref.finalize(self, _end_all, self._running)

    def url(self) -> str:
        """The address of the server, which is started if it does not answer. Raises UserError if there is no engine or
        no image, and RolloutError if it has ended too often."""
        with self._starting:
            if not self._running or not is_healthy(self._url):
                self._start()
            return self._url

    def note_answer(self) -> None:
        """Notes that the server has answered: it does not end before it can."""
        self._num_starts = 0

    def close(self) -> None:
        """Ends the container."""
        _end_all(self._running)

    def _start(self) -> None:
        if self._num_starts == MAX_STARTS:
            raise RolloutError(
                "environment_died", f"its container has ended {MAX_STARTS} times in a row without answering a session"
            )
        self._num_starts += 1
        _end_all(self._running)
        engine = next((name for name in ENGINES if shutil.which(name)), "")
        if not engine:
            raise UserError(
                f"openenv: the image {self._image} needs Docker or Podman, and neither is installed. Install one, name "
                "a server that runs (`openenv:http://...`), or the environment's class (`openenv:module:Class`)."
            )
        run = [engine, "run", "--detach", "--rm", "--publish", f"127.0.0.1::{PORT}", self._image]
        container = _output(run, PULL_S).split()[-1]
        self._running.append((engine, container))
        ports = _output([engine, "port", container, f"{PORT}/tcp"], COMMAND_S)
        self._url = f"http://127.0.0.1:{ports.split()[0].rpartition(':')[2]}"
        deadline = time.monotonic() + READY_S
        while not is_healthy(self._url):
            if time.monotonic() > deadline:
                _end_all(self._running)
                raise UserError(f"openenv: the container of {self._image} was not ready within {READY_S:g} s.")
            time.sleep(0.25)


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
