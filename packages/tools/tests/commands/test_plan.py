"""`slimrl plan`, and what `rl` does with a plan: its two lines, its refusal, and the closing table."""

import json
from pathlib import Path

import pytest
import torch

from packages.tools.tests.plan.made import make_large
from slimrl.cli import run
from slimrl.config.reading.load import load
from slimrl.config.run import RLConfig
from slimrl.io.run_dir import RunDir
from slimrl_tools.plan import hook, plan
from slimrl_tools.plan.devices import Device, Machine
from tests.commands.test_rl import rl_flags


@pytest.fixture(autouse=True)
def planning_is_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLIMRL_PLAN")


@pytest.fixture
def large(tmp_path: Path) -> Path:
    return make_large(tmp_path / "large")


def small_machine(_device: str) -> Machine:
    """A machine of 2 GB, by a limit."""
    device = Device("CPU", "cpu", 2e9, 2e10, 1e12, 2e11)
    return Machine("a container", device, 0, 2e9, limit="a control group (memory.max)")


def plan_words(model: Path, *more: str) -> list[str]:
    return ["plan", "--model.name", str(model), "--orchestrator.env.0.id", "reverse-text", *more]


BIG = "8,030 million weights", "masters", "moments of AdamW", "KV cache", "activations", "to the end", "It fits"


