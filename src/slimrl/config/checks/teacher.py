"""Rules of `[teacher]`: the teacher must have something to teach, and must be reachable."""

import re

from slimrl.config.checks.faults import Faults
from slimrl.config.checks.loss import distillation_faults, find_reward_faults
from slimrl.config.run import RLConfig
from slimrl.config.teacher import ModelTeacherConfig, PolicyTeacherConfig, ServerTeacherConfig, TeacherConfig
from slimrl.io.urls import is_http_url


def teacher_faults(config: RLConfig) -> Faults:
    """Yield a teacher that has nothing to teach, or settings of it without effect."""
    yield from distillation_faults(config.trainer.loss, config.has_teacher)
    if config.teacher_gpu_ids and not config.has_teacher:
        yield "<teacher_gpu_ids=> cannot act with <teacher.type=>. Remove it, or name a teacher."
    if isinstance(config.teacher, TeacherConfig):
        yield from _length_faults(config, config.teacher)
        if config.trainer.loss.resolve(has_teacher=True).adv_tau == 0:
            why = "with <trainer.loss.adv_tau=> the teacher alone counts"
            yield from find_reward_faults(config.trainer.loss, why)
    match config.teacher:
        case ModelTeacherConfig(device=device):
            if not re.fullmatch(r"policy|cpu|cuda(:\d+)?", device):
                yield "<teacher.device=> is no device, expected policy, cpu, cuda or cuda:NUMBER."
            if config.teacher_gpu_ids and device != "policy":
                yield "<teacher_gpu_ids=> and <teacher.device=> say the same thing twice. Remove one of the two."
        case PolicyTeacherConfig(env_args=more):
            if all({**env.args, **more} == env.args for env in config.orchestrator.env):
                yield (
                    "<teacher.type=> has nothing to teach: the same weights read the same, because <teacher.env_args=> "
                    'changes no args of the environment. Give more context there, or take type "model" or "server".'
                )
        case ServerTeacherConfig(base_url=url):
            if not is_http_url(url):
                yield "<teacher.base_url=>: expected an address as http://localhost:8000/v1."
            if config.orchestrator.sampling.temperature != 1.0:
                yield (
                    "<orchestrator.sampling.temperature=> does not go with <teacher.type=>: servers give the "
                    "log-probabilities of a prompt at temperature 1 alone. Set it to 1."
                )


def _length_faults(config: RLConfig, teacher: TeacherConfig) -> Faults:
    """Yield a teacher that cannot read the longest rollouts. Dropping them would favour short replies."""
    needed = config.seq_len + (1 if isinstance(teacher, ServerTeacherConfig) else 0)  # servers sample one more token
    if teacher.seq_len < needed:
        yield (
            "<teacher.seq_len=> cannot hold rollouts of <seq_len=> tokens: those would be played and then dropped. Set "
            f"it to {needed} and what the teacher's context adds, or lower seq_len."
        )
