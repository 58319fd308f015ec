"""What `slimrl status` and `slimrl scale` say of a run, by the files in its directory alone."""

import json
import os
import platform
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from filelock import FileLock

from slimrl.cli import run
from slimrl.errors import UserError
from slimrl.io.run_dir import RunDir
from slimrl_cluster.launch.status import find_status, is_supervised, write_programs
from slimrl_cluster.transport.roster import Roster, clear_scale, read_scale, wait_path
from slimrl_cluster.transport.run_files import RunFiles

OWN = f"{os.getpid()} on {platform.node()}"
LOADS = "is not ready: it loads, or waits for a node"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """The directory of a run of 8 steps."""
    output_dir = tmp_path / "run"
    output_dir.mkdir()
    settings = '# slimrl rl @ config.toml\nmax_steps = 8\n[[orchestrator.env]]\nid = "reverse-text"\n'
    (output_dir / "config.toml").write_text(settings)
    return output_dir


def log_steps(output_dir: Path, num: int, step_s: float = 3.0) -> None:
    lines = [{"step": 0, "held_out/reward_greedy": 0.1}]
    lines += [{"step": step, "time/step_s": step_s, "reward/mean": step / 4} for step in range(num)]
    (output_dir / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def test_a_directory_that_holds_no_run_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"holds no run: there is no config.toml. Name the `output_dir` of one"):
        find_status(tmp_path)
    with pytest.raises(UserError, match="holds no run"):
        find_status(tmp_path / "nowhere")


def test_a_run_of_another_command_is_told_from_one_that_has_parts(tmp_path):
    lines = "# slimrl sft @ config.toml", "[data]", 'type = "expert"', 'env.id = "reverse-text"'
    (tmp_path / "config.toml").write_text("\n".join(lines))
    with pytest.raises(UserError, match=r"is no run of `slimrl rl`, whose parts this command shows. `slimrl view "):
        find_status(tmp_path)


def test_a_run_before_its_first_step(directory):
    status = find_status(directory)
    assert status.summary.endswith("run: before the first of 8 steps")
    assert status.parts == []
    log_steps(directory, 0)  # a metric that is no step's
    with FileLock(RunDir(directory).lock):
        assert find_status(directory).summary.endswith(" 8 steps: it loads, evaluates the base model, or warms up")


def test_how_far_a_run_is_and_how_long_it_takes(directory):
    log_steps(directory, 3, 60.0)
    assert find_status(directory).summary == f"{directory}: 3 of 8 steps, reward 0.500, 60.0 s a step"
    with FileLock(RunDir(directory).lock):
        assert find_status(directory).summary.endswith(" 60.0 s a step, about 5 min left")
    log_steps(directory, 8)
    assert find_status(directory).summary.endswith("8 of 8 steps, reward 1.750, 3.0 s a step, all of them trained")


def test_a_run_of_one_process_says_whether_it_lives_was_interrupted_or_has_ended(directory, monkeypatch):
    log_steps(directory, 3)
    with FileLock(RunDir(directory).lock):
        assert find_status(directory).notes == [f"it runs as process {os.getpid()}"]
        monkeypatch.setattr("slimrl_cluster.launch.status.holder_of", lambda path: 0)  # as without /proc
        assert find_status(directory).notes == ["it runs as a process of another machine or container"]
    os.utime(directory / "metrics.jsonl", (time.time() - 600,) * 2)  # the silence of a run that is over is not reported
    interrupted = ["it does not run now: `--resume` continues it"]
    assert find_status(directory).notes == interrupted
    (directory / "summary.json").write_text("{}")  # of fewer steps, before it was resumed with more
    assert find_status(directory).notes == interrupted
    log_steps(directory, 8)
    assert find_status(directory).notes == ["it has ended"]
    (directory / "summary.json").unlink()  # interrupted in its last evaluation
    assert find_status(directory).notes == interrupted


def test_a_run_of_several_processes_that_has_ended_says_so(directory):
    log_steps(directory, 8)
    (directory / "summary.json").write_text("{}")
    (directory / "logs").mkdir()
    write_programs(directory, {"trainer": "1", "sampler-0": "2"}, 3)  # what was started once
    status = find_status(directory)
    assert status.parts == []
    assert status.notes == [
        "it has ended",
        "3 of its programs have died so far, and were started again",
        f"logs: {directory / 'logs'}",
    ]


