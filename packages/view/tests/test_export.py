import json
import re
from collections import Counter

import pytest

from packages.view.tests.made import indexed, make_run, record_of, write_held_out, write_step
from slimrl.cli import run as run_command
from slimrl.errors import UserError
from slimrl_view.api import Api
from slimrl_view.export import export
from slimrl_view.queries import Selection
from tests.tiny import tiny_tokenizer

SCRIPT = re.compile(r"window\.slimrlData\((\"[^\"]*\"),(.*)\);\n")


def read(directory, name):
    """The value that a file of data hands over, and its key."""
    key, value = SCRIPT.fullmatch((directory / "data" / name).read_text(encoding="ascii")).groups()
    return json.loads(key), json.loads(value)


def manifest_of(directory):
    key, manifest = read(directory, "manifest.js")
    assert key == "manifest"
    return manifest


def test_the_files_have_the_answers_of_the_server(tmp_path):
    run = indexed(make_run(tmp_path / "run"))
    tiny_tokenizer().save_pretrained(tmp_path / "run" / "tokenizer")
    exported = export([run], tmp_path / "page", 2000)
    assert (exported.num_rollouts, exported.note) == (10, "")
    manifest, api = manifest_of(tmp_path / "page"), Api([run])
    for path, name in manifest["files"].items():
        key, value = read(tmp_path / "page", name)
        assert key == name
        answer = api.answer(path, {})
        assert value == ([one | {"live": False} for one in answer] if path == "/api/runs" else answer)
    assert {"/api/runs", "/api/registry", "/api/runs/run/metrics", "/api/runs/run/files"} <= manifest["files"].keys()
    [index], [details] = (manifest["rollouts"]["run"][what] for what in ("index", "details"))
    rows, found = read(tmp_path / "page", index)[1], read(tmp_path / "page", details)[1]
    assert [row["key"] for row in rows] == [*found]
    for row in rows:
        assert row["chunk"] == 0
        assert found[row["key"]] == api.answer("/api/runs/run/rollout", {"key": row["key"]})
        assert row["metrics"] == found[row["key"]]["metrics"]


def test_the_page_is_there_and_knows_that_it_has_no_server(tmp_path):
    export([indexed(make_run(tmp_path / "run"))], tmp_path / "page", 10)
    assert 'data-source="static"' in (tmp_path / "page" / "index.html").read_text()


def test_no_text_leaves_its_script(tmp_path):
    hostile = "</script>\u2028\u2029<!-- \ud800 \\');alert(1)//"
    write_step(tmp_path / "run", 0, [record_of(hostile, hostile)])
    export([indexed(tmp_path / "run")], tmp_path / "page", 10)
    [details] = manifest_of(tmp_path / "page")["rollouts"]["run"]["details"]
    assert read(tmp_path / "page", details)[1]["train:0:0"]["messages"][1]["content"] == hostile


@pytest.mark.slow
def test_a_part_of_a_large_run_is_whole_groups_spread_over_its_steps(tmp_path):
    for step in range(40):
        groups = [[record_of(f"train/{group}") for _ in range(3 + group % 2)] for group in range(5)]
        write_step(tmp_path / "run", step, [record for group in groups for record in group])
    tests = [record_of(f"x/test/{number}") for number in range(20)]
    write_held_out(tmp_path / "run", "eval_greedy", tests)
    run = indexed(tmp_path / "run")
    exported = export([run], tmp_path / "page", 150)
    names = manifest_of(tmp_path / "page")["rollouts"]["run"]
    rows = [row for name in names["index"] for row in read(tmp_path / "page", name)[1]]
    train = [row for row in rows if row["file"] == "train"]
    assert 120 <= len(train) <= 150
    assert len(rows) - len(train) == 20
    assert exported.note == f"run has {40 * 17 - len(train)} more rollouts than this export."
    sizes = {group["group"]: group["num"] for group in run.index.groups(Selection(limit=5000))["groups"]}
    assert all(sizes[group] == num for group, num in Counter(row["group"] for row in train).items())
    steps = {row["step"] for row in train}
    assert len(steps) > 30 and max(steps) >= 37 and min(steps) == 0
    assert len(names["details"]) == 2


def test_only_an_earlier_export_is_replaced(tmp_path):
    run = indexed(make_run(tmp_path / "run"))
    (tmp_path / "mine").mkdir()
    export([run], tmp_path / "mine", 10)  # an empty directory
    write_step(tmp_path / "run", 5, [record_of("train/new")])
    export([indexed(tmp_path / "run")], tmp_path / "mine", 2000)
    assert len(read(tmp_path / "mine", "runs_run_index_0.js")[1]) == 11
    with pytest.raises(UserError, match="is no export"):
        export([run], tmp_path / "run", 10)
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="is no export"):
        export([run], tmp_path / "file", 10)
    with pytest.raises(UserError, match="--export"):
        export([run], tmp_path / "file" / "below", 10)


def test_the_command_says_what_it_has_written(tmp_path, capsys):
    make_run(tmp_path / "run")
    assert run_command(["view", str(tmp_path / "run"), "--export", str(tmp_path / "page"), "--max_rollouts", "4"]) == 0
    out = capsys.readouterr().out
    assert f"{tmp_path / 'page' / 'index.html'}: 6 rollouts" in out
    assert "run has 4 more rollouts than this export. --max_rollouts takes more." in out
