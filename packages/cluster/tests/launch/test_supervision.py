"""What `rl` does for the programs of a run: it starts them, mends what dies, and ends with the cause if it cannot."""

import os
import platform
import re
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from slimrl.config.reading.load import load
from slimrl.config.run import RLConfig
from slimrl.errors import UserError
from slimrl_cluster.launch import supervision
from slimrl_cluster.launch.supervision import Supervision, describe_parts, supervise
from slimrl_cluster.services.programs import End, Needs, describe_status
from slimrl_cluster.transport.roster import Roster, write_scale

pytestmark = pytest.mark.slow

ENV = ["--orchestrator.env.0.id", "reverse-text", "--max_async_level", "1"]
PAIR = ("trainer", "orchestrator")


class Fake:
    """A program that does nothing, and ends as it is told."""

    def __init__(self, name: str, command: Sequence[str], pid: int, num: int, needs: Needs) -> None:
        self.name, self.words, self.needs, self.is_stopped = name, list(command), needs, False
        self.members = [(f"host-{name}", pid + place) for place in range(num)]
        self.process = str(pid)
        self.end: End | None = None
        self.lines: list[str] = []

    def new_lines(self, most: int = 1000) -> list[str]:
        lines, self.lines = self.lines, []
        return lines[-most:]

    def stop(self) -> None:
        self.is_stopped = True
        self.end = self.end or End(-15, "ended")

    def die(self, status: int | None) -> None:
        how = "was lost" if status is None else describe_status(status)
        self.end = End(status, f"the {self.name} {how}")


class FakePrograms:
    """All programs that were started, in their order."""

    def __init__(self) -> None:
        self.all: list[Fake] = []

    def start(self, name: str, command: Sequence[str], needs: Needs) -> Fake:
        return self.start_ranks(name, command, 1, needs)

    def start_ranks(self, name: str, command: Sequence[str], num: int, needs: Needs) -> Fake:
        self.all.append(Fake(name, command, 100 * (len(self.all) + 1), num, needs))
        return self.all[-1]

    def named(self, name: str) -> list[Fake]:
        return [one for one in self.all if one.name == name]

    def __getitem__(self, name: str) -> Fake:
        return self.named(name)[-1]


class Running:
    """A supervision in a thread of its own."""

    def __init__(self, output_dir: Path, running: Future[None], programs: FakePrograms, notes: list[str]) -> None:
        self.output_dir, self.programs, self.notes, self._running = output_dir, programs, notes, running

    def progress(self) -> None:
        """What a training step leaves."""
        with (self.output_dir / "metrics.jsonl").open("a") as file:
            file.write("{}\n")

    def await_starts(self, name: str, num: int) -> Fake:
        """The program of a name that was started as the `num`th."""
        self.until(lambda: len(self.programs.named(name)) == num)
        return self.programs[name]

    def until(self, is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 10
        while not is_so():
            if self._running.done():
                self._running.result()
            assert time.monotonic() < deadline
            time.sleep(0.002)

    def said(self, words: str) -> bool:
        return any(words in note for note in self.notes)

    def finish(self) -> None:
        for name in PAIR:
            self.programs[name].end = End(0, "")
        self.result()

    def result(self) -> None:
        self._running.result(10)


@contextmanager
def supervised(output_dir: Path, *argv: str, needs: Needs = Needs()) -> Iterator[Running]:  # noqa: B008
    output_dir.mkdir(exist_ok=True)
    flags = [*ENV, "--output_dir", str(output_dir), "--deployment.type", "processes", *argv]
    config, programs, notes = load(RLConfig, flags, {}).config, FakePrograms(), list[str]()
    with ThreadPoolExecutor(1) as pool:
        one = Supervision(config, ["@", "rl.toml"], programs, needs, notes.append)
        running = Running(output_dir, pool.submit(one.run), programs, notes)
        try:
            running.until(lambda: running.said("processes: trainer"))
            yield running
        finally:
            for program in programs.all:  # so that it ends whatever the test has found
                program.end = program.end or End(0, "")


@pytest.fixture(autouse=True)
def is_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervision, "POLL_S", 0.002)
    monkeypatch.setattr(supervision, "LOOK_S", 0.01)
    monkeypatch.setattr(supervision, "AFTERWARDS_S", 5.0)


