"""Rules of `[teacher]` and of the command `probe`: a teacher that has something to teach, and that can be asked."""

import re

from slimrl.config.checks.error import ConfigError
from slimrl.config.checks.loss import check_rewards_count, check_taus
from slimrl.config.run import ProbeConfig, RLConfig
from slimrl.config.teacher import (
    ModelTeacherConfig,
    NoTeacherConfig,
    PolicyTeacherConfig,
    ServerTeacherConfig,
    TeacherConfig,
)
from slimrl.io.urls import is_http_url


def check_teacher(config: RLConfig) -> None:
    """Refuses a teacher that has nothing to teach, or whose settings cannot act. Raises ConfigError."""
    check_taus(config.trainer.loss, config.has_teacher)
    if config.teacher_gpu_ids:
        check_teacher_gpu(config)
    if isinstance(config.teacher, TeacherConfig):
        check_teacher_reads(config.seq_len, config.teacher)
        if config.trainer.loss.resolve(has_teacher=True).adv_tau == 0:
            why = "with trainer.loss.adv_tau = 0 the teacher alone counts"
            check_rewards_count(config.trainer.loss, why, "trainer.loss.adv_tau")
    match config.teacher:
        case ModelTeacherConfig(device=device) if not re.fullmatch(r"policy|cpu|cuda(:\d+)?", device):
            raise ConfigError(
                f'teacher.device = "{device}" is no device, expected policy, cpu, cuda or cuda:NUMBER.',
                "teacher.device",
            )
        case PolicyTeacherConfig(env_args=more):
            if all({**env.args, **more} == env.args for env in config.orchestrator.env):
                raise ConfigError(
                    'teacher.type = "policy" has nothing to teach: the same weights read the same, because '
                    "teacher.env_args change no args of the environment. Give it more context there, or another model "
                    'with type "model" or "server".',
                    "teacher.type",
                    "teacher.env_args",
                )
        case ServerTeacherConfig() as server:
            check_teacher_server(server, config.orchestrator.sampling.temperature)


def check_teacher_server(server: ServerTeacherConfig, temperature: float) -> None:
    """Refuses a bad address, and another temperature than the server's 1. Raises ConfigError."""
    if not is_http_url(server.base_url):
        raise ConfigError(
            f"teacher.base_url must be as http://localhost:8000/v1, not {server.base_url!r}.", "teacher.base_url"
        )
    if temperature != 1.0:
        raise ConfigError(
            f"orchestrator.sampling.temperature = {temperature:g} does not go with "
            'teacher.type = "server": servers give the log-probabilities of a prompt at temperature 1 alone, and '
            "the two must be of the same one. Set it to 1.",
            "orchestrator.sampling.temperature",
            "teacher.type",
        )


def check_teacher_reads(seq_len: int, teacher: TeacherConfig) -> None:
    """Refuses a teacher that cannot read the longest rollouts. Raises ConfigError.

    Such rollouts would be dropped, always the longest ones, which would favour short replies.
    """
    needed = seq_len + (1 if isinstance(teacher, ServerTeacherConfig) else 0)  # servers sample a token more
    if teacher.seq_len < needed:
        raise ConfigError(
            f"teacher.seq_len = {teacher.seq_len} cannot hold rollouts of seq_len = {seq_len} tokens: those would be "
            f"played and then dropped. Set it to {needed} and what the teacher's context adds, or lower seq_len.",
            "teacher.seq_len",
            "seq_len",
        )


def check_probe(config: ProbeConfig) -> None:
    """Refuses a probe without a teacher, and settings of training. Raises ConfigError."""
    if not config.has_teacher:
        raise ConfigError(
            'teacher.type = "none" leaves nothing to probe: the probe compares the policy with its teacher. Name one '
            "in [teacher].",
            "teacher.type",
        )
    if config.warmup.max_steps:
        raise ConfigError(
            f"warmup.max_steps = {config.warmup.max_steps}: the probe trains nothing. For the base model set it to 0; "
            "for the weights that RL would begin with, also set model.name to a run's warmup/weights/step_"
            f"{config.warmup.max_steps}.",
            "warmup.max_steps",
        )
    if config.resume:
        raise ConfigError("resume cannot act: the probe has nothing to continue. Remove it.", "resume")


def check_teacher_gpu(config: RLConfig) -> None:
    """Refuses GPUs for a teacher that is not there, or that has a device already. Raises ConfigError."""
    ids = config.teacher_gpu_ids
    if isinstance(config.teacher, NoTeacherConfig):
        raise ConfigError(
            f'teacher_gpu_ids = {ids} cannot act with teacher.type = "none". Remove it, or name a teacher.',
            "teacher_gpu_ids",
            "teacher.type",
        )
    if isinstance(config.teacher, ModelTeacherConfig) and config.teacher.device != "policy":
        raise ConfigError(
            f'teacher_gpu_ids = {ids} and teacher.device = "{config.teacher.device}" say the same thing twice. Remove '
            "one of the two.",
            "teacher_gpu_ids",
            "teacher.device",
        )
