"""Makes the teacher of a run from the settings `[teacher]`. A teacher uses the policy's weights, other weights in this
process, or a server.

A teacher in this process scores packed rollouts, as in training. So tokens that several rollouts share, such as the
teacher's context, are computed only once.
"""

from collections.abc import Callable, Sequence
from functools import cache, partial

import torch
from torch import nn

from slimrl.config.model import LoraConfig
from slimrl.config.teacher import ModelTeacherConfig, NoTeacherConfig, PolicyTeacherConfig, ServerTeacherConfig
from slimrl.errors import UserError
from slimrl.launch.open_dir import initial_weights
from slimrl.launch.parts import Parts, SamplingParts
from slimrl.launch.sampling import make_room
from slimrl.launch.tasksets import load_tasksets, teacher_environments
from slimrl.models.device import choose_device, dtype_name
from slimrl.models.load import load_policy
from slimrl.orchestrator.distill import Distillation, Teacher
from slimrl.orchestrator.teacher_server import ServerTeacher
from slimrl.trainer.logprobs import target_logprobs
from slimrl.trainer.packing import pack_samples
from slimrl.types import Sample, Taskset

Load = Callable[[], nn.Module]


class ModuleTeacher:
    """A teacher with its weights in this process. The function `load` returns the module. It is first called when the
    teacher is used, because the initial weights of RL may not exist earlier. `make_room` frees the sampler's memory."""

    def __init__(self, load: Load, micro_batch_tokens: int, make_room: Callable[[], None]) -> None:
        self._load, self._micro_batch_tokens, self._make_room = load, micro_batch_tokens, make_room

    def module(self) -> nn.Module:
        """Free the sampler's memory, and return the teacher's module."""
        self._make_room()
        return self._load()

    def score(self, samples: Sequence[Sample], temperature: float) -> list[list[float]]:
        """Return the log-probabilities of the samples' tokens; see `distill.Teacher`."""
        module = self.module()
        device = next(module.parameters()).device
        scores_BN: list[list[float]] = [[] for _ in samples]
        with torch.no_grad():
            for pack in pack_samples(samples, self._micro_batch_tokens, device):
                logprob_N, *_ = target_logprobs(module, pack, temperature)
                for b, logprob in zip(pack.sample_N.tolist(), logprob_N.tolist(), strict=True):
                    scores_BN[b].append(logprob)
        return scores_BN


def make_distillation(parts: SamplingParts, dtype: str = "") -> Distillation | None:
    """Make the distillation from `[teacher]`; None without a teacher. `dtype` is the policy's dtype; it is needed only
    if `parts` lack the policy, which is then in another process.

    Raises UserError if the teacher cannot be loaded or does not fit the policy. This is checked before any slow stage.
    """
    config, teacher = parts.config, parts.config.teacher
    if isinstance(teacher, NoTeacherConfig):
        return None
    tasksets = teacher_tasksets(parts)
    if seated := next((taskset.class_name for taskset in tasksets if taskset.roles), ""):
        raise UserError(
            f"teacher.env_args: a teacher reads one opening for each task, and {seated} has one for each role that the "
            "policy plays against itself. Leave `teacher.env_args` away, or let it play one role."
        )
    made: Teacher
    longest = teacher.seq_len
    if isinstance(teacher, ServerTeacherConfig):
        made = server = ServerTeacher(teacher)
        server.check_vocabulary(_plain_tokens(parts))
        about = f"{teacher.model} at {teacher.base_url}"
        longest -= 1  # a server samples one token after the scored tokens, and needs room for this token
    else:
        load = _loader(parts, teacher, dtype)
        rest: Callable[[], None] = partial(make_room, parts) if isinstance(parts, Parts) else lambda: None
        made = ModuleTeacher(load, config.trainer.micro_batch_tokens, rest)
        about = "the policy itself"
        if isinstance(teacher, ModelTeacherConfig):
            about = teacher.name or "the weights that RL begins with"
    parts.console.note(f"teacher: {about}, with {'more' if tasksets else 'the same'} context")
    return Distillation(made, tasksets, parts.context, longest)


def teacher_tasksets(parts: SamplingParts) -> Sequence[Taskset]:
    """Return the student's tasksets with `teacher.env_args` added to their arguments; none without such arguments."""
    return load_tasksets(teacher_environments(parts.config), parts.config.orchestrator.episode_timeout_s)


def _loader(parts: SamplingParts, teacher: PolicyTeacherConfig | ModelTeacherConfig, dtype: str) -> Load:
    """Return a function that returns the module of a teacher in this process. A model that the settings name is loaded
    now. Otherwise the first call loads the initial weights of RL, and on the policy's device shares `parts.reference`.

    Raises UserError if the teacher's vocabulary differs from the policy's vocabulary.
    """
    config, here = parts.config, parts if isinstance(parts, Parts) else None
    if isinstance(teacher, PolicyTeacherConfig):
        assert here  # with this teacher, the run is one process (`launch/placement.py`)
        module = here.policy.module
        return lambda: module
    default = str(here.policy.device if here else choose_device("auto"))
    device = f"cuda:{config.teacher_gpu_ids[0]}" if config.teacher_gpu_ids else default
    dtype = dtype_name(here.policy.dtype) if here else dtype

    def load() -> nn.Module:
        name = teacher.name or initial_weights(config)
        changes = {"name": name, "device": device, "dtype": dtype, "lora": LoraConfig()}
        policy = load_policy(config.model.model_copy(update=changes))
        if policy.chat.vocabulary != parts.context.chat.vocabulary:
            raise UserError(
                f"teacher.name = {teacher.name} has another vocabulary than model.name = {config.model.name}: a "
                "teacher scores the policy's token ids, which would be other tokens to it. Take a model of the same "
                "family."
            )
        return policy.module

    if not teacher.name and here and device == default:
        return lambda: here.reference
    once = cache(load)
    if teacher.name:
        once()
    return once


def _plain_tokens(parts: SamplingParts) -> dict[int, str]:
    """Return a dict from token ids of the policy to texts, spread evenly over the vocabulary. It has only tokens of
    plain letters, because all tokenizers write these texts in the same way."""
    num, text = len(parts.context.chat.vocabulary), parts.context.chat.full_text
    # Take every n-th token, about 512 in total. They suffice to distinguish vocabularies, and fit into one request.
    texts = {token: text([token]) for token in range(0, num, max(1, num // 512))}
    return {token: word for token, word in texts.items() if word.strip(" ").isascii() and word.strip(" ").isalpha()}
