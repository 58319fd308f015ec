"""When two processes share an output directory, the second is told of the first, whatever it wants there."""

import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

import pytest

from slimrl.config.reading.load import Resolved, load
from slimrl.config.run import EvalRunConfig, RLConfig, TrainerOnlyConfig
from slimrl.errors import UserError
from slimrl.launch.open_dir import open_evaluation_dir, open_training_dir

ROOT = Path(__file__).parents[2]
DEBUG = ROOT / "configs" / "debug" / "rl" / "train.toml"
HOLD = """
import sys, time
from pathlib import Path
from slimrl.config.reading.load import load
from slimrl.config.run import TrainerOnlyConfig
from slimrl.launch.open_dir import open_training_dir

with open_training_dir(load(TrainerOnlyConfig, ["@", sys.argv[1]], {}), Path(sys.argv[2]), False, print):
    print("held", flush=True)
    time.sleep(600)
"""


def trainer(*more: str) -> Resolved[TrainerOnlyConfig]:
    return load(TrainerOnlyConfig, ["@", str(DEBUG), *more], {})


def evaluation() -> Resolved[EvalRunConfig]:
    return load(EvalRunConfig, ["@", str(ROOT / "examples" / "reverse_text" / "eval.toml")], {})


def test_one_run_at_a_time_has_a_directory(tmp_path: Path):
    notes: list[str] = []
    with open_training_dir(trainer(), tmp_path, False, notes.append):
        (tmp_path / "metrics.jsonl").write_text("{}\n")  # to be continued, or deleted, but not now
        partial = tmp_path / "checkpoints" / ".partial_1"
        partial.mkdir(parents=True)
        settings = (tmp_path / "config.toml").read_bytes()
        for resume in (False, True):
            with (
                pytest.raises(UserError, match=rf"another process.* is at work in {tmp_path}.*`--output_dir`"),
                open_training_dir(trainer("--seed", "7"), tmp_path, resume, notes.append),
            ):
                pass
            with pytest.raises(UserError, match="at work"), open_evaluation_dir(evaluation(), tmp_path, resume, print):
                pass
        assert partial.exists() and (tmp_path / "config.toml").read_bytes() == settings
    with open_training_dir(trainer(), tmp_path, True, notes.append) as opened:
        assert opened == tmp_path


def test_an_evaluation_that_is_replaced_is_pointed_out(tmp_path: Path):
    notes: list[str] = []
    episodes = tmp_path / "held_out" / "eval_greedy.jsonl"
    for resume in (False, True, False):
        with open_evaluation_dir(evaluation(), tmp_path, resume, notes.append):
            assert episodes.exists() == resume
            episodes.parent.mkdir(exist_ok=True)
            episodes.write_text("{}\n")
    assert notes == [f"replacing the evaluation that was in {tmp_path}"]


