"""Chooses between one process and several processes for an RL run, and chooses the devices of the run's parts.

In one process, sampling and training take turns on one device. In several processes, each part has a separate device if
there are several GPUs. Otherwise the parts share the CPU or the GPU.
"""

from collections.abc import Callable
from typing import TypeVar

import torch

from slimrl.config.deployment import Part
from slimrl.config.rules import settings_of_processes
from slimrl.config.run import RLConfig
from slimrl.config.teacher import ModelTeacherConfig, PolicyTeacherConfig
from slimrl.errors import UserError

C = TypeVar("C", bound=RLConfig)
Note = Callable[[str], None]  # logs a line
KEYS = ("trainer_gpu_ids", "inference_gpu_ids", "teacher_gpu_ids")
AGE = 2  # versions that a rollout may lag behind if sampling and training overlap


def place(config: C, note: Note, part: Part | None = None, can_be_apart: bool = True, num_gpus: int | None = None) -> C:
    """Choose the processes and devices of a run's parts. Return the settings with values in place of `auto`, and with
    all `..._gpu_ids`. Log the choice if the settings name GPUs or the machine has several GPUs. `part` is the part in
    this process, if the run has several. If `can_be_apart` is False, `auto` means one process. `num_gpus` are the GPUs
    of the machine; by default those of this machine.

    Raises:
        UserError: a GPU in the settings does not exist, though this machine has others; or a part cannot be a separate
            process.
    """
    is_cpu = config.model.device == "cpu"
    num = 0 if is_cpu else torch.cuda.device_count() if num_gpus is None else num_gpus
    asked = {key: vars(config)[key] for key in KEYS if vars(config)[key]}
    given = ", ".join(f"{key} = {ids}" for key, ids in asked.items())
    if asked and num == 0:
        config = config.model_copy(update={key: [] for key in KEYS})
    for key, ids in asked.items():
        if num and max(ids) >= num:
            raise UserError(
                f"{key} = {ids}, but PyTorch sees {num} GPUs here, numbered from 0. Correct it, or remove it."
            )
    if config.deployment.type == "ray" and part is None:
        return config  # each part uses the GPUs that Ray assigns to it
    samples_elsewhere = config.inference.backend == "vllm" or bool(config.inference.base_url)
    must_be_apart = part is not None or samples_elsewhere or config.deployment.type == "processes"
    apart = must_be_apart or (can_be_apart and _is_apart(config, num))
    config, said = _as_processes(config, num) if apart else _in_one_process(config)
    if asked and num == 0:
        cause = 'model.device = "cpu"' if is_cpu else "PyTorch sees no GPU here"
        said = f"{cause}, so everything runs on the CPU, " + (
            "at once, in several processes" if apart else "in one process and in turn"
        )
    if asked or (said and num > 1):
        note(f"{given}: {said}" if given else said)
    if idle := [] if apart else settings_of_processes(config):
        note(f"this run is one process, in which {', '.join(idle)} cannot act")
    return config


def _is_apart(config: RLConfig, num: int) -> bool:
    # A teacher of type `policy` uses the trained weights, so teacher and trainer must be in one process.
    if config.deployment.type == "one-process" or isinstance(config.teacher, PolicyTeacherConfig):
        return False
    trainer, inference = set(config.trainer_gpu_ids), set(config.inference_gpu_ids)
    if trainer or inference:
        return bool(trainer and inference and not trainer & inference)
    return num > 1 and config.model.device == "auto"


def _in_one_process(config: C) -> tuple[C, str]:
    if (num_trainers := config.deployment.num_trainers) > 1:
        raise UserError(
            f"deployment.num_trainers = {num_trainers} needs trainers that are processes: set deployment.type = "
            '"processes", or remove it.'
        )
    policy = (config.trainer_gpu_ids or config.inference_gpu_ids)[:1]
    teacher = config.teacher_gpu_ids[:1] if isinstance(config.teacher, ModelTeacherConfig) else []
    parts = [f"sampling and training take turns on GPU {policy[0]}"] if policy else []
    parts += [f"the teacher is on GPU {teacher[0]}"] if teacher else []
    if config.teacher_gpu_ids and not teacher:
        parts.append(f"a teacher of type {config.teacher.type} needs no GPU of its own")
    unused = sorted({gpu for key in KEYS for gpu in vars(config)[key]} - {*policy, *teacher})
    parts += [f"GPU {', '.join(map(str, unused))} stays unused"] if unused else []
    changes = {"model": config.model.model_copy(update={"device": f"cuda:{policy[0]}"})} if policy else {}
    return _with_type(config.model_copy(update={**changes, "teacher_gpu_ids": teacher}), "one-process"), (
        f"one process; {'; '.join(parts)}" if parts else ""
    )


