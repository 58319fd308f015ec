"""The scripts and the tests where no extra is installed: help is printed, and one line names what is missing."""

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[4]
CHECK = "check_installed.py"  # which each of the scripts imports
SCRIPTS = sorted(path.name for path in (ROOT / "scripts").glob("*.py") if path.name != CHECK)
# Python runs this file at its start: `None` stands for a module that is not installed.
BLOCK = "import sys\nsys.modules.update(dict.fromkeys({modules!r}))\n"
RUN = """
import runpy, sys
sys.path.insert(0, "scripts")
for script, *words in {commands!r}:
    sys.argv = [script, *words]
    try:
        runpy.run_path("scripts/" + script, run_name="__main__")
    except SystemExit as ended:
        print(script, *words, "status", ended.code)
print("loaded", *sorted({heavy!r} & sys.modules.keys()))
"""
HEAVY = {"torch", "transformers"}  # the core has them, and they take seconds to load


def core() -> set[str]:
    """The names of the distributions that slimrl and the plug-ins of the scripts install without an extra."""
    found, to_visit = set[str](), ["slimrl", "slimrl-envs", "slimrl-search"]
    while to_visit:
        name = canonicalize_name(to_visit.pop())
        try:
            asked = [Requirement(text) for text in importlib.metadata.requires(name) or []]
        except importlib.metadata.PackageNotFoundError:  # of another platform
            continue
        found.add(name)
        needed = [one.name for one in asked if one.marker is None or one.marker.evaluate({"extra": ""})]
        to_visit += [one for one in needed if canonicalize_name(one) not in found]
    return found


def run_with_core(directory: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run Python without the modules of any other distribution."""
    names, in_core = importlib.metadata.packages_distributions(), core()
    others = [name for name, owners in names.items() if not any(canonicalize_name(one) in in_core for one in owners)]
    (directory / "sitecustomize.py").write_text(BLOCK.format(modules=[name for name in others if name.isidentifier()]))
    path = os.pathsep.join([str(directory), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    environment = {**os.environ, "PYTHONPATH": path, "DATA_DIR": str(directory / "data"), "DEV": "1"}
    environment["SLIMRL_CACHE"] = str(directory / "cache")
    command = [sys.executable, *words]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=120)


def test_a_python_without_slimrl_is_told_the_command_that_works() -> None:
    for script in SCRIPTS:
        words = [f"scripts/{script}", "--typo"]
        done = subprocess.run([sys.executable, "-S", *words], capture_output=True, text=True, cwd=ROOT, timeout=60)
        assert done.returncode == 1 and len(done.stderr.splitlines()) == 1, done.stderr
        name = "setup_environment.py" if script == "setup_chroma.py" else script
        assert done.stderr.endswith(f"scripts/{name} --typo\n") and "uv run python" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(("word", "status"), [("--help", 0), ("--typo", 2)])
def test_help_and_typos_need_no_extra_and_nothing_heavy(word: str, status: int, tmp_path: Path) -> None:
    commands = [[script, word] for script in SCRIPTS]
    commands += [["run_environment.py", "--stop"]] if word == "--help" else []
    done = run_with_core(tmp_path, "-c", RUN.format(commands=commands, heavy=HEAVY))
    *ended, loaded = (line for line in done.stdout.splitlines() if " status " in line or line.startswith("loaded"))
    stopped = ["run_environment.py --stop status 1"] if word == "--help" else []
    assert ended == [*(f"{script} {word} status {status}" for script in SCRIPTS), *stopped], done.stderr
    assert loaded == "loaded"


@pytest.mark.parametrize(
    ("script", "extra"),
    [
        pytest.param("setup_environment.py", "search", marks=pytest.mark.slow),
        pytest.param("train.py", "search", marks=pytest.mark.nightly),
        pytest.param("eval.py", "search", marks=pytest.mark.nightly),
        pytest.param("test_sandbox.py", "server", marks=pytest.mark.nightly),
    ],
)
def test_the_command_that_installs_a_missing_extra_is_named(script: str, extra: str, tmp_path: Path) -> None:
    done = run_with_core(tmp_path, f"scripts/{script}")
    assert done.returncode in (1, 2)
    assert f"`uv sync --inexact --extra {extra}`" in done.stderr and "Traceback" not in done.stderr


def test_help_of_the_training_with_slime_needs_no_ray() -> None:
    for word in ("--help", "-h"):
        done = subprocess.run(["scripts/run_matching.sh", word], capture_output=True, text=True, cwd=ROOT)
        assert (done.returncode, done.stderr) == (0, "")
        assert "SLIME_ROOT=$HOME/slime  " in done.stdout and "  NUM_GPUS=8\n" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("missing", ["xdist", "torch"])
def test_pytest_names_the_command_with_the_tests_packages(missing: str, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(BLOCK.format(modules=[missing]))
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, "-m", "pytest", "tests/"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=60)
    (line,) = done.stderr.splitlines()
    assert done.returncode != 0 and "`uv run --group test pytest`" in line and not done.stdout
