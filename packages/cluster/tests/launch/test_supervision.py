"""What `rl` does for the programs of a run: it starts them, mends what dies, and ends with the cause if it cannot."""

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from packages.cluster.tests.helpers import wait_until
from slimrl.config.reading.load import load
from slimrl.config.run import RLConfig
from slimrl.errors import UserError
from slimrl.io.run_dir import RunDir
from slimrl.launch.placement import place
from slimrl_cluster.launch import supervision
from slimrl_cluster.launch.status import write_scale
from slimrl_cluster.launch.supervision import Supervision, supervise
from slimrl_cluster.services.programs import End, Needs, describe_status

pytestmark = pytest.mark.slow

ENV = ["--orchestrator.env.0.id", "reverse-text", "--max_async_level", "1"]
PAIR = ("trainer", "orchestrator")
AT_ADDRESS = ["--inference.base_url", "http://127.0.0.1:1", "--warmup.max_steps", "0"]


class Fake:
    """A program that does nothing, and ends as it is told."""

    def __init__(self, name: str, command: Sequence[str], pid: int, num: int, needs: Needs) -> None:
        self.name, self.words, self.num, self.needs, self.is_stopped = name, list(command), num, needs, False
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
        self.parts: tuple[str, ...] = ()  # the members of the run

    def start(self, name: str, command: Sequence[str], needs: Needs) -> Fake:
        return self.start_ranks(name, command, 1, needs)

    def start_ranks(self, name: str, command: Sequence[str], num: int, needs: Needs) -> Fake:
        self.all.append(Fake(name, command, 100 * (len(self.all) + 1), num, needs))
        return self.all[-1]

    def members(self) -> dict[str, dict[str, str]]:
        return {part: {"part": part} for part in self.parts}

    def named(self, name: str) -> list[Fake]:
        return [one for one in self.all if one.name == name]

    def __getitem__(self, name: str) -> Fake:
        return self.named(name)[-1]


class Running:
    """A supervision in a thread of its own."""

    def __init__(self, output_dir: Path, running: Future[None], programs: FakePrograms, notes: list[str]) -> None:
        self.output_dir, self.programs, self.notes, self._running = output_dir, programs, notes, running

    def progress(self, seconds: str = "1") -> None:
        """What a training step leaves."""
        with (self.output_dir / "metrics.jsonl").open("a") as file:
            file.write(f'{{"time/step_s": {seconds}}}\n')

    def await_starts(self, name: str, num: int) -> Fake:
        """The program of a name that was started as the `num`th."""
        self.until(lambda: len(self.programs.named(name)) == num)
        return self.programs[name]

    def until(self, is_so: Callable[[], bool]) -> None:
        wait_until(lambda: is_so() or self._running.done(), 10)
        assert is_so() or self._running.result()

    def said(self, words: str) -> bool:
        return any(words in note for note in self.notes)

    def finish(self) -> None:
        for name in PAIR:
            self.programs[name].end = End(0, "")
        self._running.result(10)

    def fails(self, words: str) -> None:
        with pytest.raises(UserError, match=words):
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
    monkeypatch.setattr(supervision, "PEER_REPORT_TIMEOUT_S", 5.0)


@pytest.fixture
def output_dir(tmp_path: Path) -> Path:
    return tmp_path / "run"


def test_all_parts_are_started_with_the_words_of_the_command_and_what_was_decided_once(output_dir: Path) -> None:
    with supervised(output_dir, "--deployment.num_samplers", "2") as run:
        run.programs["trainer"].lines, run.programs["orchestrator"].lines = ["step 0"], ["a note"]
        run.until(lambda: run.said("a note"))
        run.finish()
    assert "step 0" in run.notes and "orchestrator: a note" in run.notes
    assert [one.name for one in run.programs.all] == ["sampler-0", "sampler-1", *PAIR]
    decided = ["--model.name", "smollm2-135m", "--max_async_level", "1", "--deployment.host", "{address}"]
    assert [one.words[2:] for one in run.programs.all] == [
        ["slimrl", name, "@", "rl.toml", *decided] for name in ("inference", "inference", *PAIR)
    ]
    assert "processes: trainer 300, orchestrator 400, sampler-0 100, sampler-1 200" in run.notes
    assert not any(one.is_stopped for one in run.programs.all)  # that is for what has started them


