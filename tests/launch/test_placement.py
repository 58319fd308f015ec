"""Which device each part has, and what a run says about it."""

import pytest
import torch

from slimrl.config.reading.load import load
from slimrl.config.run import RLConfig
from slimrl.errors import UserError
from slimrl.launch.placement import device_of, place

ENV = ["--orchestrator.env.0.id", "reverse-text"]


def placed(num_gpus: int, monkeypatch: pytest.MonkeyPatch, *argv: str) -> tuple[RLConfig, list[str]]:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: num_gpus)
    notes: list[str] = []
    return place(load(RLConfig, [*ENV, *argv], {}).config, notes.append), notes


@pytest.mark.parametrize("num_gpus", [0, 1])
def test_where_there_is_one_device_everything_is_one_process(num_gpus, monkeypatch):
    config, notes = placed(num_gpus, monkeypatch)
    assert (config.deployment.type, config.model.device, config.max_async_level) == ("one-process", "auto", 0)
    assert notes == []


def test_several_gpus_are_shared_out(monkeypatch):
    config, [note] = placed(4, monkeypatch, "--teacher.type", "model")
    assert config.deployment.type == "processes" and config.async_level == 2
    assert (config.inference_gpu_ids, config.teacher_gpu_ids, config.trainer_gpu_ids) == ([0], [1], [2, 3])
    assert note == "several processes; the sampler on GPU 0; the trainer on GPU 2, 3; the teacher on GPU 1"


def test_sampler_and_trainer_with_gpus_of_their_own_are_processes(monkeypatch):
    config, [note] = placed(4, monkeypatch, "--trainer_gpu_ids", "2,3", "--inference_gpu_ids", "0")
    assert config.deployment.type == "processes" and config.async_level == 2
    assert note.endswith(": several processes; the sampler on GPU 0; the trainer on GPU 2, 3")
    assert device_of(config, "inference").model.device == "cuda:0"
    assert device_of(config, "trainer").model.device == "cuda:2"


def test_a_level_that_is_set_stays(monkeypatch):
    config, _ = placed(2, monkeypatch, "--max_async_level", "1")
    assert config.async_level == 1


def test_on_a_cpu_processes_take_turns_unless_asked_otherwise(monkeypatch):
    config, notes = placed(0, monkeypatch, "--deployment.type", "processes")
    assert (config.deployment.type, config.async_level, notes) == ("processes", 0, [])


def test_a_teacher_of_the_trained_weights_keeps_the_run_in_one_process(monkeypatch):
    argv = ["--teacher.type", "policy", "--teacher.env_args", "{style = 'word'}", "--deployment.type", "processes"]
    with pytest.raises(UserError, match=r'deployment.type = "one-process"'):
        placed(0, monkeypatch, *argv)


def test_weights_are_not_broadcast_from_a_gpu_to_itself(monkeypatch):
    argv = ["--deployment.weights", "broadcast", "--deployment.type", "processes"]
    with pytest.raises(UserError, match=r'"broadcast" cannot go from GPU 0 to itself'):
        placed(1, monkeypatch, *argv)
    assert placed(2, monkeypatch, *argv)[0].trainer_gpu_ids == [1]


def test_a_sampler_at_an_address_takes_no_gpu(monkeypatch):
    argv = ["--inference.base_url", "http://localhost:8000", "--warmup.max_steps", "0"]
    config, [note] = placed(2, monkeypatch, *argv, "--deployment.weights", "broadcast")
    assert (config.inference_gpu_ids, config.trainer_gpu_ids, config.async_level) == ([], [0, 1], 2)
    assert note == "several processes; the sampler at http://localhost:8000; the trainer on GPU 0, 1"


def test_a_model_on_the_cpu_stays_there(monkeypatch):
    argv = ["--model.device", "cpu", "--deployment.type", "processes"]
    assert placed(2, monkeypatch, *argv)[0].trainer_gpu_ids == []
    config, [note] = placed(2, monkeypatch, *argv, "--trainer_gpu_ids", "1")
    assert config.trainer_gpu_ids == [] and 'model.device = "cpu", so everything runs on the CPU' in note


def test_one_device_for_several_processes_is_refused(monkeypatch):
    with pytest.raises(UserError, match="set trainer_gpu_ids and inference_gpu_ids in its place"):
        placed(2, monkeypatch, "--model.device", "cuda:1", "--deployment.type", "processes")


def test_settings_that_only_processes_have_are_named_where_there_are_none(monkeypatch):
    _, [note] = placed(0, monkeypatch, "--deployment.weights", "broadcast", "--inference.timeout_s", "9")
    assert note == "this run is one process, in which deployment.weights, inference.timeout_s cannot act"


def test_without_a_gpu_everything_is_on_the_cpu(monkeypatch):
    argv = ["--trainer_gpu_ids", "0", "--inference_gpu_ids", "1", "--teacher_gpu_ids", "2,3", "--teacher.type", "model"]
    config, notes = placed(0, monkeypatch, *argv)
    assert (config.model.device, config.teacher_gpu_ids) == ("auto", [])
    assert notes == [
        "trainer_gpu_ids = [0], inference_gpu_ids = [1], teacher_gpu_ids = [2, 3]: PyTorch sees no GPU here, so "
        "everything runs on the CPU, in one process and in turn"
    ]