def test_all_parts_are_started_with_the_words_of_the_command_and_what_was_decided_once(tmp_path):
    with supervised(tmp_path / "run", "--deployment.num_samplers", "2") as run:
        run.finish()
    assert [one.name for one in run.programs.all] == ["sampler-0", "sampler-1", *PAIR]
    decided = [
        "@",
        "rl.toml",
        "--model.name",
        "smollm2-135m",
        "--max_async_level",
        "1",
        "--deployment.host",
        "{address}",
    ]
    assert [one.words[2:] for one in run.programs.all] == [
        ["slimrl", name, *decided] for name in ("inference", "inference", *PAIR)
    ]
    assert "processes: trainer 300, orchestrator 400, sampler-0 100, sampler-1 200" in run.notes
    assert not any(one.is_stopped for one in run.programs.all)  # that is for what has started them


def test_samplers_have_ports_and_gpus_of_their_own(tmp_path):
    gpus = ["--inference_gpu_ids", "0,1,2,3", "--trainer_gpu_ids", "4,5", "--inference.port", "8000"]
    with supervised(tmp_path / "run", "--deployment.num_samplers", "2", *gpus) as run:
        run.finish()
    shares = [run.programs[f"sampler-{number}"].words[-6:] for number in (0, 1)]
    one = ["--deployment.num_samplers", "1", "--inference_gpu_ids"]
    assert shares == [[*one, "0,1", "--inference.port", "8000"], [*one, "2,3", "--inference.port", "8001"]]
    assert len(run.programs["trainer"].members) == 2


def test_a_sampler_at_an_address_is_not_started(tmp_path):
    address = ["--inference.base_url", "http://127.0.0.1:1", "--warmup.max_steps", "0"]
    with supervised(tmp_path / "run", *address) as run:
        write_scale(tmp_path / "run", 3)
        time.sleep(0.05)
        run.finish()
    assert [one.name for one in run.programs.all] == [*PAIR]


def test_a_sampler_that_dies_is_started_again_and_the_others_stay(tmp_path):
    with supervised(tmp_path / "run", "--deployment.num_samplers", "2") as run:
        run.programs["sampler-1"].lines = ["its last words"]
        run.programs["sampler-1"].die(-9)
        again = run.await_starts("sampler-1", 2)
        run.until(lambda: run.said("started sampler-1 again, as 500: 2 more deaths are survived"))
        assert "sampler-1: its last words" in run.notes and "the sampler-1 was ended by SIGKILL" in run.notes
        assert again.words == run.programs.named("sampler-1")[0].words
        run.finish()
    assert len(run.programs.all) == 5


@pytest.mark.parametrize("name", ["sampler-0", *PAIR])
def test_so_many_deaths_are_survived_without_a_step_in_between(name, tmp_path):
    with supervised(tmp_path / "run", "--deployment.restarts", "2") as run:
        for num in (1, 2, 3):
            run.await_starts(name, num).die(-9)
        with pytest.raises(UserError, match=rf"the {name} was ended by SIGKILL\."):
            run.result()
    assert len(run.programs.named(name)) == 3


@pytest.mark.parametrize("name", ["sampler-0", *PAIR])
def test_a_step_in_between_counts_deaths_anew(name, tmp_path):
    with supervised(tmp_path / "run", "--deployment.restarts", "1") as run:
        for num in range(1, 6):
            run.await_starts(name, num).die(-9)
            run.await_starts(name, num + 1)
            run.progress()
        run.finish()


def test_no_restarts_is_none(tmp_path):
    with supervised(tmp_path / "run", "--deployment.restarts", "0") as run:
        run.progress()
        run.programs["sampler-0"].die(-9)
        with pytest.raises(UserError, match="the sampler-0 was ended by SIGKILL"):
            run.result()


def test_a_sampler_that_refuses_its_settings_ends_the_run_at_once(tmp_path):
    with supervised(tmp_path / "run") as run:
        run.programs["sampler-0"].lines = ["seq_len = 99999"]
        run.programs["sampler-0"].die(2)
        with pytest.raises(UserError, match="the sampler-0 has ended with status 2"):
            run.result()
    assert "sampler-0: seq_len = 99999" in run.notes and len(run.programs.named("sampler-0")) == 1


