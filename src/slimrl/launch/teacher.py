"""The teacher of a run, made from `[teacher]`: the policy's own weights, other weights in this process, or a server.

A teacher in this process scores packed rollouts in one forward, as training does, so tokens that the rollouts share,
such as the teacher's context, are computed once.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial

import torch
from torch import nn

from slimrl.config.model import LoraConfig
from slimrl.config.run import RLConfig
from slimrl.config.teacher import (
    ModelTeacherConfig,
    NoTeacherConfig,
    PolicyTeacherConfig,
    ServerTeacherConfig,
)
from slimrl.errors import UserError
from slimrl.launch.open_dir import initial_weights
from slimrl.launch.parts import Parts, SamplingParts
from slimrl.launch.sampling import make_room
from slimrl.launch.tasksets import load_tasksets, teacher_environments
from slimrl.models.device import choose_device, dtype_name
from slimrl.models.load import Policy, load_policy
from slimrl.orchestrator.distill import Distillation, Teacher
from slimrl.orchestrator.teacher_server import ServerTeacher
from slimrl.trainer.logprobs import target_logprobs
from slimrl.trainer.packing import pack_samples
from slimrl.types import Sample, Taskset

Load = Callable[[], nn.Module]


class ModuleTeacher:
    """A teacher with its weights in this process. `load` returns the module at its first use, because the first weights
    of RL may not exist earlier. `make_room` frees the sampler's memory."""

    def __init__(self, load: Load, micro_batch_tokens: int, make_room: Callable[[], None]) -> None:
        self._load, self._micro_batch_tokens, self._make_room = load, micro_batch_tokens, make_room

    def module(self) -> nn.Module:
        """The teacher's module; the memory that it needs is freed first."""
        self._make_room()
        return self._load()

    def score(self, samples: Sequence[Sample], temperature: float) -> list[list[float]]:
        """Return log-probabilities; see `distill.Teacher`."""
        module = self.module()
        device = next(module.parameters()).device
        scores_BN: list[list[float]] = [[] for _ in samples]
        with torch.no_grad():
            for pack in pack_samples(samples, self._micro_batch_tokens, device):
                logprob_N, *_ = target_logprobs(module, pack, temperature)
                for b, logprob in zip(pack.sample_N.tolist(), logprob_N.tolist(), strict=True):
                    scores_BN[b].append(logprob)
        return scores_BN


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The process around a teacher: the policy's dtype, the default device, the policy's module, the first weights of
    RL, and a function that frees the sampler's memory."""

    dtype: str
    device: str
    module: Load
    reference: Load
    make_room: Callable[[], None]


def beside_the_policy(parts: Parts, reference: Load) -> Surroundings:
    """Return the surroundings of a teacher in the process of sampler and trainer. `reference` loads the first weights
    of RL, which a KL divergence may share."""
    policy = parts.policy
    return Surroundings(
        dtype_name(policy.dtype), str(policy.device), lambda: policy.module, reference, partial(make_room, parts)
    )


def beside_the_orchestrator(dtype: str) -> Surroundings:
    """Return the surroundings of a teacher in the orchestrator's process, which has no other weights."""
    return Surroundings(dtype, str(choose_device("auto")), _no_module, _no_module, lambda: None)


def make_distillation(parts: SamplingParts, around: Surroundings) -> Distillation | None:
    """Make the distillation of `[teacher]`; None without a teacher.

    Raises UserError before the first slow stage for a teacher that cannot be loaded or does not fit the policy.
    """
    teacher = parts.config.teacher
    if isinstance(teacher, NoTeacherConfig):
        return None
    tasksets = teacher_tasksets(parts)
    if seated := next((taskset.class_name for taskset in tasksets if taskset.roles), ""):
        raise UserError(
            f"teacher.env_args: a teacher reads one opening for each task, and {seated} has one for each role that the "
            "policy plays against itself. Leave `teacher.env_args` away, or let it play one role."
        )
    made = _teacher(parts, around)
    reads = "with more context" if tasksets else "with the same context"
    parts.console.note(f"teacher: {describe_teacher(teacher)}, {reads}")
    # A server samples one token after the scored ones, and needs room for it.
    longest = teacher.seq_len - (1 if isinstance(teacher, ServerTeacherConfig) else 0)
    return Distillation(made, tasksets, parts.context, longest)


