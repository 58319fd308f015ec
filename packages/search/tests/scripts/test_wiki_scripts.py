"""The scripts as a person runs them: help, mistakes, and a server that is started, tested and stopped."""

import io
import os
import re
import runpy
import sys
from pathlib import Path

import pytest

from packages.search.tests.retrieval.test_index import Letters
from packages.search.tests.services.test_container import free_port
from slimrl.errors import UserError
from slimrl.models.quiet import no_progress_bars
from slimrl.monitor.console import RunConsole
from slimrl.monitor.sinks import JsonlSink, Monitor
from slimrl_search.retrieval.embedding import SentenceEmbedder
from slimrl_search.retrieval.prepare import Source, prepare_corpus, prepare_index
from slimrl_search.services.container import find_compose

pytest.importorskip("chromadb", reason="the extra [search] is not installed")
ROOT = Path(__file__).parents[4]


def status_of(script: str, arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> int:
    """Runs it in this process, which has loaded PyTorch already; a text to exit with is printed, as Python would."""
    monkeypatch.setattr(sys, "argv", [script, *arguments])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(ROOT / "scripts" / f"{script}.py"), run_name="__main__")
    if isinstance(ended.value.code, str):
        print(ended.value.code, file=sys.stderr)
        return 1
    return int(ended.value.code or 0)


@pytest.mark.parametrize(
    ("script", "flags"),
    [
        ("train", "--num_samples --num_epochs --max_turns --num_rollouts --lr --max_new_tokens --model_name "
                  "--judge_model --live-plot"),
        ("eval", "--model --split --num_samples"),
        ("plot_metrics", "--output --no-show"),
        ("run_environment", "--stop --container"),
        ("setup_environment", "--data-dir --skip-index --docker-only"),
        ("setup_chroma", "--data-dir --skip-index --docker-only"),
    ],
)  # fmt: skip
def test_help_names_every_flag(script: str, flags: str, monkeypatch: pytest.MonkeyPatch, capsys):
    assert status_of(script, ("--help",), monkeypatch) == 0
    shown = capsys.readouterr().out
    assert [flag for flag in flags.split() if flag not in shown] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "arguments", "said"),
    [
        ("train", ("--num_samples", "0"), "--num_samples: found '0', expected a number of 1 or more"),
        ("train", ("--batchsize", "3"), "there is no such setting"),
        ("plot_metrics", ("nowhere",), "cannot be read"),
        ("run_environment", ("--data-dir", "nowhere"), "there is no index in nowhere"),
        ("eval", ("--num_samples", "many"), "--num_samples: found 'many'"),
        ("eval", ("--batchsize", "3"), "there is no such setting"),
        ("test_environment", (), "scripts/run_environment.py"),
        ("test_sandbox", (), "bubblewrap (`bwrap`) is not installed"),
        ("setup_environment", ("--docker-only",), "neither docker compose nor podman compose nor podman-compose runs"),
        *((f"run_{name}", (), "JUDGE_BASE_URL is an address at which") for name in ("llamacpp", "vllm")),
        ("run_environment", ("--container",), "nothing here can run a container"),
    ],
)
def test_mistakes_are_told(tmp_path: Path, script, arguments, said, monkeypatch: pytest.MonkeyPatch, capfd):
    settings = {"SANDBOX_PORT": str(free_port()), "PATH": str(tmp_path), "SLIMRL_CACHE": str(tmp_path)}
    settings |= {"JUDGE_BASE_URL": "http://elsewhere:80/v1"}
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    assert status_of(script, arguments, monkeypatch) in (1, 2)
    assert said in capfd.readouterr().err


def test_a_dry_run_shows_the_settings_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys):
    monkeypatch.chdir(tmp_path)
    for script, flags, shown in (
        ("train", (), "rollouts_per_example = 2"),
        ("eval", (), "num_examples = 100"),
        ("eval", ("--split", "validation"), 'split = "validation"'),
    ):
        assert status_of(script, (*flags, "--dry-run"), monkeypatch) == 0
        assert shown in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("built", "used"), [("1", ""), ("", "1")])
