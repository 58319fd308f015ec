"""A container image of `served.py`, made of this machine's own files, so that no registry is asked."""

import json
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

from packages.envs.tests.openenv.players import PYTHON
from slimrl_envs.openenv.server import engine_of

IMAGE = "localhost/slimrl-test-openenv:latest"
HERE = Path(__file__).parent
PREFIXES = "import json, sys, sysconfig; print(json.dumps([sys.base_prefix, sys.prefix, sysconfig.get_path('stdlib')]))"


def make_image(directory: Path) -> None:
    """Makes `IMAGE`, whose command is OpenEnv's server of `served.py` at port 8000, by the engine that answers here."""
    said = subprocess.run([PYTHON, "-c", PREFIXES], capture_output=True, text=True, check=True).stdout
    base, prefix, stdlib = (Path(path) for path in json.loads(said))
    packed = directory / "image.tar"
    with tarfile.open(packed, "w") as tar:
        tar.add(HERE / "served.py", "app/served.py")
        for library in libraries([base, prefix]):
            tar.add(library.resolve(), library)
        for tree in (base / "bin", base / "lib", prefix):
            tar.add(tree, filter=lambda member: None if is_idle(member.name, stdlib) else member)
        (directory / "tmp").mkdir()
        tar.add(directory / "tmp", "tmp")
    command = [f"{prefix}/bin/python", "-m", "uvicorn", "served:app", "--host", "0.0.0.0", "--port", "8000"]
    changes = ["--change", f"CMD {json.dumps(command)}", "--change", "ENV PYTHONPATH=/app"]
    subprocess.run([engine_of(), "import", *changes, str(packed), IMAGE], check=True, capture_output=True, timeout=600)


def is_idle(name: str, stdlib: Path) -> bool:
    """Whether a file is none that the server loads: tests, and what is installed beside OpenEnv's environment."""
    idle = ("site-packages", "test", "config-")
    inside = name.removeprefix(str(stdlib).removeprefix("/") + "/")
    return (inside != name and inside.startswith(idle)) or name.endswith((".a", ".pyc"))


def libraries(trees: list[Path]) -> Iterator[Path]:
    """The shared libraries of the system that the files of some trees are linked with, and the program that loads
    them."""
    found = {Path(path) for path in linked(Path(PYTHON).resolve())}
    for tree in trees:
        for module in tree.rglob("*.so"):
            if "site-packages" not in str(module) or str(module).startswith(str(trees[1])):
                found |= {Path(path) for path in linked(module)}
    yield from sorted(path for path in found if not any(path.is_relative_to(tree) for tree in trees))


def linked(path: Path) -> list[str]:
    said = subprocess.run(["ldd", str(path)], capture_output=True, text=True, check=False).stdout
    words = [word for line in said.splitlines() for word in line.split() if word.startswith("/")]
    return [word.rstrip(":") for word in words if Path(word.rstrip(":")).exists()]