def describe_teacher(teacher: PolicyTeacherConfig | ModelTeacherConfig | ServerTeacherConfig) -> str:
    """Return a short description of the teacher for the console."""
    match teacher:
        case ServerTeacherConfig():
            return f"{teacher.model} at {teacher.base_url}"
        case ModelTeacherConfig():
            return teacher.name or "the weights that RL begins with"
    return "the policy itself"


def teacher_tasksets(parts: SamplingParts) -> Sequence[Taskset]:
    """Return the student's tasksets with `teacher.env_args` added to their arguments; none without such arguments."""
    return load_tasksets(teacher_environments(parts.config), parts.config.orchestrator.episode_timeout_s)


def load_teacher(parts: SamplingParts, around: Surroundings) -> Policy:
    """Load a teacher of type `model`. Raises UserError if its vocabulary is not the policy's."""
    config, teacher = parts.config, parts.config.teacher
    assert isinstance(teacher, ModelTeacherConfig)
    changes = {
        "name": teacher.name or initial_weights(config),
        "device": teacher_device(config, around.device),
        "dtype": around.dtype,
        "lora": LoraConfig(),
    }
    policy = load_policy(config.model.model_copy(update=changes))
    if policy.chat.vocabulary != parts.context.chat.vocabulary:
        raise UserError(
            f"teacher.name = {teacher.name} has another vocabulary than model.name = {config.model.name}: a teacher "
            "scores the policy's token ids, which would be other tokens to it. Take a model of the same family."
        )
    return policy


def teacher_device(config: RLConfig, default: str) -> str:
    """Return the device of a teacher of type `model`. Raises UserError for a GPU that does not exist."""
    teacher = config.teacher
    assert isinstance(teacher, ModelTeacherConfig)
    ids, num = config.teacher_gpu_ids, torch.cuda.device_count()
    key, device = ("teacher_gpu_ids", f"cuda:{ids[0]}") if ids else ("teacher.device", teacher.device)
    if device == "policy":
        return default
    if device != "cpu" and int(device.partition(":")[2] or 0) >= num:
        raise UserError(
            f"{key} asks for {device}, but PyTorch sees {num} CUDA devices here. Remove it, and the teacher is where "
            "the policy is."
        )
    return device


def _teacher(parts: SamplingParts, around: Surroundings) -> Teacher:
    match parts.config.teacher:
        case ServerTeacherConfig() as config:
            server = ServerTeacher(config)
            server.check_vocabulary(_plain_tokens(parts))
            return server
        case ModelTeacherConfig():
            load = _model_loader(parts, around)
        case _:
            load = around.module
    return ModuleTeacher(load, parts.config.trainer.micro_batch_tokens, around.make_room)


def _plain_tokens(parts: SamplingParts) -> dict[int, str]:
    """Return tokens of the policy and their texts, from all over the vocabulary. All are plain letters, because all
    tokenizers write these alike."""
    num, text = len(parts.context.chat.vocabulary), parts.context.chat.full_text
    # Every n-th token, about 512 in all: enough to distinguish vocabularies, and one short request.
    texts = {token: text([token]) for token in range(0, num, max(1, num // 512))}
    return {token: word for token, word in texts.items() if word.strip(" ").isascii() and word.strip(" ").isalpha()}


def _no_module() -> nn.Module:
    raise AssertionError("the policy is in another process (launch/placement.py)")


def _model_loader(parts: SamplingParts, around: Surroundings) -> Load:
    """Return a function that returns the weights of a teacher of type `model`. A named model is loaded now. The first
    weights of RL are loaded later, when they exist, and shared with the KL divergence if it is on the same device."""
    teacher, device = parts.config.teacher, teacher_device(parts.config, around.device)
    assert isinstance(teacher, ModelTeacherConfig)
    if teacher.name:
        module = load_teacher(parts, around).module
        return lambda: module
    if device == around.device and around.reference is not _no_module:
        return around.reference
    return cache(lambda: load_teacher(parts, around).module)