@pytest.mark.parametrize(
    ("words", "status", "shown"),
    [
        (["--no-measure", "--on", "h200x1"], 0, BIG),
        (["--on", "a100"], 1, ["on a100x1", "What saves memory: an adapter (`--model.lora.rank 16`)"]),
        (["--on", "rtx3900x1"], 2, ["Did you mean `rtx3090`?"]),
        (["--on"], 2, ["argument --on: expected one argument"]),
        (["--no-mesure"], 2, ["there is no such setting"]),
        (["--seq_len", "long"], 2, ["seq_len"]),
        (["--model.name", "nobody/no-such-model"], 2, ["nobody/no-such-model", "the Hub cannot be reached"]),
        (["--resume"], 2, ["`resume` has no effect on a plan"]),
        (["--help"], 0, ["--no-measure"]),
    ],
)
def test_plan_reads_nothing_but_the_config(
    large: Path, words: list[str], status: int, shown: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(plan_words(large, *words)) == status
    text = "".join(capsys.readouterr())
    assert [part for part in shown if part not in text] == []


@pytest.mark.slow
def test_plan_of_a_file_of_sft(large: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (large / "sft.toml").write_text(f'[model]\nname = "{large}"\n[data]\ntype = "expert"\nenv = "reverse-text"\n')
    assert run(["plan", "@", str(large / "sft.toml"), "--on", "h200x1"]) == 0
    assert "KV cache" not in capsys.readouterr().out


@pytest.mark.slow
def test_rl_refuses_what_cannot_fit_before_anything_is_loaded_unless_it_is_told_to_try(
    large: Path, tiny_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(rl_flags(large, tmp_path / "run")) == 2
    shown = capsys.readouterr()
    assert "plan: " in shown.out and "cannot fit" in shown.err and "--plan warn" in shown.err
    monkeypatch.setattr(hook, "this_machine", small_machine)
    # A cache for 40,000 conversations of 160 tokens at once does not fit 2 GB.
    words = ["--inference.max_slots", "40000", "--warmup.max_steps", "0", "--eval.interval_steps", "0"]
    assert run(rl_flags(tiny_dir, tmp_path / "run", *words)) == 2
    shown = capsys.readouterr()
    assert "a control group (memory.max)" in shown.err and "fewer `inference.max_slots`" in shown.err
    assert not (tmp_path / "run").exists()
    assert run(rl_flags(tiny_dir, tmp_path / "run", *words[2:], "--max_steps", "1", "--plan", "off")) == 0
    assert "plan:" not in capsys.readouterr().out


def rl_config(model: Path, *words: str) -> RLConfig:
    return load(RLConfig, rl_flags(model, model / "run", *words)[1:], {}).config


@pytest.mark.slow
def test_rl_finds_what_plan_has_measured_with_a_number_of_threads(
    tiny_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLIMRL_CACHE", str(tmp_path / "cache"))
    before = torch.get_num_threads()
    try:
        words = rl_flags(tiny_dir, tmp_path / "run", "--model.num_threads", "1")[1:]
        assert run(["plan", *words]) == 0
        torch.set_num_threads(2)  # as a new process may begin
        plan = hook.foretell(load(RLConfig, words, {}).config, lambda text, style: None)
    finally:
        torch.set_num_threads(before)
    assert plan is not None and plan.speeds.source.startswith("measured here")  # noise may hide a speed


def test_a_planner_that_fails_ends_no_run(tiny_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_args: object) -> None:
        raise TypeError("int() argument must be a number, not 'list'")

    monkeypatch.setattr(plan, "read_shape", fail)
    notes = list[tuple[str, str]]()
    assert hook.foretell(rl_config(tiny_dir), lambda *note: notes.append(note)) is None
    ((text, style),) = notes
    assert "not 'list'" in text and "the run goes on" in text and style == "yellow"


@pytest.mark.slow
@pytest.mark.parametrize("first", ["", "reverse-text"])
def test_no_code_of_the_users_is_called_for_a_plan(first: str, tiny_dir: Path, tmp_path: Path) -> None:
    file, trace = tmp_path / "mine.py", tmp_path / "called"
    file.write_text(f"open({str(trace)!r}, 'w')\nclass Mine:\n    def tasks(self, split):\n        return []\n")
    ids = [env for env in (first, f"{file}:Mine") if env]
    envs = "[" + ", ".join(f'{{id="{env}"}}' for env in ids) + "]"
    plan = hook.foretell(rl_config(tiny_dir, "--orchestrator.env", envs), lambda text, style: None)
    assert plan is not None and plan.workload.source.startswith("assumed")
    assert not trace.exists()


@pytest.mark.slow
def test_a_run_of_processes_leaves_its_plan_to_the_trainer(
    tiny_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    started = list[str]()

    def start(config: RLConfig, *_rest: object) -> int:
        started.append(config.deployment.type)
        return 0

    monkeypatch.setattr("slimrl_cluster.launch.supervision.supervise", start)
    elsewhere = ["--inference.base_url", "http://localhost:1", "--warmup.max_steps", "0"]
    for words in (elsewhere, ["--deployment.type", "processes"]):
        assert run(rl_flags(tiny_dir, tmp_path / "run", *words)) == 0
        assert capsys.readouterr().out.count("plan: ") == 2
    assert started == ["processes", "processes"]
    assert not (tmp_path / "run").exists()


def test_a_mistaken_second_run_of_processes_keeps_the_plan_of_the_first(
    tiny_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "metrics.jsonl").write_text("{}\n")
    RunDir(tmp_path).prediction.write_text("of the first")
    assert run(["trainer", *rl_flags(tiny_dir, tmp_path)[1:]]) == 2
    assert "already holds a run" in capsys.readouterr().err
    assert RunDir(tmp_path).prediction.read_text() == "of the first"


@pytest.mark.slow
def test_the_closing_table_sets_the_prediction_beside_the_truth(
    tiny_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--max_steps", "2", "--warmup.max_steps", "0", "--eval.interval_steps", "0"]
    assert run(rl_flags(tiny_dir, tmp_path / "run", *words)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len([line for line in lines if line.startswith("plan: ")]) == 2
    (memory,) = [line for line in lines if line.startswith("memory ")]
    (step,) = [line for line in lines if line.startswith("step  ")]
    assert "predicted" in memory
    assert "measured" in step
    summary = json.loads((tmp_path / "run" / "summary.json").read_text(encoding="utf-8"))
    assert summary["predicted"]["peak_gb"] > 0
    assert summary["measured"]["step_s"] > 0