def test_a_run_that_logs_nothing_for_long_says_so(directory):
    log_steps(directory, 3)
    os.utime(directory / "metrics.jsonl", (time.time() - 600,) * 2)
    with Roster(directory).join("trainer", {}):
        assert find_status(directory).notes == ["it has logged nothing for 10 min"]
        write_programs(directory, {"trainer": "1"}, 0)  # as a run that was resumed just now
        assert not any("logged nothing" in note for note in find_status(directory).notes)


def test_each_part_that_lives_has_a_row(directory):
    with ExitStack() as held:
        held.enter_context(Roster(directory).join("trainer", {"dtype": "float32"}))
        for address in ("http://a:1", "http://b:2"):
            held.enter_context(Roster(directory).join("inference", {"address": address}))
        assert find_status(directory).parts == [
            ("trainer", OWN, "at work"),
            ("inference-0", OWN, "samples at http://a:1"),
            ("inference-1", OWN, "samples at http://b:2"),
        ]


def test_who_waits_is_shown_with_whom_and_since_when(directory, monkeypatch):
    monkeypatch.setattr("slimrl_cluster.transport.run_files.CHECK_S", 0.01)
    roster, rows = Roster(directory), []

    def find() -> bool | None:
        rows.append(find_status(directory).parts)
        return True if rows[-1][0][2] != "at work" else None

    files = RunFiles(directory, 20.0, print, roster, "orchestrator")
    with roster.join("orchestrator", {}):
        files.wait("trainer", "weights of version 3", find)
        assert rows[-1] == [("orchestrator", OWN, "waits for the trainer's weights of version 3, for 0 s")]
        assert find_status(directory).parts == [("orchestrator", OWN, "at work")]


def test_the_wait_of_a_process_that_is_gone_is_nobodys(directory):
    path = wait_path(directory, "orchestrator")
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"pid": 1, "for": "trainer", "what": "weights", "since": 0.0}))
    with Roster(directory).join("orchestrator", {}):
        assert find_status(directory).parts == [("orchestrator", OWN, "at work")]
        path.write_text("{")  # being written
        assert find_status(directory).parts == [("orchestrator", OWN, "at work")]


def test_what_was_started_and_is_not_ready_is_shown(directory):
    programs = {"trainer": str(os.getpid()), "orchestrator": "waits for a node", "sampler-0": "77 on 10.0.0.2"}
    write_programs(directory, programs, 0)
    with Roster(directory).join("trainer", {}):
        assert find_status(directory).parts == [
            ("trainer", OWN, "at work"),
            ("orchestrator", "waits for a node", LOADS),
            ("sampler-0", "77 on 10.0.0.2", LOADS),
        ]


def test_the_ranks_of_a_trainer_are_one_part(directory):
    write_programs(directory, {"trainer": f"{os.getpid()} on 10.0.0.2; 78 on 10.0.0.3"}, 0)
    with Roster(directory).join("trainer", {}):
        assert [name for name, _, _ in find_status(directory).parts] == ["trainer"]
        write_programs(directory, {"trainer": "1"}, 0)  # torchrun, whose first rank is another process
        assert find_status(directory).parts == [("trainer", OWN, "at work")]


def test_status_prints_the_rows_and_the_notes(directory, capsys):
    log_steps(directory, 3)
    write_programs(directory, {"trainer": str(os.getpid()), "sampler-0": "1"}, 1)
    with Roster(directory).join("trainer", {}):
        assert run(["status", str(directory)]) == 0
    shown = capsys.readouterr().out
    assert "3 of 8 steps" in shown and "at work" in shown and LOADS in shown and "1 of its programs" in shown


def test_only_a_run_whose_samplers_rl_has_started_is_scaled(directory, capsys):
    scale = ["scale", str(directory), "3"]
    assert run(scale) == 2 and "has no samplers that could be more or fewer" in capsys.readouterr().err
    with Roster(directory).join("orchestrator", {}):  # started by hand
        assert run(scale) == 2 and not is_supervised(directory)
        write_programs(directory, {"orchestrator": str(os.getpid())}, 0)
        assert is_supervised(directory)
        assert run([*scale[:2], "0"]) == 2 and "a run needs a sampler" in capsys.readouterr().err
        assert run(scale) == 0 and read_scale(directory) == 3
        assert "wanted to have 3 samplers" in capsys.readouterr().out
    assert run(scale) == 2  # it has ended


def test_nobody_has_asked_for_a_number_of_samplers(directory):
    assert read_scale(directory) == 0
    clear_scale(directory)
    (directory / "transport").mkdir()
    for text in ("", "many", "-1"):
        (directory / "transport" / "num_samplers").write_text(text)
        assert read_scale(directory) == 0
    clear_scale(directory)
    assert not (directory / "transport" / "num_samplers").exists()
