import json
import re
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from packages.view.tests.made import make_run, record_of, write_step
from slimrl.cli import run


@contextmanager
def viewing(*arguments):
    """A started `slimrl view`, and the address of its page."""
    command = [sys.executable, "-m", "slimrl", "view", *map(str, arguments), "--port", "0", "--no-open"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield process, re.search(r"http://127\.0\.0\.1:\d+", process.stdout.readline())[0]
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


@pytest.mark.slow
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


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_a_signal_ends_it_cleanly(tmp_path, number):
    with viewing(make_run(tmp_path / "run")) as (process, address):
        get(address, "/api/runs")
        process.send_signal(number)
        assert process.wait(10) == 0
        assert process.stderr.read() == ""


@pytest.mark.slow
def test_a_key_is_needed_on_this_machine(tmp_path, monkeypatch):
    monkeypatch.setenv("SLIMRL_API_KEY", "secret")
    with viewing(make_run(tmp_path / "run")) as (_, address):
        with pytest.raises(HTTPError) as refused:
            get(address, "/api/runs")
        assert refused.value.code == 401
        refused.value.close()
        asked = Request(f"{address}/api/runs", headers={"Authorization": "Bearer secret"})
        with urlopen(asked, timeout=10) as answer:
            assert answer.status == 200


@pytest.mark.slow
def test_two_viewers_show_several_runs_at_once_under_names_of_their_own(tmp_path):
    for place in ("x/a", "y/a", "y/b"):
        make_run(tmp_path / place)
    given = tmp_path / "x" / "a", tmp_path / "y", tmp_path / "x" / "a"
    with viewing(*given) as (_, first), viewing(*given) as (_, second):
        for address in (first, second):
            wait_for(lambda at=address: [one["rollouts"] for one in get(at, "/api/state")["runs"]] == [8] * 3)
            assert sorted(one["id"] for one in get(address, "/api/runs")) == ["a", "a-2", "b"]


def test_without_a_run_those_there_are_are_shown(tmp_path, monkeypatch):
    make_run(tmp_path / "outputs" / "first")
    make_run(tmp_path / "runs" / "wiki" / "second")
    (tmp_path / "outputs" / "empty").mkdir()
    monkeypatch.chdir(tmp_path)
    with viewing() as (_, address):
        assert sorted(one["path"] for one in get(address, "/api/runs")) == ["outputs/first", "runs/wiki/second"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "no run was named"),
        (["nowhere"], "does not exist"),
        (["empty"], "has neither metrics.jsonl, nor rollouts/step_*.jsonl, nor held_out/*.jsonl"),
        (["run", "--export", "page"], "there is no option `--export`"),
        (["run", "--prot=1"], "there is no option `--prot=1`. Did you mean `--port`?"),
    ],
)
def test_what_cannot_be_shown_is_explained(tmp_path, monkeypatch, capsys, arguments, said):
    make_run(tmp_path / "run")
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path)
    assert run(["view", *arguments]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--port", "x"], ["--port", "65536"]])
def test_a_wrong_flag_is_refused(arguments, capsys):
    with pytest.raises(SystemExit):
        run(["view", "run", *arguments])
    assert "usage: slimrl view" in capsys.readouterr().err
