"""Starts the server of an environment in a container, by Docker or Podman."""

import shutil
import subprocess
import time
from contextlib import suppress

from slimrl.errors import UserError, visible
from slimrl.io.http import is_healthy
from slimrl_envs.openenv.pages import PAGE_S
from slimrl_envs.openenv.server import Running

ENGINES = ("docker", "podman")
PORT = 8000  # on which the servers of OpenEnv's images listen
COMMAND_S, PULL_S, READY_S = 60.0, 1800.0, 180.0


def start_container(image: str) -> Running:
    """Start a container of an image, whose port only this machine reaches. Raises UserError if it fails."""
    engine = engine_of()
    if not engine:
        raise UserError(
            f"openenv: the image {image} needs Docker or Podman, and neither answers here (`docker info`, "
            "`podman info`). Install or start one, name a server that runs (`openenv:http://...`), or the "
            "environment's class (`openenv:module:Class`)."
        )
    run = [engine, "run", "--detach", "--rm", "--publish", f"127.0.0.1::{PORT}", image]
    container = _output(run, PULL_S).split()[-1]
    try:
        ports = _output([engine, "port", container, f"{PORT}/tcp"], COMMAND_S)
        url = f"http://127.0.0.1:{ports.split()[0].rpartition(':')[2]}"
        deadline = time.monotonic() + READY_S
        while not is_healthy(url, PAGE_S):
            if time.monotonic() > deadline:
                raise UserError(f"openenv: the container of {image} was not ready within {READY_S:g} s.")
            time.sleep(0.25)
    except BaseException:
        _end(engine, container)
        raise
    # The engine is asked: a server that is busy with a long step answers nobody, and has not ended.
    return Running(url, 0, lambda: _runs(engine, container), lambda: _end(engine, container))


def engine_of() -> str:
    """Return the first engine that answers, or an empty text. The command may be there without its service."""
    for name in ENGINES:
        if shutil.which(name):
            with suppress(UserError):
                _output([name, "info"], COMMAND_S)
                return name
    return ""


def _runs(engine: str, container: str) -> bool:
    try:
        found = _call([engine, "inspect", "--format", "{{.State.Running}}", container], COMMAND_S)
    except subprocess.TimeoutExpired:  # a slow engine does not mean that the container has ended
        return True
    return found.stdout.strip() == "true"


def _output(command: list[str], timeout_s: float) -> str:
    """Return the output of an engine's command. Raises UserError if it fails or prints nothing."""
    try:
        done = _call(command, timeout_s)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UserError(f"openenv: `{' '.join(command)}` failed: {error}.") from error
    if done.returncode or not done.stdout.strip():
        shown = visible(done.stderr.strip(), 1000)
        raise UserError(f"openenv: `{' '.join(command)}` failed with status {done.returncode}: {shown}")
    return done.stdout


def _end(engine: str, container: str) -> None:
    _call([engine, "rm", "--force", container], COMMAND_S)


def _call(command: list[str], timeout_s: float) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False, errors="replace")
