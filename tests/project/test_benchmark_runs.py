"""Runs that benchmarks make once: which are taken as they are, which go on, begin anew, or are refused."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.harness import runs, seeds
from slimrl.config.reading.load import load
from slimrl.config.reading.saved import write_config
from slimrl.config.run import COMMANDS

ROOT = Path(__file__).parents[2]
RECIPE = str(ROOT / "examples" / "reverse_text" / "rl.toml")
# In the command's place: says what it was asked for in one more line of `words`, and finishes.
FAKE = """
import sys
from pathlib import Path
directory, *words = sys.argv[1:]
Path(directory).mkdir(parents=True, exist_ok=True)
with open(Path(directory) / "words", "a") as file:
    print(*words, file=file)
(Path(directory) / "summary.json").touch()
"""


@pytest.fixture(autouse=True)
def nothing_set_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of benchmarks are compared with what the environment asks for, and tests switch plans off by that."""
    monkeypatch.delenv("SLIMRL_PLAN")


def job(directory: Path, *more: str) -> Any:
    argv = ["@", RECIPE, "--output_dir", str(directory), *more]
    return runs.Job("rl", argv, directory, program=[sys.executable, "-c", FAKE, str(directory)])


def begin(directory: Path, *more: str, command: str = "rl") -> None:
    """As the command leaves it when it is interrupted at once."""
    argv = ["@", RECIPE] if command == "rl" else []
    write_config(load(COMMANDS[command], [*argv, "--output_dir", str(directory), *more], {}), directory)


def words(directory: Path) -> list[str]:
    return (directory / "words").read_text().splitlines()


def test_a_run_that_is_not_there_is_made(tmp_path: Path) -> None:
    for resume in (False, True):
        run = tmp_path / f"run_{resume}"
        runs.finish(job(run), resume)
        assert words(run) == [f"@ {RECIPE} --output_dir {run}"]


def test_a_finished_run_of_equal_settings_is_left_as_it_is(tmp_path: Path) -> None:
    run = tmp_path / "run"
    begin(tmp_path / "made here", "--seed", "2")
    (tmp_path / "made here").rename(run)
    (run / "summary.json").touch()
    for resume in (False, True):
        runs.finish(job(run, "--seed", "2"), resume)  # a default or not, a flag or in a file: the values count
        runs.finish(job(run, "--seed", "2", "--max_async_level", "auto"), resume)
    assert not (run / "words").exists()


def test_an_interrupted_run_goes_on_or_begins_anew(tmp_path: Path) -> None:
    begin(tmp_path / "on")
    runs.finish(job(tmp_path / "on"), resume=True)
    assert words(tmp_path / "on")[0].endswith(" --resume") and (tmp_path / "on" / "config.toml").exists()
    begin(tmp_path / "anew")
    runs.finish(job(tmp_path / "anew"))
    assert "--resume" not in words(tmp_path / "anew")[0] and not (tmp_path / "anew" / "config.toml").exists()


@pytest.mark.parametrize("resume", [False, True])
@pytest.mark.parametrize("finished", [False, True])
def test_a_run_of_other_settings_is_refused_and_kept(tmp_path: Path, resume: bool, finished: bool) -> None:
    run = tmp_path / "run"
    begin(run, "--trainer.optim.lr", "0.5", "--seed", "1")
    if finished:
        (run / "summary.json").touch()
    with pytest.raises(SystemExit, match=r"run was made with other settings \(seed, trainer\). Delete it, or give"):
        runs.finish(job(run), resume)
    assert (run / "config.toml").exists() and not (run / "words").exists()


def test_a_run_without_readable_settings_is_refused(tmp_path: Path) -> None:
    (tmp_path / "summary.json").touch()
    with pytest.raises(SystemExit, match="cannot be read"):
        runs.finish(job(tmp_path))
    (tmp_path / "config.toml").write_text("max_stops = 3\n")
    with pytest.raises(SystemExit, match="max_stops"):
        runs.finish(job(tmp_path))


def test_what_is_kept_names_no_place_of_this_machine(tmp_path: Path) -> None:
    run = tmp_path / "some runs" / "seed_0"
    (run / "held_out").mkdir(parents=True)
    for stage in ("start", "final"):
        (run / "held_out" / f"{stage}.json").write_text("{}")
        for mode in ("greedy", "sampled"):
            (run / "held_out" / f"{stage}_{mode}.jsonl").touch()
    (run / "metrics.jsonl").write_text("{}\n")
    own = '[{ id = "/some/where/market.py:Market", args = { corpus = "/else/where/pages", marks = ["</guess>"] } }]'
    begin(run, "--orchestrator.env", own)
    summary = {"weights": str(run / "weights" / "step_3"), "command": f"uv run eval @ {run / 'eval.toml'}"}
    (run / "summary.json").write_text(json.dumps(summary))
    moved, kept = run.parent / "moved", tmp_path / "kept"
    run.rename(moved)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(seeds, "ROOT", tmp_path)
        seeds.keep(moved, kept)
    assert json.loads((kept / "summary.json").read_text())["weights"] == "outputs/some runs/seed_0/weights/step_3"
    config = (kept / "config.toml").read_text()
    assert config.startswith("# slimrl rl @ kept/config.toml\n")
    assert 'output_dir = "outputs/some runs/seed_0"' in config
    assert 'id = "market.py:Market"' in config and 'corpus = "pages", marks = ["</guess>"]' in config
    for name in ("summary.json", "config.toml"):
        assert str(tmp_path) not in (kept / name).read_text() and "where/" not in config
    assert load(COMMANDS["rl"], ["@", str(kept / "config.toml")], {}).config.max_steps > 0