def test_samplers_have_ports_and_gpus_of_their_own(output_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gpus = ["--inference_gpu_ids", "0,1,2,3", "--trainer_gpu_ids", "4,5", "--inference.port", "8000"]
    vllm = [*gpus, "--inference.backend", "vllm", "--deployment.num_samplers", "2"]
    with supervised(output_dir, *vllm) as run:
        run.finish()
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 6)
    for number, share, port in ((0, [0, 1], 8000), (1, [2, 3], 8001)):
        words = [*ENV, *vllm, *run.programs[f"sampler-{number}"].words[-6:]]
        config = place(load(RLConfig, words, {}).config, print, "inference")
        assert (config.inference_gpu_ids, config.inference.port) == (share, port)
    assert run.programs["trainer"].num == 2


@pytest.mark.parametrize("name", ["sampler-1", *PAIR])
def test_a_sampler_that_dies_is_started_again_and_the_others_stay(name: str, output_dir: Path) -> None:
    with supervised(output_dir, "--deployment.num_samplers", "2", "--deployment.num_trainers", "2") as run:
        run.programs[name].lines = ["its last words"]
        first = {one.name: one for one in run.programs.all}
        run.programs[name].die(-9)
        again = run.await_starts(name, 2)
        run.until(lambda: run.said("2 more deaths"))
        assert run.said("its last words") and f"the {name} was ended by SIGKILL" in run.notes
        if name == "sampler-1":
            assert run.said("started sampler-1 again, as 500: 2 more deaths are survived")
            assert again.words == first[name].words and not first["trainer"].is_stopped
        else:
            run.await_starts("orchestrator", 2)
            assert run.said("trainer and orchestrator go on from the last checkpoint; 2 more deaths")
            assert all(run.programs[part].words[-1] == "--resume" and first[part].is_stopped for part in PAIR)
            assert run.programs["trainer"].num == 2 and not first["sampler-1"].is_stopped
        assert not first["sampler-0"].is_stopped
        run.finish()


@pytest.mark.parametrize("name", ["sampler-0", *PAIR])
@pytest.mark.parametrize("most", [0, 2])
def test_so_many_deaths_are_survived_without_a_step_in_between(most: int, name: str, output_dir: Path) -> None:
    with supervised(output_dir, "--deployment.restarts", str(most)) as run:
        for num in range(1, most + 2):
            run.await_starts(name, num).die(-9)
        run.fails(rf"the {name} was ended by SIGKILL\.")
    assert len(run.programs.named(name)) == most + 1
    assert all(one.is_stopped for one in run.programs.named(name))  # so that it gives its place back


@pytest.mark.parametrize("name", ["sampler-0", *PAIR])
def test_a_step_in_between_counts_deaths_anew(name: str, output_dir: Path) -> None:
    with supervised(output_dir, "--deployment.restarts", "1", "--resume") as run:
        for num in range(1, 6):
            run.await_starts(name, num).die(-9)
            run.await_starts(name, num + 1)
            run.progress()
        run.finish()
    assert not any("--resume" in one.words for one in run.programs.all)  # argv has it


def test_a_run_that_dies_of_the_same_step_every_time_ends(output_dir: Path) -> None:
    with supervised(output_dir, "--deployment.restarts", "2") as run:
        run.progress()
        for num, seconds in enumerate(("1.5", "10.25", "2"), 1):  # the step is trained anew, and takes another time
            (output_dir / "metrics.jsonl").unlink()
            run.progress(seconds)
            run.await_starts("trainer", num).die(-9)
        run.fails("the trainer was ended by SIGKILL")


@pytest.mark.parametrize(
    ("name", "status", "after_a_step", "both"),
    [
        ("sampler-0", 2, True, False),
        ("trainer", 2, True, False),
        ("orchestrator", 2, True, False),
        ("trainer", 1, False, False),
        ("trainer", 2, True, True),
    ],
)
def test_a_refusal_and_a_failure_at_once_end_the_run(
    name: str, status: int, after_a_step: bool, both: bool, output_dir: Path
) -> None:
    with supervised(output_dir, "--deployment.restarts", "9", "--deployment.num_trainers", "2" if both else "1") as run:
        began = time.monotonic()
        if after_a_step:
            run.progress()
        run.programs[name].lines = ["seq_len = 99999"]
        for one in PAIR if both else (name,):
            run.programs[one].die(status)
        run.fails(f"the {name} has ended with status {status}" if not both else "has ended with status 2")
    assert run.said("seq_len = 99999") and len(run.programs.named(name)) == 1 and time.monotonic() - began < 3
    assert name == "sampler-0" or all(run.programs[other].is_stopped for other in PAIR)


def test_what_fails_after_a_step_is_tried_again_and_not_twice_at_the_same_place(output_dir: Path) -> None:
    with supervised(output_dir) as run:
        run.progress()
        run.programs["trainer"].die(1)
        run.await_starts("orchestrator", 2)
        run.programs["trainer"].die(1)
        run.fails("the trainer has ended with status 1")