def test_the_corpus_in_the_data_directory_is_used(built: str, used: str, tmp_path: Path, monkeypatch, capsys):
    """Whether DEV=1 was set when the corpus was built, or is now."""
    monkeypatch.setattr("dotenv.load_dotenv", lambda: None)  # a developer's own .env
    monkeypatch.setenv("DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("DEV", built)
    assert status_of("setup_environment", ("--skip-index",), monkeypatch) == 0
    num_pages = 10 if built else 1000
    monkeypatch.setenv("DEV", used)
    for script, few, many in (("train", 2, 20), ("eval", 2, 100)):
        capsys.readouterr()
        assert status_of(script, ("--dry-run",), monkeypatch) == 0
        shown = capsys.readouterr().out
        assert f"num_pages = {num_pages}," in shown and f"num_test = {few if built else many}" in shown


@pytest.mark.parametrize("arguments", [("train", "--model_name"), ("eval", "--model")])
def test_a_model_that_is_not_there_leaves_no_directory(arguments, tmp_path: Path, monkeypatch, capsys):
    monkeypatch.setattr("slimrl_search.wiki_search.environment.SentenceEmbedder", Letters)
    monkeypatch.setattr("dotenv.load_dotenv", lambda: None)  # a developer's own .env
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DEV", "1")
    monkeypatch.setenv("DATA_DIR", str(tmp_path / "data"))
    script, flag = arguments
    assert status_of(script, (flag, "no/such/directory"), monkeypatch) == 2
    assert "no/such/directory" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_run_is_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys):
    with Monitor([JsonlSink(tmp_path / "metrics.jsonl")]) as monitor:
        monitor.log(0, {"reward/mean": 0.5})
    picture = tmp_path / "out" / "custom.png"
    assert status_of("plot_metrics", (str(tmp_path), "--no-show", "--output", str(picture)), monkeypatch) == 0
    assert capsys.readouterr().out == f"{picture}\n"
    assert picture.read_bytes().startswith(b"\x89PNG")
    monkeypatch.setenv("DISPLAY", "")
    assert status_of("plot_metrics", (str(tmp_path),), monkeypatch) == 0  # no window is no failure


def container() -> str:
    """The base image to build the sandbox's container from; skips where nobody asked for it, or nothing runs one."""
    image = os.environ.get("TEST_CONTAINER_IMAGE")
    if not image:
        pytest.skip("TEST_CONTAINER_IMAGE, the base image to build the sandbox's container from, is not set")
    try:
        find_compose()
    except UserError as error:
        pytest.skip(str(error))
    return image


@pytest.mark.nightly
@pytest.mark.parametrize("flags", [[], ["--container"]], ids=["here", "container"])
def test_the_server_is_started_tested_and_stopped(
    flags: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
):
    """In a container, with an engine, it takes minutes and gigabytes."""
    if flags:
        monkeypatch.setenv("BASE_IMAGE", container())
    elif not Path("/usr/bin/bwrap").exists():
        pytest.skip("bubblewrap is not installed")
    monkeypatch.chdir(ROOT)
    port = free_port()
    settings = {"DEV": "1", "DATA_DIR": str(tmp_path / "data"), "SANDBOX_PORT": str(port), "SANDBOX_TOKEN": "a-token"}
    for name, value in (settings | {"SLIMRL_CACHE": str(tmp_path / "cache")}).items():
        monkeypatch.setenv(name, value)

    def run(script: str, *arguments: str) -> tuple[int, str]:
        status = status_of(script, arguments, monkeypatch)
        shown = capsys.readouterr()
        return status, shown.out + shown.err

    set_up(tmp_path / "data", Source("generated", 10))
    if flags:
        assert run("setup_environment", "--docker-only")[0] == 0
    status, said = run("run_environment", *flags)
    try:
        assert (status, f"Server ready! Endpoint: http://127.0.0.1:{port}" in said) == (0, True), said
        for script in ("test_environment", "test_sandbox"):
            status, said = run(script)
            assert status == 0 and re.search(r"(\d\d) of \1 passed", said), said
        monkeypatch.setenv("SANDBOX_TOKEN", "another")
        assert run("test_environment")[0] == 2
    finally:
        status, said = run("run_environment", "--stop")
    assert status == 0 and "stopped" in said
    assert run("run_environment", "--stop")[0] == 1


def set_up(directory: Path, source: Source) -> None:
    """What setup_environment.py does, tested beside this file."""
    progress = RunConsole(io.StringIO()).progress
    with no_progress_bars():
        embedder = SentenceEmbedder()
    prepare_index(directory, prepare_corpus(directory, source, progress), embedder, progress)
