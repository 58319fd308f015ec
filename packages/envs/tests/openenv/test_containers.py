"""Episodes with OpenEnv's server in a container, by the engine that answers here.

The image is made of this machine's own files, so that no registry is asked.
"""

import json
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from packages.envs.tests.openenv.players import PYTHON, needs_openenv, played
from slimrl.errors import RolloutError, UserError
from slimrl_envs.openenv.server import engine_of
from slimrl_envs.openenv.taskset import OpenEnv

pytestmark = [needs_openenv, pytest.mark.slow]
IMAGE = "localhost/slimrl-test-openenv:latest"
PREFIXES = "import json, sys, sysconfig; print(json.dumps([sys.base_prefix, sys.prefix, sysconfig.get_path('stdlib')]))"


def output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=600).stdout


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> None:
    """`IMAGE`, whose command is OpenEnv's server of `served.py` at port 8000."""
    if not engine_of():  # asked here, since every collection would ask above
        pytest.skip("neither Docker nor Podman answers here")
    base, prefix, stdlib = (Path(path) for path in json.loads(output(PYTHON, "-c", PREFIXES)))
    directory = tmp_path_factory.mktemp("image")
    with tarfile.open(directory / "image.tar", "w") as tar:
        tar.add(Path(__file__).with_name("served.py"), "app/served.py")
        for library in libraries(base, prefix):
            tar.add(library.resolve(), library)
        for tree in (base / "bin", base / "lib", prefix):
            tar.add(tree, filter=lambda member: None if is_idle(member.name, stdlib) else member)
        (directory / "tmp").mkdir()
        tar.add(directory / "tmp", "tmp")
    command = [f"{prefix}/bin/python", "-m", "uvicorn", "served:app", "--host", "0.0.0.0", "--port", "8000"]
    changes = ["--change", f"CMD {json.dumps(command)}", "--change", "ENV PYTHONPATH=/app"]
    output(engine_of(), "import", *changes, str(directory / "image.tar"), IMAGE)


def is_idle(name: str, stdlib: Path) -> bool:
    """Whether a file is none that the server loads: tests, and what is installed beside OpenEnv's environment."""
    idle = ("site-packages", "test", "config-")
    inside = name.removeprefix(str(stdlib).removeprefix("/") + "/")
    return (inside != name and inside.startswith(idle)) or name.endswith((".a", ".pyc"))


def libraries(base: Path, prefix: Path) -> Iterator[Path]:
    """The shared libraries of the system that OpenEnv's Python is linked with, and the program that loads them."""
    modules = [one for one in base.rglob("*.so") if "site-packages" not in str(one)]
    found = set[Path]()
    for linked in (Path(PYTHON).resolve(), *modules, *prefix.rglob("*.so")):
        said = subprocess.run(["ldd", str(linked)], capture_output=True, text=True, check=False).stdout
        words = (word.rstrip(":") for line in said.splitlines() for word in line.split() if word.startswith("/"))
        found |= {Path(word) for word in words if Path(word).exists()}
    yield from sorted(path for path in found if not any(path.is_relative_to(tree) for tree in (base, prefix)))


def running() -> list[str]:
    """The ids of this image's containers."""
    return output(engine_of(), "ps", "--quiet", "--filter", f"ancestor={IMAGE}").split()


@pytest.mark.usefixtures("image")
def test_a_container_is_restarted_when_it_dies_and_ends_with_the_taskset():
    taskset = OpenEnv(f"docker/{IMAGE}")
    taskset.prepare()
    (before,) = running()
    ports = output(engine_of(), "port", before)
    assert ports.split()[-1].startswith("127.0.0.1:")  # open to this machine alone
    opening, turns = played(taskset, "3", "7", number=7)
    assert opening[-1]["content"].startswith("Guess a number from 0 to 9.")
    assert [(turn.reward, turn.done) for turn in turns] == [(-0.25, False), (1.0, True)]
    with pytest.raises(RolloutError):
        played(taskset, "die", number=7)
    assert played(taskset, "7", number=7)[1][-1].reward == 1.0
    (after,) = running()
    assert after != before
    taskset.close()
    assert not running()


@pytest.mark.usefixtures("image")
def test_an_image_that_is_not_there_is_named():
    with pytest.raises(UserError, match="localhost/no-such-image"):
        OpenEnv("docker/localhost/no-such-image:1").prepare()