def _as_processes(config: C, num: int) -> tuple[C, str]:
    if isinstance(config.teacher, PolicyTeacherConfig):
        raise UserError(
            'teacher.type = "policy" scores with the weights that are trained, which only one process has: set '
            '`deployment.type = "one-process"`, or take the weights that RL begins with, by `teacher.type = "model"`.'
        )
    if num == 0:
        return _with_type(config, "processes"), "at once, in several processes"
    if config.model.device not in ("auto", "cuda"):
        raise UserError(
            f"model.device = {config.model.device} is one device, and the parts are processes with devices of their "
            "own: set trainer_gpu_ids and inference_gpu_ids in its place."
        )
    if config.deployment.type == "ray":  # Ray shows each part only its own GPUs
        return _with_type(config.model_copy(update={key: [*range(num)] for key in KEYS}), "processes"), ""
    free = [gpu for gpu in range(num) if not any(gpu in vars(config)[key] for key in KEYS)]
    needs_teacher = isinstance(config.teacher, ModelTeacherConfig)
    # Parts without ids get the remaining GPUs: one for each sampler, one for the teacher, all others for the trainer.
    address = config.inference.base_url  # a sampler that already runs has its own GPU
    wanted = config.deployment.num_samplers
    inference = [] if address else config.inference_gpu_ids or free[:wanted] or [0]
    # The engine of slimrl samples on one GPU; vLLM may distribute a model over several GPUs.
    num = len(inference) if config.inference.backend == "slimrl" and inference else wanted
    if inference and len(inference) % num:
        raise UserError(
            f"inference_gpu_ids = {inference} cannot be shared out among deployment.num_samplers = {num}: name as many "
            "GPUs for each."
        )
    free = [gpu for gpu in free if gpu not in inference]
    teacher = (config.teacher_gpu_ids[:1] or free[:1] or inference[:1] or [0]) if needs_teacher else []
    trainer = config.trainer_gpu_ids or [gpu for gpu in free if gpu not in teacher] or inference[:1] or [0]
    ids = {"trainer_gpu_ids": trainer, "inference_gpu_ids": inference, "teacher_gpu_ids": teacher}
    sampler = f"the sampler at {address}" if address else f"the sampler on GPU {_numbers(inference)}"
    sampler = f"{num} samplers on GPU {_numbers(inference)}" if num > 1 else sampler
    parts = [sampler, f"the trainer on GPU {_numbers(trainer)}"]
    parts += [f"the teacher on GPU {_numbers(teacher)}"] if teacher else []
    deployment = config.deployment.model_copy(update={"num_samplers": num})
    said = f"several processes; {'; '.join(parts)}"
    return _with_type(config.model_copy(update={**ids, "deployment": deployment}), "processes"), said


def device_of(config: C, part: Part) -> C:
    """Return the settings with the model on the device of `part`. `config` is the result of `place`. For a trainer with
    several ranks, each rank chooses its device later (`launch/ranks.py`)."""
    ids = config.inference_gpu_ids if part == "inference" else config.trainer_gpu_ids
    if not ids:
        return config
    return config.model_copy(update={"model": config.model.model_copy(update={"device": f"cuda:{ids[0]}"})})


def _with_type(config: C, kind: str) -> C:
    deployment = config.deployment.model_copy(update={"type": kind})
    shared = set(config.trainer_gpu_ids) & set(config.inference_gpu_ids)
    config = config.model_copy(update={"deployment": deployment})
    return with_level(config, kind == "processes" and bool(config.trainer_gpu_ids) and not shared)


def with_level(config: C, have_own_gpus: bool) -> C:
    """Return the settings with a number as `max_async_level`. For `auto`, sampling and training overlap if they have
    separate GPUs."""
    if config.max_async_level != "auto":
        return config
    return config.model_copy(update={"max_async_level": AGE if have_own_gpus else 0})


def _numbers(ids: list[int]) -> str:
    return ", ".join(map(str, ids))
