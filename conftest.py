"""How the tests of the core and of the plug-ins run, and fixtures for all: no network, a process for each core and one
thread in each, one tiny model directory for a whole process."""

import atexit
import gc
import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

# Two packages of the tests. A pytest of another Python, or one without the group, would fail in every file.
if find_spec("torch") is None or find_spec("xdist") is None:
    sys.exit("error: the packages that the tests need are not installed: use `uv run --group test pytest`.")

# Before torch is first imported. Tiny models gain nothing from threads, results must not depend on the machine's number
# of cores, and the other cores belong to the other processes. The commands that tests start inherit it.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["SLIMRL_PLAN"] = "off"  # planning a tiny model takes longer than a step of it; tests of plans plan
os.environ["HF_HUB_OFFLINE"] = "1"  # before huggingface_hub is first imported: it reads this once
if "PYTEST_XDIST_WORKER" not in os.environ:  # likewise, out of the user's cache, and one for all
    os.environ["HF_DATASETS_CACHE"] = tempfile.mkdtemp(prefix="slimrl-tests-")
    atexit.register(shutil.rmtree, os.environ["HF_DATASETS_CACHE"], ignore_errors=True)
# PyTorch creates this directory when a process exits, and some processes exit after the tests.
os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(Path(__file__).parent / ".pytest_cache" / "inductor")

# Where Python may leave no bytecode beside its sources, each command that a test starts would compile PyTorch anew.
if sys.dont_write_bytecode:
    sys.dont_write_bytecode, sys.pycache_prefix = False, str(Path(__file__).parent / ".pytest_cache" / "bytecode")
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix

# A script's background ignores Ctrl-C, and what is started there inherits that; tests of interrupts need it.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

import pytest

WORKER = "PYTEST_XDIST_WORKER"  # is in the environment of the processes that the tests are shared out to
FAST = "not slow and not nightly"  # the expression in pyproject.toml
LEFT_OUT = re.compile(r"^pytestmark = \[?pytest\.mark\.(slow|nightly)\b", re.MULTILINE)
MAX_WORKERS = 4  # each holds PyTorch and starts servers of its own, and so takes a gigabyte and more


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Share the tests out to a process for each core, if whole directories are asked for and nobody said `-n`.

    Not by `addopts`: files and single tests start faster without workers, and `-p no:xdist` would not know `-n`.
    """
    option = config.option
    if getattr(option, "hypothesis_profile", "") is None:
        option.hypothesis_profile = "ci"  # the same examples every time, however slow the machine
    if WORKER in os.environ or not config.pluginmanager.hasplugin("xdist"):
        return
    is_watched = option.usepdb or option.trace or option.capture == "no"  # workers have no terminal
    if option.numprocesses is None and not option.tx and not is_watched and names_a_directory(config):
        num_cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
        option.numprocesses = min(num_cores, MAX_WORKERS) if num_cores > 1 else 0
    if option.numprocesses and option.dist == "no":
        option.dist = "worksteal"  # keeps neighbours together, for the sake of fixtures, and no worker idle at the end


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even import a file whose tests are all left out: its packages may take seconds."""
    is_fast_run = config.option.markexpr == FAST and collection_path.match("test_*.py")
    return True if is_fast_run and LEFT_OUT.search(collection_path.read_text(encoding="utf-8")) else None


def names_a_directory(config: pytest.Config) -> bool:
    """`testpaths` count as named if nothing is."""
    return any((config.invocation_params.dir / name).is_dir() for name in config.args)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Exclude the loaded packages from garbage collections, each of which would visit millions of objects that stay."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_sessionfinish() -> None:
    gc.unfreeze()  # otherwise packages in C report leaks at exit


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if config.option.markexpr == FAST:
        terminalreporter.write_line("Left out: tests marked slow (`-m slow` runs these) or nightly (`-m nightly`).")


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """Here too, whatever else the environment says of threads."""
    if torch := sys.modules.get("torch"):  # a test without it starts at once
        torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def same_luck() -> None:
    """The random tensors of a test do not depend on the tests before it in the process."""
    if torch := sys.modules.get("torch"):
        torch.manual_seed(0)


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Keep out of the user's cache. Shared by all processes of the session, the workers and the commands that tests
    start: the packaged model is converted by the first test that needs it, and only once."""
    base = tmp_path_factory.getbasetemp()
    cache = (base.parent if WORKER in os.environ else base) / "cache"
    cache.mkdir(exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLIMRL_CACHE", str(cache))
        yield cache


@pytest.fixture(autouse=True)
def own_ctrl_c() -> Iterator[None]:
    """Take Ctrl-C back from a command that a test has run in this process: it leaves it to the system at its end, and
    would end the process some seconds after the Ctrl-C of a later test."""
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)
    signal.set_wakeup_fd(-1)


@pytest.fixture(scope="session")
def tiny_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random Llama on disk with tokenizer and chat template. Shared: do not write into it."""
    from tests.tiny import tiny_model_dir

    return tiny_model_dir(tmp_path_factory.mktemp("models"), "llama")