def test_one_process_takes_the_first_gpu_to_train_on(monkeypatch):
    argv = ["--trainer_gpu_ids", "2,3", "--inference_gpu_ids", "0", "--deployment.type", "one-process"]
    config, [note] = placed(4, monkeypatch, *argv)
    assert config.model.device == "cuda:2" and config.async_level == 0
    assert note.endswith(": one process; sampling and training take turns on GPU 2; GPU 0, 3 stays unused")


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


@pytest.mark.parametrize("argv", [["--inference.backend", "vllm"], ["--inference.base_url", "http://localhost:8000"]])
def test_a_sampler_of_its_own_process_makes_the_run_processes(argv, monkeypatch):
    config, _ = placed(0, monkeypatch, *argv)
    assert config.deployment.type == "processes"


@pytest.mark.parametrize(
    "argv", [["--deployment.weights", "broadcast"], ["--inference.backend", "vllm", "--deployment.num_samplers", "4"]]
)
def test_a_part_on_a_cluster_has_the_gpus_of_its_node_to_itself(argv, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    config = load(RLConfig, [*ENV, "--deployment.type", "ray", *argv], {}).config
    for part in ("trainer", "inference", "orchestrator"):
        here = place(config, lambda line: None, part)
        assert device_of(here, part).model.device == "cuda:0"
        assert here.deployment.num_samplers == config.deployment.num_samplers


def test_where_nothing_can_be_started_again_auto_is_one_process(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    config = load(RLConfig, ENV, {}).config
    assert place(config, lambda line: None, can_be_apart=False).deployment.type == "one-process"
    assert place(config, lambda line: None).deployment.type == "processes"


def test_a_device_that_is_named_keeps_the_run_on_it(monkeypatch):
    config, notes = placed(4, monkeypatch, "--model.device", "cpu")
    assert (config.deployment.type, config.model.device, notes) == ("one-process", "cpu", [])


def test_several_trainers_need_processes(monkeypatch):
    with pytest.raises(UserError, match="num_trainers"):
        placed(0, monkeypatch, "--deployment.num_trainers", "2")


def test_our_own_engine_is_one_sampler_for_each_gpu_and_vllm_as_many_as_are_asked_for(monkeypatch):
    argv = ["--inference_gpu_ids", "0,1", "--trainer_gpu_ids", "2,3"]
    config, [note] = placed(4, monkeypatch, *argv)
    assert (config.inference_gpu_ids, config.deployment.num_samplers) == ([0, 1], 2)
    assert note.endswith(": several processes; 2 samplers on GPU 0, 1; the trainer on GPU 2, 3")
    config, [note] = placed(4, monkeypatch, *argv, "--inference.backend", "vllm")
    assert config.deployment.num_samplers == 1 and "; the sampler on GPU 0, 1;" in note
    config, _ = placed(4, monkeypatch, *argv, "--inference.backend", "vllm", "--deployment.num_samplers", "2")
    assert (config.inference_gpu_ids, config.deployment.num_samplers) == ([0, 1], 2)


def test_samplers_that_are_asked_for_take_the_first_gpus(monkeypatch):
    config, [note] = placed(4, monkeypatch, "--deployment.num_samplers", "3")
    assert (config.inference_gpu_ids, config.trainer_gpu_ids, config.async_level) == ([0, 1, 2], [3], 2)
    assert note == "several processes; 3 samplers on GPU 0, 1, 2; the trainer on GPU 3"
    config, _ = placed(0, monkeypatch, "--deployment.num_samplers", "3", "--deployment.type", "processes")
    assert (config.inference_gpu_ids, config.deployment.num_samplers) == ([], 3)


def test_gpus_that_cannot_be_shared_out_evenly_are_refused(monkeypatch):
    argv = ["--inference_gpu_ids", "0,1,2", "--inference.backend", "vllm", "--deployment.num_samplers"]
    for num in ("2", "4"):
        with pytest.raises(UserError, match=rf"cannot be shared out among deployment.num_samplers = {num}: name as"):
            placed(4, monkeypatch, *argv, num)


def test_on_ray_each_node_places_its_own_part(monkeypatch):
    config, notes = placed(4, monkeypatch, "--deployment.type", "ray", "--deployment.num_samplers", "2")
    assert (config.deployment.type, config.max_async_level, notes) == ("ray", "auto", [])
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    config = place(config, lambda line: None, "trainer")
    assert (config.deployment.type, config.trainer_gpu_ids) == ("processes", [0])


def test_a_vllm_on_a_cluster_shares_the_model_out_among_the_gpus_that_it_sees(monkeypatch):
    config, _ = placed(0, monkeypatch, "--deployment.type", "ray", "--inference.backend", "vllm")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    assert place(config, lambda line: None, "inference").inference_gpu_ids == [0, 1, 2, 3]
