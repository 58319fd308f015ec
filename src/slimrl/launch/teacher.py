"""The teacher of a run, made from `[teacher]`: the policy's own weights, others in this process, or a server.

In this process a teacher is one forward over the packed rollouts, as in training; what they have in common, such as the
teacher's context, is computed once.
"""

from collections.abc import Callable, Sequence
from functools import cache, partial

import torch
from torch import nn

from slimrl.config.model import LoraConfig
from slimrl.config.teacher import (
    ModelTeacherConfig,
    NoTeacherConfig,
    PolicyTeacherConfig,
    ServerTeacherConfig,
    TeacherConfig,
)
from slimrl.environments.base import Taskset
from slimrl.environments.find import load_taskset
from slimrl.errors import UserError
from slimrl.launch.stages import Parts, make_room, starting_name
from slimrl.models.load import Policy, load_policy
from slimrl.orchestrator.distill import Distillation, Teacher
from slimrl.orchestrator.teacher_server import ServerTeacher
from slimrl.rollout.self_play import self_play_roles
from slimrl.trainer.logprobs import target_logprobs
from slimrl.trainer.packing import pack_samples
from slimrl.types import Sample

Load = Callable[[], nn.Module]


class ModuleTeacher:
    """Weights of this process. `load` gives them when they are first needed: those that RL begins with may not be there
    before. `make_room` has the sampler let go of the memory."""

    def __init__(self, load: Load, micro_batch_tokens: int, make_room: Callable[[], None]) -> None:
        self._load, self._micro_batch_tokens, self._make_room = load, micro_batch_tokens, make_room

    def module(self) -> nn.Module:
        """The weights, with the memory that they and a forward need."""
        self._make_room()
        return self._load()

    def score(self, samples: Sequence[Sample], temperature: float) -> list[list[float]]:
        """See `distill.Teacher`."""
        module = self.module()
        device = next(module.parameters()).device
        scores_BN: list[list[float]] = [[] for _ in samples]
        with torch.no_grad():
            for pack in pack_samples(samples, self._micro_batch_tokens, device):
                logprob_N, *_ = target_logprobs(module, pack, temperature)
                for b, logprob in zip(pack.sample_N.tolist(), logprob_N.tolist(), strict=True):
                    scores_BN[b].append(logprob)
        return scores_BN


def make_distillation(parts: Parts, reference: Load) -> Distillation | None:
    """The teacher and what it reads; None without one. `reference` gives the weights that RL begins with.

    Raises UserError at once, before anything slow, for what cannot be loaded or does not fit the policy.
    """
    teacher = parts.config.teacher
    if isinstance(teacher, NoTeacherConfig):
        return None
    tasksets = teacher_tasksets(parts)
    if seated := next((type(taskset).__name__ for taskset in tasksets if self_play_roles(taskset)), ""):
        raise UserError(
            f"teacher.env_args: a teacher reads one opening for each task, and {seated} has one for each role that the "
            "policy plays against itself. Leave `teacher.env_args` away, or let it play one role."
        )
    made = _teacher(parts, reference)
    parts.console.note(f"teacher: {described(teacher)}, {'with more context' if tasksets else 'with the same context'}")
    # A server is asked to sample a token after what it scores, and wants room for it.
    longest = teacher.seq_len - (1 if isinstance(teacher, ServerTeacherConfig) else 0)
    return Distillation(made, tasksets, parts.context, longest)


def described(teacher: PolicyTeacherConfig | ModelTeacherConfig | ServerTeacherConfig) -> str:
    """Who that is, in a few words."""
    match teacher:
        case ServerTeacherConfig():
            return f"{teacher.model} at {teacher.base_url}"
        case ModelTeacherConfig():
            return teacher.name or "the weights that RL begins with"
    return "the policy itself"


def teacher_tasksets(parts: Parts) -> Sequence[Taskset]:
    """The student's with `teacher.env_args`; none if there are no such."""
    config = parts.config
    if not isinstance(config.teacher, TeacherConfig) or not config.teacher.env_args:
        return ()
    return [load_taskset(env.id, {**env.args, **config.teacher.env_args}) for env in config.orchestrator.env]


def load_teacher(parts: Parts) -> Policy:
    """The weights of a teacher of type `model`. Raises UserError if they do not know the policy's tokens."""
    config, teacher = parts.config, parts.config.teacher
    assert isinstance(teacher, ModelTeacherConfig)
    changes = {
        "name": teacher.name or starting_name(parts),
        "device": teacher_device(parts),
        "dtype": str(parts.policy.dtype).removeprefix("torch."),
        "lora": LoraConfig(),
    }
    policy = load_policy(config.model.model_copy(update=changes))
    if policy.tokenizer.get_vocab() != parts.policy.tokenizer.get_vocab():
        raise UserError(
            f"teacher.name = {teacher.name} has another vocabulary than model.name = {config.model.name}: a teacher "
            "scores the policy's token ids, which would be other tokens to it. Take a model of the same family."
        )
    return policy


def teacher_device(parts: Parts) -> str:
    """Where a teacher of type `model` lives. Raises UserError for a GPU that is not there."""
    config, teacher = parts.config, parts.config.teacher
    assert isinstance(teacher, ModelTeacherConfig)
    ids, num = config.teacher_gpu_ids, torch.cuda.device_count()
    key, device = ("teacher_gpu_ids", f"cuda:{ids[0]}") if ids else ("teacher.device", teacher.device)
    if device == "policy":
        return str(parts.policy.device)
    if device != "cpu" and int(device.partition(":")[2] or 0) >= num:
        raise UserError(
            f"{key} asks for {device}, but PyTorch sees {num} CUDA devices here. Remove it, and the teacher is where "
            "the policy is."
        )
    return device


def _teacher(parts: Parts, reference: Load) -> Teacher:
    match parts.config.teacher:
        case ServerTeacherConfig() as config:
            server = ServerTeacher(config)
            server.check_vocabulary(_words(parts))
            return server
        case ModelTeacherConfig():
            load = _frozen(parts, reference)
        case _:
            load = partial(_module, parts)
    return ModuleTeacher(load, parts.config.trainer.micro_batch_tokens, partial(make_room, parts))


def _words(parts: Parts) -> dict[int, str]:
    """Some of the policy's tokens that everybody writes alike: plain letters, from all over the vocabulary."""
    num, text = len(parts.policy.tokenizer), parts.context.chat.full_text
    texts = {token: text([token]) for token in range(0, num, max(1, num // 512))}
    return {token: word for token, word in texts.items() if word.strip(" ").isascii() and word.strip(" ").isalpha()}


def _module(parts: Parts) -> nn.Module:
    return parts.policy.module


def _frozen(parts: Parts, reference: Load) -> Load:
    """Another model is loaded now; the weights that RL begins with when they are there, and once where a KL divergence
    from them needs them too."""
    teacher, device = parts.config.teacher, teacher_device(parts)
    assert isinstance(teacher, ModelTeacherConfig)
    if teacher.name:
        module = load_teacher(parts).module
        return lambda: module
    if device == str(parts.policy.device):
        return reference
    return cache(lambda: load_teacher(parts).module)