def test_the_place_of_a_sampler_that_was_lost_is_struck(tmp_path):
    roster = Roster(tmp_path / "run")
    with supervised(tmp_path / "run") as run, Roster(tmp_path / "run").join("inference", {"address": "a"}):
        sampler = run.programs["sampler-0"]
        sampler.members = [(platform.node(), os.getpid())]  # it holds its lock still, as far as this machine knows
        sampler.die(None)
        run.await_starts("sampler-0", 2)
        assert roster.members("inference") == {}
        run.finish()


@pytest.mark.parametrize(("dying", "other"), [PAIR, PAIR[::-1]])
def test_trainer_and_orchestrator_go_on_together_from_the_checkpoint_and_samplers_stay(dying, other, tmp_path):
    with supervised(tmp_path / "run", "--deployment.num_trainers", "2") as run:
        first = run.programs[other]
        run.programs[dying].die(-9)
        assert run.await_starts("orchestrator", 2).words[-1] == "--resume"
        assert run.programs["trainer"].words[-1] == "--resume" and len(run.programs["trainer"].members) == 2
        assert first.is_stopped and not run.programs["sampler-0"].is_stopped
        run.finish()
    assert run.said("trainer and orchestrator go on from the last checkpoint; 2 more deaths")
    assert len(run.programs.named("sampler-0")) == 1


def test_a_run_that_is_resumed_already_is_not_told_so_twice(tmp_path):
    (tmp_path / "run").mkdir()
    with supervised(tmp_path / "run", "--resume") as run:
        run.programs["trainer"].die(-9)
        assert "--resume" not in run.await_starts("orchestrator", 2).words  # argv has it
        run.finish()


@pytest.mark.parametrize("name", PAIR)
def test_what_fails_at_once_would_fail_again(name, tmp_path):
    with supervised(tmp_path / "run") as run:
        run.programs[name].die(1)
        with pytest.raises(UserError, match=f"the {name} has ended with status 1"):
            run.result()
    assert all(run.programs[other].is_stopped for other in PAIR)


def test_what_fails_after_a_step_is_tried_again_and_not_twice_at_the_same_place(tmp_path):
    with supervised(tmp_path / "run") as run:
        run.progress()
        run.programs["trainer"].die(1)
        run.await_starts("orchestrator", 2)
        run.programs["trainer"].die(1)
        with pytest.raises(UserError, match="the trainer has ended with status 1"):
            run.result()


def test_a_refusal_ends_the_run_at_once(tmp_path):
    with supervised(tmp_path / "run", "--deployment.restarts", "9") as run:
        with Roster(tmp_path / "run").join("orchestrator", {}):
            time.sleep(0.05)  # it is seen, and lives
            began = time.monotonic()
            run.progress()
            run.programs["trainer"].die(2)
            with pytest.raises(UserError, match="the trainer has ended with status 2"):
                run.result()
        assert time.monotonic() - began < 3
    assert all(run.programs[other].is_stopped for other in PAIR)


@pytest.mark.parametrize(("lost", "missing"), [PAIR, PAIR[::-1]])
def test_a_refusal_of_who_misses_another_is_mended_by_that_others_start(lost, missing, tmp_path, monkeypatch):
    with supervised(tmp_path / "run") as run:
        monkeypatch.setattr(supervision, "POLL_S", 0.1)
        run.programs[missing].die(2)
        run.programs[lost].die(-9)
        run.await_starts("orchestrator", 2)
        run.finish()
    assert f"the {lost} was ended by SIGKILL" in run.notes


def test_a_rank_that_is_known_to_be_lost_later_is_the_cause(tmp_path):
    with supervised(tmp_path / "run", "--deployment.num_trainers", "2") as run:
        run.programs["orchestrator"].die(2)
        time.sleep(0.1)
        run.programs["trainer"].die(None)
        run.await_starts("orchestrator", 2)
        run.finish()
    assert "the trainer was lost" in run.notes


@pytest.mark.parametrize(("lost", "missing"), [PAIR, PAIR[::-1]])
def test_a_part_whose_node_is_not_given_up_yet_is_waited_for(lost, missing, tmp_path):
    with supervised(tmp_path / "run") as run:
        with Roster(tmp_path / "run").join(lost, {}):
            time.sleep(0.1)  # it is seen, and then gone
        run.programs[missing].die(2)
        time.sleep(0.1)
        run.programs[lost].die(None)
        run.await_starts("orchestrator", 2)
        # Those that are started now have not been seen: a refusal of theirs is one.
        run.programs[missing].die(2)
        with pytest.raises(UserError, match=f"the {missing} has ended with status 2"):
            run.result()
    assert f"the {lost} was lost" in run.notes


