"""How the parts of a run wait for one another: by files, and never without a word or an end."""

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from slimrl.config.deployment import Part
from slimrl.errors import UserError
from slimrl.io.run_dir import RunDir
from slimrl_cluster.transport.roster import Roster
from slimrl_cluster.transport.run_files import RunFiles, drop_before, newest_version


def files_of(directory: Path, timeout_s: float = 20.0, notes: list[str] | None = None) -> RunFiles:
    note = (notes if notes is not None else []).append
    return RunFiles(RunDir(directory), timeout_s, note, Roster(directory), "orchestrator")


def wait(files: RunFiles, part: Part = "trainer", find: Callable[[], None] = lambda: None) -> None:
    files.wait(part, "work", find)


@pytest.fixture
def trainer(tmp_path: Path) -> Iterator[ExitStack]:
    """A trainer of the run; it leaves when this is closed."""
    with ExitStack() as held:
        held.enter_context(Roster(tmp_path).join("trainer", {}))
        yield held


def test_who_waits_for_a_part_that_dies_is_told_its_name(tmp_path: Path, trainer: ExitStack) -> None:
    files = files_of(tmp_path)
    files.await_part("trainer")
    trainer.close()
    with pytest.raises(UserError, match=rf"the trainer \(process {os.getpid()} .* has not left its work"):
        wait(files)


def test_who_waits_too_long_is_told_for_whom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slimrl_cluster.transport.run_files.SAY_S", 0.05)
    notes: list[str] = []
    with pytest.raises(UserError, match=r"waited .* in vain for the orchestrator's work: .*timeout_s"):
        wait(files_of(tmp_path, 0.3, notes), "orchestrator")
    assert notes and notes[0].startswith("waiting for the orchestrator's work, for ")


def test_the_last_work_of_a_part_that_has_ended_counts(tmp_path: Path, trainer: ExitStack) -> None:
    files, looks = files_of(tmp_path), iter([None])
    files.await_part("trainer")
    trainer.close()
    assert files.wait("trainer", "work", lambda: next(looks, "there")) == "there"


@pytest.mark.slow
@pytest.mark.parametrize("ahead_s", [50.0, -3600.0, 3600.0])
@pytest.mark.parametrize("name", ["metrics.jsonl", "warmup/metrics.jsonl"])
def test_a_part_that_writes_is_waited_for_whatever_a_file_servers_clock_says(
    name: str, ahead_s: float, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)

    def add_line() -> None:
        with path.open("a") as file:
            file.write("{}\n")
        os.utime(path, (time.time() + ahead_s,) * 2)

    def add_lines() -> None:
        for _ in range(8):
            time.sleep(0.2)
            add_line()

    add_line()
    began = time.monotonic()
    with pytest.raises(UserError, match=r"in vain for the trainer's work"):
        wait(files_of(tmp_path, 0.4))
    assert time.monotonic() - began < 5
    with ThreadPoolExecutor() as pool:
        began = time.monotonic()
        pool.submit(add_lines)
        with pytest.raises(UserError, match="it has written nothing"):
            wait(files_of(tmp_path, 0.8))
    assert time.monotonic() - began > 1.6


def test_a_batch_that_vanishes_while_it_is_looked_at_is_no_sign_and_no_error(tmp_path: Path) -> None:
    path = RunDir(tmp_path).batch_of(7)
    path.parent.mkdir(parents=True)
    path.symlink_to("deleted")
    with pytest.raises(UserError, match=r"in vain for the orchestrator's work"):
        wait(files_of(tmp_path, 0.2), "orchestrator")


def test_batches_and_weights_of_the_past_are_dropped(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    assert newest_version(run) == -1
    run.batches.mkdir(parents=True)
    for step in (0, 1, 10):
        run.batch_of(step).touch()
        run.sent_weights_of(step).mkdir(parents=True)
    (run.sent_weights / ".step_11.tmp-1").mkdir()  # being written
    assert newest_version(run) == 10
    drop_before(run.batches, 10)
    drop_before(run.sent_weights, 1)
    assert [path.name for path in run.batches.iterdir()] == ["step_10.safetensors"]
    assert not run.sent_weights_of(0).exists() and run.sent_weights_of(1).exists()
