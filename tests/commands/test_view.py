import json
import re
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from urllib.request import urlopen

import pytest

from slimrl.cli import run
from tests.viewer.made import make_run, record_of, write_step


@contextmanager
def viewing(*arguments):
    """A started `slimrl view`, and the address of its page."""
    command = [sys.executable, "-m", "slimrl", "view", *map(str, arguments), "--port", "0", "--no-open"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        line = process.stdout.readline()
        found = re.search(r"at (http://127\.0\.0\.1:\d+)/", line)
        assert found, line + process.stderr.read()
        yield process, found[1]
    finally:
        process.kill()
        process.communicate()


def get(address, path):
    with urlopen(address + path, timeout=10) as answer:
        return json.load(answer)


def wait_for(condition):
    for _ in range(200):
        if condition():
            return
        time.sleep(0.05)
    pytest.fail("it did not happen within ten seconds")


def test_a_run_that_grows_is_shown_as_it_grows(tmp_path):
    path = make_run(tmp_path / "run")

    with viewing(path) as (_, address):

        def counts():
            [state] = get(address, "/api/state")["runs"]
            return state["rollouts"], state["metrics"]

        wait_for(lambda: counts() == (8, 2))
        for step in (2, 3):
            write_step(path, step, [record_of("train/c"), record_of("train/d")])
            with (path / "metrics.jsonl").open("a") as file:
                file.write(json.dumps({"step": step, "reward/mean": 0.5}) + "\n")
        wait_for(lambda: counts() == (12, 4))
        newest = get(address, "/api/runs/run/rollouts?sort=-step&limit=1")["rows"][0]
        assert (newest["step"], newest["task"]) == (3, "train/c")
        with urlopen(f"{address}/") as page:
            assert page.headers["Content-Type"].startswith("text/html")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_cleanly(tmp_path, number):
    with viewing(make_run(tmp_path / "run")) as (process, address):
        get(address, "/api/runs")
        process.send_signal(number)
        assert process.wait(10) == 0
        assert process.stderr.read() == ""


def test_two_viewers_show_one_run_at_once(tmp_path):
    path = make_run(tmp_path / "run")
    with viewing(path) as (_, first), viewing(path) as (_, second):
        for address in (first, second):
            wait_for(lambda address=address: get(address, "/api/state")["runs"][0]["rollouts"] == 8)


def test_several_runs_and_directories_of_runs_are_shown_under_names_of_their_own(tmp_path):
    for place in ("x/a", "y/a", "y/b"):
        make_run(tmp_path / place)
    with viewing(tmp_path / "x" / "a", tmp_path / "y", tmp_path / "x" / "a") as (_, address):
        assert sorted(one["id"] for one in get(address, "/api/runs")) == ["b", "x-a", "y-a"]


def test_it_loads_neither_pytorch_nor_transformers_nor_an_extra():
    unwanted = {"torch", "transformers", "fastapi", "starlette", "matplotlib", "scipy"}
    program = f"import sys, slimrl.commands.view; print(*sorted({unwanted!r} & sys.modules.keys()))"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.split() == []


def test_without_a_run_those_there_are_are_listed(tmp_path, monkeypatch, capsys):
    make_run(tmp_path / "outputs" / "first")
    make_run(tmp_path / "runs" / "wiki" / "second")
    (tmp_path / "outputs" / "empty").mkdir()
    monkeypatch.chdir(tmp_path)
    assert run(["view"]) == 0
    out = capsys.readouterr().out
    assert "  outputs/first\n" in out and "  runs/wiki/second\n" in out and "empty" not in out
    assert "slimrl view " in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "no run was named"),
        (["nowhere"], "does not exist"),
        (["empty"], "has neither metrics.jsonl, nor rollouts/step_*.jsonl, nor held_out/*.jsonl"),
        (["run", "--host", "0.0.0.0"], "SLIMRL_API_KEY"),
    ],
)
def test_what_cannot_be_shown_is_explained(tmp_path, monkeypatch, capsys, arguments, said):
    make_run(tmp_path / "run")
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SLIMRL_API_KEY", raising=False)
    assert run(["view", *arguments]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--port", "x"], ["--port", "65536"], ["--nothing"]])
def test_a_wrong_flag_is_refused(arguments, capsys):
    with pytest.raises(SystemExit):
        run(["view", "run", *arguments])
    assert "usage: slimrl view" in capsys.readouterr().err
