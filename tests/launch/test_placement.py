"""Which device each part has, and what a run says about it."""

import shlex

import pytest
import torch

from slimrl.config.reading.load import load
from slimrl.config.run import RLConfig
from slimrl.errors import UserError
from slimrl.launch.placement import device_of, place

APART = "--deployment.type processes"
TEACHER = "--teacher.type model"
POLICY = "--teacher.type policy --teacher.env_args '{style = \"word\"}'"
OWN = "--trainer_gpu_ids 2,3 --inference_gpu_ids"
VLLM = "--inference.backend vllm"
URL = "--inference.base_url http://localhost:8000"
NOWHERE = "trainer_gpu_ids = [0], inference_gpu_ids = [1], teacher_gpu_ids = [2, 3]: PyTorch sees no GPU here, so "


def read(words: str) -> RLConfig:
    return load(RLConfig, ["--orchestrator.env.0.id", "reverse-text", *shlex.split(words)], {}).config


def placed(num_gpus: int, monkeypatch: pytest.MonkeyPatch, words: str) -> tuple[RLConfig, list[str]]:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: num_gpus)
    notes: list[str] = []
    return place(read(words), notes.append), notes


def shown(config: RLConfig) -> str:
    """The device of one process, or the GPUs of the samplers, the trainer and the teacher; and the level."""
    ids = (config.inference_gpu_ids, config.trainer_gpu_ids, config.teacher_gpu_ids)
    gpus = "; ".join(" ".join(map(str, one)) or "-" for one in ids)
    if config.deployment.type == "one-process":
        where = f"{config.model.device} teacher {gpus.rpartition('; ')[2]}"
    else:
        where = f"{config.deployment.num_samplers} x {gpus}"
    return f"{where}, level {config.max_async_level}"


@pytest.mark.parametrize(
    ("num_gpus", "words", "where", "note"),
    [
        (0, "", "auto teacher -, level 0", ""),
        (1, "", "auto teacher -, level 0", ""),
        (0, APART, "1 x -; -; -, level 0", ""),
        (2, "--max_async_level 1", "1 x 0; 1; -, level 1", "several processes; the sampler on GPU 0; the trainer on"),
        (4, TEACHER, "1 x 0; 2 3; 1, level 2",
         "several processes; the sampler on GPU 0; the trainer on GPU 2, 3; the teacher on GPU 1"),
        (4, f"{OWN} 0", "1 x 0; 2 3; -, level 2", ": several processes; the sampler on GPU 0; the trainer on GPU 2, 3"),
        (2, APART, "1 x 0; 1; -, level 2", "several processes; the sampler on GPU 0; the trainer"),
        (2, URL, "1 x -; 0 1; -, level 2",
         "several processes; the sampler at http://localhost:8000; the trainer on GPU 0, 1"),
        (0, VLLM, "1 x -; -; -, level 0", ""),
        (0, URL, "1 x -; -; -, level 0", ""),
        (4, "--model.device cpu", "cpu teacher -, level 0", ""),
        (2, f"--model.device cpu {APART}", "1 x -; -; -, level 0", ""),
        (2, f"--model.device cpu {APART} --trainer_gpu_ids 1", "1 x -; -; -, level 0",
         'model.device = "cpu", so everything runs on the CPU'),
        (0, "--deployment.restarts 0 --inference.timeout_s 9", "auto teacher -, level 0",
         "this run is one process, in which deployment.restarts, inference.timeout_s cannot act"),
        (0, f"--trainer_gpu_ids 0 --inference_gpu_ids 1 --teacher_gpu_ids 2,3 {TEACHER}", "auto teacher -, level 0",
         f"{NOWHERE}everything runs on the CPU, in one process and in turn"),
        (4, f"{OWN} 0 --deployment.type one-process", "cuda:2 teacher -, level 0",
         ": one process; sampling and training take turns on GPU 2; GPU 0, 3 stays unused"),
        (2, f"--teacher_gpu_ids 1 {TEACHER} --inference_gpu_ids 0", "cuda:0 teacher 1, level 0",
         "sampling and training take turns on GPU 0; the teacher is on GPU 1"),
        (2, f"--teacher_gpu_ids 1 {POLICY}", "auto teacher -, level 0", "a teacher of type policy needs no GPU of its"),
        (4, f"{OWN} 0,1", "2 x 0 1; 2 3; -, level 2",
         ": several processes; 2 samplers on GPU 0, 1; the trainer on GPU 2, 3"),
        (4, f"{OWN} 0,1 {VLLM}", "1 x 0 1; 2 3; -, level 2", "; the sampler on GPU 0, 1;"),
        (4, f"{OWN} 0,1 {VLLM} --deployment.num_samplers 2", "2 x 0 1; 2 3; -, level 2", "2 samplers on GPU 0, 1;"),
        (4, "--deployment.num_samplers 3", "3 x 0 1 2; 3; -, level 2",
         "several processes; 3 samplers on GPU 0, 1, 2; the trainer on GPU 3"),
        (0, f"--deployment.num_samplers 3 {APART}", "3 x -; -; -, level 0", ""),
        (4, "--deployment.type ray --deployment.num_samplers 2", "2 x -; -; -, level auto", ""),
    ],
)  # fmt: skip
def test_parts_have_devices(num_gpus, words, where, note, monkeypatch):
    config, notes = placed(num_gpus, monkeypatch, words)
    assert shown(config) == where
    assert note in "".join(notes) and len(notes) == bool(note)


@pytest.mark.parametrize(
    ("num_gpus", "words", "said"),
    [
        (0, f"{POLICY} {APART}", 'deployment.type = "one-process"'),
        (2, f"--model.device cuda:1 {APART}", "set trainer_gpu_ids and inference_gpu_ids in its place"),
        (2, "--trainer_gpu_ids 2", r"trainer_gpu_ids = \[2\], but PyTorch sees 2 GPUs"),
        (0, "--deployment.num_trainers 2", "num_trainers"),
        *(
            (
                4,
                f"--inference_gpu_ids 0,1,2 {VLLM} --deployment.num_samplers {num}",
                f"cannot be shared out among deployment.num_samplers = {num}: name as",
            )
            for num in (2, 4)
        ),
    ],
)
def test_what_no_placement_has_is_refused(num_gpus, words, said, monkeypatch):
    with pytest.raises(UserError, match=said):
        placed(num_gpus, monkeypatch, words)


def test_each_part_finds_its_device(monkeypatch):
    config, _ = placed(4, monkeypatch, f"{OWN} 0")
    assert device_of(config, "inference").model.device == "cuda:0"
    assert device_of(config, "trainer").model.device == "cuda:2"


@pytest.mark.parametrize("words", ["--deployment.restarts 0", f"{VLLM} --deployment.num_samplers 4"])
def test_a_part_on_a_cluster_has_the_gpus_of_its_node_to_itself(words, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    config = read(f"--deployment.type ray {words}")
    for part in ("trainer", "inference", "orchestrator"):
        here = place(config, lambda line: None, part)
        assert here.deployment.type == "processes" and device_of(here, part).model.device == "cuda:0"
        assert here.deployment.num_samplers == config.deployment.num_samplers


def test_a_vllm_on_a_cluster_shares_the_model_out_among_the_gpus_that_it_sees(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    config = read(f"--deployment.type ray {VLLM}")
    assert place(config, lambda line: None, "inference").inference_gpu_ids == [0, 1, 2, 3]


def test_where_nothing_can_be_started_again_auto_is_one_process(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    assert place(read(""), lambda line: None, can_be_apart=False).deployment.type == "one-process"
    assert place(read(""), lambda line: None).deployment.type == "processes"