@pytest.mark.parametrize(
    ("missing", "status", "later_s", "num_trainers"),
    [
        ("trainer", -9, 0.0, 1),
        ("orchestrator", -9, 0.0, 1),
        ("orchestrator", None, 0.1, 2),  # a rank that is known to be lost later
    ],
)
def test_a_refusal_of_who_misses_another_is_mended_by_that_others_start(
    missing: str, status: int | None, later_s: float, num_trainers: int, output_dir: Path, monkeypatch
) -> None:
    [lost] = {*PAIR} - {missing}
    with supervised(output_dir, "--deployment.num_trainers", str(num_trainers)) as run:
        monkeypatch.setattr(supervision, "POLL_S", 0.1 if not later_s else 0.002)
        run.programs[missing].die(2)
        time.sleep(later_s)
        run.programs[lost].die(status)
        run.await_starts("orchestrator", 2)
        run.finish()
    assert run.said(f"the {lost} was ")


def test_a_part_that_has_left_its_place_is_waited_for_until_its_end_is_known(output_dir: Path) -> None:
    with supervised(output_dir) as run:
        run.progress()
        run.programs.parts = PAIR
        time.sleep(0.1)  # until they are noticed
        run.programs.parts = ("orchestrator",)
        run.programs["orchestrator"].die(2)  # it misses the trainer, whose process has not ended yet
        time.sleep(0.1)
        run.programs["trainer"].die(1)
        run.await_starts("orchestrator", 2)
        run.finish()
    assert run.said("the trainer has ended with status 1")


def test_more_and_fewer_samplers_while_the_run_goes_on(output_dir: Path) -> None:
    with supervised(output_dir) as run:
        write_scale(RunDir(output_dir), 3)
        run.await_starts("sampler-2", 1)
        assert run.said("3 samplers are wanted, in place of 1")
        write_scale(RunDir(output_dir), 1)
        run.until(lambda: run.said("ended sampler-2, which is not wanted any more"))
        assert [run.programs[f"sampler-{number}"].is_stopped for number in range(3)] == [False, True, True]
        write_scale(RunDir(output_dir), 2)
        run.await_starts("sampler-1", 2)  # and sampler-1 of before counts as no death
        run.finish()
    assert not run.said("deaths")
    with supervised(output_dir) as run:  # a new start takes the number of samplers from its settings
        time.sleep(0.05)
        run.finish()
    assert len(run.programs.all) == 3


@pytest.mark.parametrize(
    ("flags", "most"),
    [
        (["--inference_gpu_ids", "0,1", "--trainer_gpu_ids", "2", "--deployment.num_samplers", "2"], 2),
        (AT_ADDRESS, 0),
    ],
)
def test_there_are_no_more_samplers_than_gpus_for_them_and_none_beside_one_at_an_address(
    flags: list[str], most: int, output_dir: Path
) -> None:
    with supervised(output_dir, *flags) as run:
        write_scale(RunDir(output_dir), 5)
        time.sleep(0.1)
        run.finish()
    assert sum(one.name.startswith("sampler") for one in run.programs.all) == most


def test_a_sampler_that_dies_after_the_last_episode_is_nobodys_loss(output_dir: Path) -> None:
    with supervised(output_dir) as run:
        run.programs["orchestrator"].end = End(0, "")
        time.sleep(0.05)
        run.programs["sampler-0"].die(-9)
        time.sleep(0.05)
        run.finish()
    assert len(run.programs.named("sampler-0")) == 1


def test_python_cannot_start_the_parts_of_a_run() -> None:
    config = load(RLConfig, [*ENV, "--deployment.type", "processes"], {}).config
    with pytest.raises(UserError, match="from Python there is none"):
        supervise(config, None, print)


def test_a_vllm_on_a_cluster_has_as_many_gpus_as_were_asked_for(output_dir: Path) -> None:
    argv = ["--inference.backend", "vllm", "--deployment.gpus_per_sampler", "4", "--deployment.num_trainers", "2"]
    with supervised(output_dir, "--deployment.type", "ray", *argv, needs=Needs(2.0, 1)) as run:
        run.finish()
    needs = {one.name: one.needs for one in run.programs.all}
    assert needs == {"sampler-0": Needs(2.0, 4), "trainer": Needs(2.0, 1), "orchestrator": Needs(2.0)}


def test_the_key_of_a_sampler_at_an_address_goes_to_all_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    config = load(RLConfig, [*ENV, *AT_ADDRESS], {}).config
    monkeypatch.delenv(config.inference.api_key_variable, raising=False)
    assert supervision._with_key(config) == {}
    monkeypatch.setenv(config.inference.api_key_variable, "its key")
    assert supervision._with_key(config) == {config.inference.api_key_variable: "its key"}
