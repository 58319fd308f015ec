"""Which words `rl` gives the programs that it starts, and how it gives back the places of those that have ended."""

import shlex
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from slimrl.config.reading.load import load
from slimrl.config.run import RLConfig
from slimrl.launch.placement import place, place_on
from slimrl_cluster.launch.supervision import Supervision, _Deaths, _with_key
from slimrl_cluster.services.programs import End, Needs

ENV = ["--orchestrator.env.0.id", "reverse-text", "--max_async_level", "1"]


class Fake:
    """A program that does nothing; one that has ended keeps its place until it is stopped."""

    members: Sequence[tuple[str, int]] = ()
    process = "1"

    def __init__(self, name: str, words: Sequence[str]) -> None:
        self.name, self.words, self.has_place = name, list(words), True
        self.end: End | None = None

    def new_lines(self, most: int = 0) -> list[str]:
        return []

    def stop(self) -> None:
        self.has_place = False


class FakePrograms:
    def __init__(self) -> None:
        self.all: list[Fake] = []

    def start(self, name: str, command: Sequence[str], needs: Needs) -> Fake:
        self.all.append(Fake(name, command[3:]))
        return self.all[-1]

    def start_ranks(self, name: str, command: Sequence[str], num: int, needs: Needs) -> Fake:
        return self.start(name, command, needs)


def supervision(words: list[str], num_gpus: int, output_dir: Path) -> tuple[Supervision, FakePrograms]:
    programs = FakePrograms()
    config = load(RLConfig, [*words, "--output_dir", str(output_dir)], {}).config
    config = place_on(config, num_gpus, lambda line: None)
    return Supervision(config, words, programs, Needs(), lambda line: None), programs


def test_a_helper_that_has_died_gives_its_place_back_to_the_next(tmp_path: Path) -> None:
    one, programs = supervision([*ENV, "--deployment.type", "ray"], 0, tmp_path)
    one._fill_samplers()
    programs.all[0].end = End(-9, "killed")
    one._replace_dead_samplers()
    assert [program.has_place for program in programs.all] == [False, True]


def test_samplers_of_vllm_take_the_gpus_that_they_are_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = [*ENV, "--inference.backend", "vllm", "--inference_gpu_ids", "1,2", "--deployment.num_samplers", "2"]
    one, programs = supervision(words, 3, tmp_path)
    one._fill_samplers()
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    for program, gpus in zip(programs.all, ([1], [2]), strict=True):
        given = load(RLConfig, program.words[1:], {}).config
        assert place(given, lambda line: None, "inference").inference_gpu_ids == gpus, shlex.join(program.words)


def test_a_run_that_dies_of_the_same_step_every_time_ends(tmp_path: Path) -> None:
    metrics, deaths = tmp_path / "metrics.jsonl", _Deaths(2, tmp_path)
    metrics.write_text('{"step": 0}\n{"step": 1}\n')
    allowed = []
    for seconds in ("1.5", "10.25", "2"):  # step 1 is trained anew, and takes another time
        metrics.write_text(f'{{"step": 0}}\n{{"step": 1, "time/step_s": {seconds}}}\n')
        allowed.append(deaths.allow())
    assert allowed == [True, True, False]
    metrics.write_text(metrics.read_text() + '{"step": 2}\n')
    assert deaths.allow()


def test_the_key_of_a_sampler_at_an_address_goes_to_all_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    words = [*ENV, "--inference.base_url", "http://10.0.0.7:8000", "--warmup.max_steps", "0"]
    config = load(RLConfig, words, {}).config
    monkeypatch.delenv(config.inference.api_key_variable, raising=False)
    assert _with_key(config) == {}
    monkeypatch.setenv(config.inference.api_key_variable, "its key")
    assert _with_key(config) == {config.inference.api_key_variable: "its key"}
