"""What `slimrl status` and `slimrl scale` say of a run, by the files in its directory alone."""

import json
import os
import platform
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from filelock import FileLock

from packages.cluster.tests.helpers import joined, roster_of
from slimrl.cli import run
from slimrl.errors import UserError
from slimrl.io.run_dir import RunDir
from slimrl_cluster.launch.status import find_status, is_supervised, read_scale, write_programs
from slimrl_cluster.transport.roster import wait_path

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


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("", r"holds no run: there is no config.toml. Name the `output_dir` of one"),
        (
            '# slimrl sft @ config.toml\n[data]\ntype = "expert"\nenv.id = "reverse-text"\n',
            r"is no run of `slimrl rl`, whose parts this command shows. `slimrl view ",
        ),
    ],
)
def test_a_directory_without_a_run_of_rl_is_refused(settings: str, message: str, tmp_path: Path) -> None:
    if settings:
        (tmp_path / "config.toml").write_text(settings)
    with pytest.raises(UserError, match=message):
        find_status(tmp_path)


def test_how_far_a_run_is_and_how_long_it_takes(directory: Path) -> None:
    status = find_status(directory)
    assert status.summary.endswith("run: before the first of 8 steps") and status.parts == []
    log_steps(directory, 0)  # a metric that is no step's
    with FileLock(RunDir(directory).lock):
        assert find_status(directory).summary.endswith(" 8 steps: it loads, evaluates the base model, or warms up")
    log_steps(directory, 3, 60.0)
    assert find_status(directory).summary == f"{directory}: 3 of 8 steps, reward 0.500, 60.0 s a step"
    with FileLock(RunDir(directory).lock):
        assert find_status(directory).summary.endswith(" 60.0 s a step, about 5 min left")
    log_steps(directory, 8)
    assert find_status(directory).summary.endswith("8 of 8 steps, reward 1.750, 3.0 s a step, all of them trained")


def test_a_run_of_one_process_says_whether_it_lives_was_interrupted_or_has_ended(directory: Path, monkeypatch) -> None:
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
    (directory / "logs").mkdir()
    programs(directory, {"trainer": "1", "sampler-0": "2"}, 3)  # processes of an earlier start
    assert find_status(directory).parts == []
    died = "3 of its programs have died so far, and were started again"
    assert find_status(directory).notes == ["it has ended", died, f"logs: {directory / 'logs'}"]
    (directory / "summary.json").unlink()  # interrupted in its last evaluation
    assert find_status(directory).notes[0] == interrupted[0]


def programs(directory: Path, started: dict[str, str], deaths: int = 0, **members: dict[str, str]) -> None:
    """Write the file of the programs that `rl` has started."""
    write_programs(RunDir(directory), started, deaths, members)


def test_a_run_that_logs_nothing_for_long_says_so(directory: Path) -> None:
    log_steps(directory, 3)
    os.utime(directory / "metrics.jsonl", (time.time() - 600,) * 2)
    with joined(directory, "trainer"):
        assert find_status(directory).notes == ["it has logged nothing for 10 min"]
        programs(directory, {"trainer": "1"})  # as a run that was resumed just now
        assert not any("logged nothing" in note for note in find_status(directory).notes)


def test_each_part_that_lives_has_a_row(directory: Path) -> None:
    with ExitStack() as held:
        held.enter_context(joined(directory, "trainer", dtype="float32"))
        for address in ("http://a:1", "http://b:2"):
            held.enter_context(joined(directory, "inference", address=address))
        assert find_status(directory).parts == [
            ("trainer", OWN, "at work"),
            ("inference-0", OWN, "samples at http://a:1"),
            ("inference-1", OWN, "samples at http://b:2"),
        ]


def test_the_parts_on_a_cluster_are_those_that_rl_has_written(directory: Path) -> None:
    member = {"part": "inference", "pid": "77", "host": "n1", "address": "http://10.0.0.2:1"}
    programs(directory, {"sampler-0": "77 on 10.0.0.2", "sampler-1": "waits for a node"}, **{"sampler-0": member})
    with FileLock(RunDir(directory).lock):
        rows = [("sampler-0", "77 on n1", "samples at http://10.0.0.2:1"), ("sampler-1", "waits for a node", LOADS)]
        assert find_status(directory).parts == rows
    assert find_status(directory).parts == []  # the run has ended


def test_who_waits_is_shown_with_whom_and_since_when(directory: Path, monkeypatch) -> None:
    monkeypatch.setattr("slimrl_cluster.transport.roster.CHECK_S", 0.01)
    rows = []

    def find() -> bool | None:
        rows.append(find_status(directory).parts)
        return True if rows[-1][0][2] != "at work" else None

    with joined(directory, "orchestrator"):
        roster_of(directory).wait("trainer", "weights of version 3", find)
        assert rows[-1] == [("orchestrator", OWN, "waits for the trainer's weights of version 3, for 0 s")]
        path = wait_path(RunDir(directory), "orchestrator")
        # Nobody waits, a process that is gone has waited, or the file is being written.
        for text in (None, json.dumps({"pid": 1, "for": "trainer", "what": "weights", "since": 0.0}), "{"):
            if text:
                path.write_text(text)
            assert find_status(directory).parts == [("orchestrator", OWN, "at work")]


def test_what_was_started_and_is_not_ready_is_shown(directory: Path, capsys) -> None:
    started = {"trainer": str(os.getpid()), "orchestrator": "waits for a node", "sampler-0": "77 on 10.0.0.2"}
    programs(directory, started, 1)
    log_steps(directory, 3)
    with joined(directory, "trainer"):
        assert find_status(directory).parts == [
            ("trainer", OWN, "at work"),
            ("orchestrator", "waits for a node", LOADS),
            ("sampler-0", "77 on 10.0.0.2", LOADS),
        ]
        assert run(["status", str(directory)]) == 0
    shown = capsys.readouterr().out
    assert "3 of 8 steps" in shown and "at work" in shown and LOADS in shown and "1 of its programs" in shown


# torchrun is another process
@pytest.mark.parametrize("process", [pytest.param(f"{os.getpid()} on 10.0.0.2; 78 on 10.0.0.3", id="own"), "1"])
def test_the_ranks_of_a_trainer_are_one_part(process: str, directory: Path) -> None:
    programs(directory, {"trainer": process})
    with joined(directory, "trainer"):
        assert find_status(directory).parts == [("trainer", OWN, "at work")]


def test_only_a_run_whose_samplers_rl_has_started_is_scaled(directory: Path, capsys) -> None:
    scale, of_run = ["scale", str(directory), "3"], RunDir(directory)
    assert run(scale) == 2 and "has no samplers that could be more or fewer" in capsys.readouterr().err
    with FileLock(of_run.lock):
        assert run(scale) == 2 and not is_supervised(of_run)  # started by hand
        programs(directory, {"orchestrator": str(os.getpid())})
        assert is_supervised(of_run) and read_scale(of_run) == 0
        assert run([*scale[:2], "0"]) == 2 and "a run needs a sampler" in capsys.readouterr().err
        assert run(scale) == 0 and read_scale(of_run) == 3
        assert "wanted to have 3 samplers" in capsys.readouterr().out
    assert run(scale) == 2  # it has ended