def test_both_refuse_and_the_first_is_named(tmp_path):
    with supervised(tmp_path / "run", "--deployment.num_trainers", "2") as run:
        run.programs["orchestrator"].die(2)
        run.programs["trainer"].die(2)
        with pytest.raises(UserError, match="has ended with status 2"):
            run.result()


def test_more_and_fewer_samplers_while_the_run_goes_on(tmp_path):
    with supervised(tmp_path / "run") as run:
        write_scale(tmp_path / "run", 3)
        run.await_starts("sampler-2", 1)
        assert run.said("3 samplers are wanted, in place of 1")
        write_scale(tmp_path / "run", 1)
        run.until(lambda: run.said("ended sampler-2, which is not wanted any more"))
        assert [run.programs[f"sampler-{number}"].is_stopped for number in range(3)] == [False, True, True]
        write_scale(tmp_path / "run", 2)
        run.await_starts("sampler-1", 2)  # and sampler-1 of before counts as no death
        run.finish()
    assert not run.said("deaths")


def test_what_an_earlier_start_was_asked_for_is_forgotten(tmp_path):
    (tmp_path / "run").mkdir()
    write_scale(tmp_path / "run", 5)
    with supervised(tmp_path / "run") as run:
        time.sleep(0.05)
        run.finish()
    assert len(run.programs.all) == 3


def test_a_sampler_that_dies_after_the_last_episode_is_nobodys_loss(tmp_path):
    with supervised(tmp_path / "run") as run:
        run.programs["orchestrator"].end = End(0, "")
        time.sleep(0.05)
        run.programs["sampler-0"].die(-9)
        time.sleep(0.05)
        run.finish()
    assert len(run.programs.named("sampler-0")) == 1


def test_what_parts_say_is_repeated(tmp_path):
    with supervised(tmp_path / "run") as run:
        run.programs["trainer"].lines = ["step 0"]
        run.programs["orchestrator"].lines = ["a note"]
        run.until(lambda: run.said("a note"))
        run.finish()
    assert "step 0" in run.notes and "orchestrator: a note" in run.notes


def test_python_cannot_start_the_parts_of_a_run():
    config = load(RLConfig, [*ENV, "--deployment.type", "processes"], {}).config
    with pytest.raises(UserError, match="from Python there is none"):
        supervise(config, None, print)


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ([], "a sampler, an orchestrator and a trainer, at most 1 versions apart"),
        (["--deployment.num_samplers", "3", "--deployment.num_trainers", "2"], "3 samplers, .* a trainer of 2 ranks"),
        (["--inference.base_url", "http://a:1", "--warmup.max_steps", "0"], "a sampler at http://a:1, "),
    ],
)
def test_the_parts_in_words(argv, words):
    assert re.match(words, describe_parts(load(RLConfig, [*ENV, *argv], {}).config))


def test_a_vllm_on_a_cluster_has_as_many_gpus_as_were_asked_for(tmp_path):
    argv = ["--inference.backend", "vllm", "--deployment.gpus_per_sampler", "4", "--deployment.num_trainers", "2"]
    with supervised(tmp_path / "run", "--deployment.type", "ray", *argv, needs=Needs(2.0, 1)) as run:
        run.finish()
    needs = {one.name: one.needs for one in run.programs.all}
    assert needs == {"sampler-0": Needs(2.0, 4), "trainer": Needs(2.0, 1), "orchestrator": Needs(2.0)}


def test_there_are_no_more_samplers_than_gpus_for_them(tmp_path):
    gpus = ["--inference_gpu_ids", "0,1", "--trainer_gpu_ids", "2"]
    with supervised(tmp_path / "run", "--deployment.num_samplers", "2", *gpus) as run:
        write_scale(tmp_path / "run", 1)
        run.until(lambda: run.said("ended sampler-1"))
        write_scale(tmp_path / "run", 5)
        run.await_starts("sampler-1", 2)
        time.sleep(0.1)
        assert not run.programs.named("sampler-2")
        run.finish()
