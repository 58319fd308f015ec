"""Which device each part of an RL run has. One process samples and trains in turn, so both have the same one."""

from collections.abc import Callable
from typing import TypeVar

import torch

from slimrl.config.run import RLConfig
from slimrl.config.teacher import ModelTeacherConfig
from slimrl.errors import UserError

C = TypeVar("C", bound=RLConfig)
KEYS = ("trainer_gpu_ids", "inference_gpu_ids", "teacher_gpu_ids")


def place(config: C, note: Callable[[str], None]) -> C:
    """The settings with the devices that the `..._gpu_ids` stand for on this machine; `note` receives a line that says
    what they come to. Without such ids the settings stay as they are.

    Raises:
        UserError: a GPU does not exist, though this machine has some.
    """
    asked = {key: vars(config)[key] for key in KEYS if vars(config)[key]}
    if not asked:
        return config
    given = ", ".join(f"{key} = {ids}" for key, ids in asked.items())
    num = torch.cuda.device_count()
    if num == 0:
        note(f"{given}: PyTorch sees no GPU here, so everything runs on the CPU, in one process and in turn")
        return config.model_copy(update={key: [] for key in KEYS})
    for key, ids in asked.items():
        if max(ids) >= num:
            raise UserError(
                f"{key} = {ids}, but PyTorch sees {num} GPUs here, numbered from 0. Correct it, or remove it."
            )
    policy = (config.trainer_gpu_ids or config.inference_gpu_ids)[:1]
    teacher = config.teacher_gpu_ids[:1] if isinstance(config.teacher, ModelTeacherConfig) else []
    parts = [f"sampling and training take turns on GPU {policy[0]}"] if policy else []
    parts += [f"the teacher is on GPU {teacher[0]}"] if teacher else []
    if config.teacher_gpu_ids and not teacher:
        parts.append(f"a teacher of type {config.teacher.type} needs no GPU of its own")
    unused = sorted({gpu for ids in asked.values() for gpu in ids} - {*policy, *teacher})
    parts += [f"GPU {', '.join(map(str, unused))} stays unused"] if unused else []
    note(f"{given}: one process in this version; {'; '.join(parts)}")
    changes = {"model": config.model.model_copy(update={"device": f"cuda:{policy[0]}"})} if policy else {}
    return config.model_copy(update={**changes, "teacher_gpu_ids": teacher})
