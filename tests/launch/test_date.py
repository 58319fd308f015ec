"""The date in the prompts of a run is the one on which it began, also on the day on which it is resumed."""

from datetime import date
from pathlib import Path

import pytest

from slimrl.config.model import ModelConfig
from slimrl.config.run import CkptConfig
from slimrl.config.train import OptimConfig
from slimrl.launch.parts import open_policy, restore_measured
from slimrl.models.chat import template
from slimrl.monitor.console import RunConsole
from slimrl.trainer.state import save_if_due, start
from tests.models.chat.hub_templates import LLAMA31
from tests.tiny import tiny_model_dir, tiny_tokenizer

QUESTION = [{"role": "user", "content": "q"}]


def clock_at(day: date) -> type[date]:
    class Clock(date):
        @classmethod
        def today(cls):
            return day

    return Clock


@pytest.fixture
def config(tmp_path: Path) -> ModelConfig:
    directory = tiny_model_dir(tmp_path)
    tiny_tokenizer(chat_template=LLAMA31).save_pretrained(directory)
    return ModelConfig(name=str(directory), device="cpu", dtype="float32", num_threads=1)


@pytest.mark.slow
def test_a_resumed_run_gives_the_same_prompts(config: ModelConfig, tmp_path: Path, monkeypatch, capsys) -> None:
    run = tmp_path / "run"
    monkeypatch.setattr(template, "date", clock_at(date(2026, 3, 5)))
    policy = open_policy(restore_measured(config, run, resume=False), RunConsole())
    assert "2026-03-05 in every prompt" in capsys.readouterr().out
    state = start(policy, OptimConfig(), run, resume=False)
    state.advance(1.0)
    save_if_due(state, run, 1, CkptConfig())

    monkeypatch.setattr(template, "date", clock_at(date(2026, 3, 6)))
    resumed = open_policy(restore_measured(config, run, resume=True), RunConsole())
    assert resumed.chat.opening(QUESTION) == policy.chat.opening(QUESTION)
    assert start(resumed, OptimConfig(), run, resume=True).progress.date == "2026-03-05"
    fresh = open_policy(restore_measured(config, run, resume=False), RunConsole())
    assert fresh.chat.opening(QUESTION) != policy.chat.opening(QUESTION)
    # The saved model keeps its own template, which goes by the clock.
    saved = open_policy(config.model_copy(update={"name": str(run / "weights" / "step_1")}), RunConsole())
    assert saved.chat.date == date(2026, 3, 6)


def test_a_date_that_was_set_is_written(config: ModelConfig) -> None:
    policy = open_policy(config.model_copy(update={"date": "2024-07-26"}), RunConsole())
    assert "Today Date: 26 Jul 2024" in policy.chat.full_text(policy.chat.opening(QUESTION))


def test_a_date_that_cannot_act_is_told(tmp_path: Path, capsys) -> None:
    config = ModelConfig(name=str(tiny_model_dir(tmp_path)), device="cpu", dtype="float32", date="2024-07-26")
    open_policy(config, RunConsole())
    assert "`model.date` has no effect" in capsys.readouterr().out