@pytest.mark.nightly
def test_a_killed_run_can_be_taken_up(tmp_path: Path):
    arguments = [sys.executable, "-c", HOLD, str(DEBUG), str(tmp_path)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(UserError, match="at work"), open_training_dir(trainer(), tmp_path, True, print):
            pass
        holder.send_signal(signal.SIGKILL)
    with open_training_dir(trainer(), tmp_path, True, print) as opened:
        assert opened == tmp_path


def test_a_lock_that_cannot_be_had_is_an_error_of_the_directory(tmp_path: Path):
    (tmp_path / ".lock").mkdir()
    with (
        pytest.raises(UserError, match=r"could not be written: .*--output_dir"),
        open_training_dir(trainer(), tmp_path, False, print),
    ):
        pass


def test_an_evaluation_that_was_saved_under_old_names_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    resolved = load(EvalRunConfig, ["--env.0.id", "reverse-text", "--sampling.max_tokens", "7"], {})
    (tmp_path / "held_out").mkdir()
    (tmp_path / "held_out" / "eval_greedy.jsonl").write_text("{}\n")
    (tmp_path / "config.toml").write_text('# slimrl eval @ config.toml\nmax_tokens = 7\n[[env]]\nid = "reverse-text"\n')
    with open_evaluation_dir(resolved, tmp_path, True, print):
        assert "max_tokens = 7  # --sampling.max_tokens" in (tmp_path / "config.toml").read_text()
    assert capsys.readouterr() == ("", "")


def test_a_file_without_its_first_line_is_that_of_the_command_that_resumes(tmp_path: Path) -> None:
    notes: list[str] = []
    with open_training_dir(trainer(), tmp_path, False, print):
        (tmp_path / "metrics.jsonl").write_text("")
    file = tmp_path / "config.toml"
    file.write_text(file.read_text().partition("\n")[2])
    with open_training_dir(trainer(), tmp_path, True, notes.append):
        assert "edited or damaged" in notes[0]


def test_a_run_that_is_resumed_by_its_own_file_keeps_the_first_origins(tmp_path: Path) -> None:
    (tmp_path / "recipe.toml").write_text("seed = 3\n")
    run, notes = tmp_path / "run", list[str]()
    file = run / "config.toml"

    def open_with(*argv: str) -> str:
        resume = "--resume" in argv
        with open_training_dir(load(TrainerOnlyConfig, argv, {}), run, resume, notes.append):
            (run / "metrics.jsonl").write_text("{}\n")
        return file.read_text()

    first = open_with("@", str(tmp_path / "recipe.toml"), "--output_dir", str(run))
    assert f"seed = 3  # {tmp_path}/recipe.toml:1\n" in first
    assert open_with("@", str(file), "--resume") == first and notes == []
    assert "seed = 4  # --seed" in open_with("@", str(file), "--resume", "--seed", "4")
    assert notes == ["resuming with another setting: seed: 3 -> 4"]


def refuse_in(directory: Path, files: Mapping[str, str]) -> None:
    """A run that is refused when it has written the files."""

    def begin() -> None:
        for name, text in files.items():
            path = directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        raise UserError("no such model")

    with pytest.raises(UserError, match="no such model"), open_training_dir(trainer(), directory, False, print):
        begin()


def test_a_refused_run_leaves_only_the_files_that_were_there_before(tmp_path: Path):
    refuse_in(tmp_path / "a", {"metrics.jsonl": "", "rollouts/0.jsonl": "x"})
    with pytest.raises(UserError), open_evaluation_dir(evaluation(), tmp_path / "b", False, print):
        raise UserError("no such model")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "notes.txt").write_text("mine")
    refuse_in(tmp_path, {})
    assert (tmp_path / "notes.txt").is_file()


@pytest.mark.parametrize(
    "name", ["metrics.jsonl", "checkpoints/step_1/x", "warmup/metrics.jsonl", "held_out/base.json"]
)
def test_a_run_that_stops_later_keeps_what_it_has(tmp_path: Path, name: str):
    refuse_in(tmp_path / "a", {name: "{}\n"})
    assert (tmp_path / "a" / "config.toml").is_file()


@pytest.mark.slow
def test_on_a_cluster_a_resumed_part_waits_for_the_lock_of_the_one_before_it(tmp_path: Path):
    argv = ["--orchestrator.env.0.id", "reverse-text", "--deployment.type", "ray", "--resume"]
    resolved, notes = load(RLConfig, argv, {}), list[str]()
    hold = "import sys, time; from filelock import FileLock; lock = FileLock(sys.argv[1]); lock.acquire()"
    command = [sys.executable, "-c", f"{hold}; print('held', flush=True); time.sleep(60)", str(tmp_path / ".lock")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout and holder.stdout.readline() == "held\n"
        lost = threading.Timer(3.0, holder.kill)
        lost.start()
        with open_training_dir(resolved, tmp_path, True, notes.append):
            assert "waiting up to" in notes[0]
        lost.join()
