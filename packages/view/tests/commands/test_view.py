import json
import re
import signal
import subprocess
import sys
from base64 import b64encode
from contextlib import contextmanager
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from packages.view.tests.made import bound, make_run, opened, record_of, wait_for, write_step
from slimrl.cli import run
from slimrl_view import show as view
from tests.commands.early import run as run_early


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
def test_with_a_key_browsers_elsewhere_are_told_how_to_log_in_and_it_is_shown_nowhere(tmp_path, monkeypatch):
    monkeypatch.setenv("SLIMRL_API_KEY", "se+cret")
    with viewing(make_run(tmp_path / "run"), "--host", "0.0.0.0") as (process, address):
        said = process.stdout.readline()
        assert f":{address.rpartition(':')[2]}/ too, asks for a user and a password: any user, and the value of" in said
        assert "0.0.0.0" not in said and "cret" not in said
        with pytest.raises(HTTPError) as refused:
            get(address, "/api/runs")
        assert refused.value.code == 401
        refused.value.close()
        for headers in (
            {"Authorization": "Bearer se+cret"},
            {"Authorization": f"Basic {b64encode(b'me:se+cret').decode()}"},
        ):
            with urlopen(Request(f"{address}/api/runs", headers=headers), timeout=10) as answer:
                assert answer.status == 200


def test_the_page_is_opened_in_the_browser(tmp_path, monkeypatch):
    addresses = []
    monkeypatch.setattr(view.webbrowser, "open", addresses.append)
    with bound(opened(make_run(tmp_path / "run")), key="secret") as server:
        view.announce(server, ["run"], opens=True)
        wait_for(lambda: addresses)
        assert addresses == [server.url()] and "secret" not in addresses[0]


@pytest.mark.slow
def test_two_viewers_show_several_runs_at_once_under_names_of_their_own(tmp_path):
    for place in ("x/a", "y/a", "y/b"):
        make_run(tmp_path / place)
    given = tmp_path / "x" / "a", tmp_path / "y", tmp_path / "x" / "a"
    with viewing(*given) as (_, first), viewing(*given) as (_, second):
        for address in (first, second):
            wait_for(lambda at=address: [one["rollouts"] for one in get(at, "/api/state")["runs"]] == [8] * 3)
            assert sorted(one["id"] for one in get(address, "/api/runs")) == ["b", "x-a", "y-a"]


@pytest.mark.slow
def test_it_loads_neither_pytorch_nor_transformers_nor_an_extra():
    said, last = run_early("view", "--help")
    assert last == "0 []" and said.startswith("usage: slimrl view")
    unwanted = {"torch", "transformers", "fastapi", "starlette", "matplotlib", "scipy"}
    program = f"import sys, slimrl_view.show; print(*sorted({unwanted!r} & sys.modules.keys()))"
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
        (["nowhere", "--export", "page", "neither"], "nowhere does not exist"),
        (["run", "--terminal"], "there is no option `--terminal`"),
        (["run", "--port", "65536"], "cannot listen on 127.0.0.1:65536"),
        (["--exprt", "x"], "there is no option `--exprt`. Did you mean `--export`?"),
    ],
)
def test_what_cannot_be_shown_is_explained(tmp_path, monkeypatch, capsys, arguments, said):
    make_run(tmp_path / "run")
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SLIMRL_API_KEY", raising=False)
    assert run(["view", *arguments]) == 2
    assert said in capsys.readouterr().err
