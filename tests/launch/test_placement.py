"""Which device each part has, and what a run says about it."""

import pytest
import torch

from slimrl.config.reading.load import load
from slimrl.config.run import RLConfig
from slimrl.errors import UserError
from slimrl.launch.placement import place

ENV = ["--orchestrator.env.0.id", "reverse-text"]


def placed(num_gpus: int, monkeypatch: pytest.MonkeyPatch, *argv: str) -> tuple[RLConfig, list[str]]:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: num_gpus)
    notes: list[str] = []
    return place(load(RLConfig, [*ENV, *argv], {}).config, notes.append), notes


def test_without_ids_nothing_is_said(monkeypatch):
    config, notes = placed(4, monkeypatch)
    assert (config.model.device, notes) == ("auto", [])


def test_without_a_gpu_everything_is_on_the_cpu(monkeypatch):
    argv = ["--trainer_gpu_ids", "0", "--inference_gpu_ids", "1", "--teacher_gpu_ids", "2,3", "--teacher.type", "model"]
    config, notes = placed(0, monkeypatch, *argv)
    assert (config.model.device, config.teacher_gpu_ids) == ("auto", [])
    assert notes == [
        "trainer_gpu_ids = [0], inference_gpu_ids = [1], teacher_gpu_ids = [2, 3]: PyTorch sees no GPU here, so "
        "everything runs on the CPU, in one process and in turn"
    ]


def test_one_process_takes_the_first_gpu_to_train_on(monkeypatch):
    config, [note] = placed(4, monkeypatch, "--trainer_gpu_ids", "2,3", "--inference_gpu_ids", "0")
    assert config.model.device == "cuda:2"
    assert note.endswith(
        "one process in this version; sampling and training take turns on GPU 2; GPU 0, 3 stays unused"
    )


def test_a_teacher_has_its_own_gpu(monkeypatch):
    argv = ["--teacher_gpu_ids", "1", "--teacher.type", "model", "--inference_gpu_ids", "0"]
    config, [note] = placed(2, monkeypatch, *argv)
    assert (config.model.device, config.teacher_gpu_ids) == ("cuda:0", [1])
    assert note.endswith("sampling and training take turns on GPU 0; the teacher is on GPU 1")


def test_a_teacher_of_the_policys_own_weights_needs_none(monkeypatch):
    argv = ["--teacher_gpu_ids", "1", "--teacher.type", "policy", "--teacher.env_args", "{style = 'word'}"]
    config, [note] = placed(2, monkeypatch, *argv)
    assert config.teacher_gpu_ids == [] and "a teacher of type policy needs no GPU of its own" in note


def test_a_gpu_that_is_not_there_is_refused(monkeypatch):
    with pytest.raises(UserError, match=r"trainer_gpu_ids = \[2\], but PyTorch sees 2 GPUs"):
        placed(2, monkeypatch, "--trainer_gpu_ids", "2")
