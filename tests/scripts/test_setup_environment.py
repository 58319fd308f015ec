"""The script as a person runs it: builds, does nothing twice, goes on when killed, and says what is wrong."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.scripts.test_wiki_scripts import status_of

pytest.importorskip("chromadb", reason="the extra [search] is not installed")
ROOT = Path(__file__).parents[2]


def run(directory: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "scripts" / "setup_environment.py"), "--data-dir", str(directory), *arguments]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment}, timeout=300)


@pytest.mark.slow
def test_it_builds_once_and_says_how_to_build_another(tmp_path):
    first = run(tmp_path, "--num-pages", "30")
    assert first.returncode == 0, first.stderr
    assert "30 pages in" in first.stdout and "index of their titles in" in first.stdout
    before = (tmp_path / "corpus.sqlite").stat().st_mtime_ns
    assert run(tmp_path, "--num-pages", "30", DEV="1").returncode == 0
    assert (tmp_path / "corpus.sqlite").stat().st_mtime_ns == before
    other = run(tmp_path, DEV="1")
    assert other.returncode == 1 and "Traceback" not in other.stderr
    assert "made from generated, 30 pages, seed 0" in other.stderr
    assert f"setup_environment.py --num-pages 10 --seed 0 --data-dir {tmp_path}`" in other.stderr


@pytest.mark.slow
def test_killed_while_it_embeds_it_goes_on(tmp_path):
    command = [sys.executable, str(ROOT / "scripts" / "setup_environment.py"), "--data-dir", str(tmp_path)]
    with subprocess.Popen([*command, "--num-pages", "2000"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        vectors = tmp_path / "chroma" / "vectors.sqlite"  # of 1,000 titles at first, while the others are embedded
        deadline = time.monotonic() + 120
        while not (vectors.exists() and vectors.stat().st_size > 1_000_000) and time.monotonic() < deadline:
            assert process.poll() is None, process.stderr and process.stderr.read()
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
    result = run(tmp_path, "--num-pages", "2000")
    assert result.returncode == 0, result.stderr
    assert "embedding titles: " in result.stdout and "index of their titles in" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--corpus", "missing.jsonl"), "cannot read missing.jsonl: No such file or directory; check `corpus`"),
        (("--corpus", "nonsense"), "`nonsense` is neither a `.jsonl`"),
        (("--num-pages", "3"), "has 10 pages or more, not 3"),
        (("--corpus", str(ROOT / "docker")), "there is no file of pages in"),
    ],
)
def test_what_is_wrong_is_said_without_a_traceback(
    tmp_path, arguments: tuple[str, ...], said: str, monkeypatch: pytest.MonkeyPatch, capsys
):
    assert status_of("setup_environment", ("--data-dir", str(tmp_path), *arguments), monkeypatch) == 1
    shown = capsys.readouterr().err
    assert said in shown and "Traceback" not in shown
