"""The rules of each command: which checks apply to which configuration."""

import re
from collections.abc import Callable
from datetime import date
from typing import Any

from slimrl.config.base import CommandConfig
from slimrl.config.checks.deployment import deployment_faults, sampler_faults
from slimrl.config.checks.faults import Faults, check_secrets, error_of, find_changed, idle
from slimrl.config.checks.loss import distillation_faults, find_reward_faults, loss_faults
from slimrl.config.data import ExpertDataConfig, FileDataConfig, HubDataConfig
from slimrl.config.model import ModelConfig
from slimrl.config.monitors import BOUNDS
from slimrl.config.play import PlayConfig
from slimrl.config.run import EvalRunConfig, ProbeConfig, RLConfig, SFTConfig, TrainerOnlyConfig
from slimrl.config.serve import ServeConfig
from slimrl.config.teacher import ModelTeacherConfig, PolicyTeacherConfig, ServerTeacherConfig, TeacherConfig
from slimrl.config.train import ScheduleConfig
from slimrl.io.urls import is_http_url, is_loopback


def check(config: CommandConfig) -> None:
    """Apply every rule of the command. Raise ConfigError for the first broken rule."""
    check_secrets(config.model_dump())
    if type(config) in RULES:
        for fault in RULES[type(config)](config):
            raise error_of(fault, config)


def _rl_faults(config: RLConfig) -> Faults:
    """Yield the broken rules of `rl`."""
    orchestrator, trainer = config.orchestrator, config.trainer
    group = orchestrator.rollouts_per_example
    yield from _model_faults(config.model)
    yield from _group_faults(orchestrator.batch_size, group, "orchestrator")
    yield from loss_faults(trainer.loss, group, "orchestrator.rollouts_per_example", config.has_teacher)
    yield from _teacher_faults(config)
    yield from sampler_faults(config.inference)
    yield from deployment_faults(config)
    yield from _schedule_faults(trainer.schedule, "trainer.schedule")
    yield from _schedule_faults(config.warmup.schedule, "warmup.schedule")
    yield from _length_faults(orchestrator.sampling.max_tokens, config.seq_len, "orchestrator.sampling.max_tokens")
    yield from _temperature_faults(config.eval.temperatures, "eval.temperatures")
    yield from _monitor_faults(config)


def _probe_faults(config: ProbeConfig) -> Faults:
    """Yield the broken rules of `probe`, which has a teacher and trains nothing."""
    yield from _rl_faults(config)
    if not config.has_teacher:
        yield "<teacher.type=> leaves nothing to probe: the policy is compared with its teacher. Name one in [teacher]."
    why = "the probe trains nothing; model.name may be a run's warmup/weights/step_N, with which RL begins"
    yield from idle(config.warmup, "warmup", ["max_steps"], why)
    if config.resume:
        yield "<resume> cannot act: the probe has nothing to continue. Remove it."


def _trainer_faults(config: TrainerOnlyConfig) -> Faults:
    """Yield the broken rules of `trainer`, whose made-up samples need no reward."""
    data, loss, made_up = config.data, config.trainer.loss, "made-up samples have made-up advantages"
    yield from _model_faults(config.model)
    yield from _group_faults(data.batch_size, data.rollouts_per_example, "data")
    yield from loss_faults(loss, data.rollouts_per_example, "data.rollouts_per_example")
    yield from distillation_faults(loss, teacher=False)
    yield from find_reward_faults(loss, made_up)
    if loss.overrides().get("student_tau", 0.0) > 0:
        yield f"<trainer.loss.student_tau> cannot act: {made_up}. Remove it."
    yield from _schedule_faults(config.trainer.schedule, "trainer.schedule")
    length = data.prompt_len + data.completion_len
    if length > config.seq_len:
        yield f"<data.prompt_len> + <data.completion_len> = {length} tokens do not fit in <seq_len=>."


def _sft_faults(config: SFTConfig) -> Faults:
    """Yield the broken rules of `sft`. A single environment must not have a name, and validation data must not be set
    twice."""
    yield from _model_faults(config.model)
    yield from _schedule_faults(config.schedule, "schedule")
    match config.data:
        case ExpertDataConfig(env=env) if env.name:
            yield "<data.env.name=> cannot act: there is one environment. Remove it."
        case FileDataConfig(val_path=own) | HubDataConfig(val_split=own) if own:
            why = f"<data.{'val_path' if isinstance(config.data, FileDataConfig) else 'val_split'}> is validated on"
            yield from idle(config.data, "data", ["val_fraction"], why)


def _eval_faults(config: EvalRunConfig) -> Faults:
    yield from _model_faults(config.model, is_trained=False)
    elsewhere = ["backend", "base_url", "timeout_s", "port"]
    yield from idle(config.inference, "inference", elsewhere, "`eval` samples in its own process")
    yield from sampler_faults(config.inference)
    yield from _length_faults(config.sampling.max_tokens, config.seq_len, "sampling.max_tokens")
    yield from _temperature_faults(config.temperatures, "temperatures")
    if not any(config.temperatures):
        why = "with <temperatures=> the likeliest token is always taken"
        yield from idle(config.sampling, "sampling", ["top_p", "top_k", "min_p"], why)


def _serve_faults(config: ServeConfig) -> Faults:
    yield from _model_faults(config.model, is_trained=False)
    if not config.api_key and not is_loopback(config.host):
        yield (
            "<host=> can be reached from other machines, and without an <api_key> everyone there could use the server "
            "and replace its weights. Set the variable SLIMRL_API_KEY, or leave host at 127.0.0.1."
        )


def _play_faults(config: PlayConfig) -> Faults:
    if config.model.name:
        yield from _model_faults(config.model, is_trained=False)
        yield from _length_faults(config.sampling.max_tokens, config.seq_len, "sampling.max_tokens")
    elif given := find_changed(config, ["model", "sampling", "seq_len"]):
        yield (
            f"{' and '.join(f'<{key}>' for key in given)} cannot act, because no model plays. Name one with model.name "
            "to seat it at the other side, or remove it."
        )


def _model_faults(model: ModelConfig, is_trained: bool = True) -> Faults:
    """Yield a fault for an invalid device, for an invalid date, and for LoRA in a command that trains nothing
    (`is_trained` is False)."""
    if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", model.device):
        yield "<model.device=> is no device, expected auto, cpu, cuda or cuda:NUMBER."
    if model.date != "auto" and not _is_date(model.date):
        yield "<model.date=> is no date, expected auto or YEAR-MONTH-DAY, as in 2026-01-31."
    if model.lora.rank > 0 and not is_trained:
        yield (
            "<model.lora.rank=> cannot act, because this command trains nothing. Remove it: saved weights have their "
            "adapters merged, and model.name may be an adapter's directory."
        )


def _is_date(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def _group_faults(batch_size: int, rollouts_per_example: int, section: str) -> Faults:
    """Yield a fault if `batch_size` is not a multiple of `rollouts_per_example`. Both are settings of `section`."""
    lower = batch_size // rollouts_per_example * rollouts_per_example
    if lower != batch_size:
        sizes = f"{lower} or {lower + rollouts_per_example}" if lower else f"{rollouts_per_example}"
        size, group = f"<{section}.batch_size=>", f"<{section}.rollouts_per_example=>"
        yield f"{size} is not a multiple of {group}: the last group would be incomplete. Set batch_size to {sizes}."


def _schedule_faults(schedule: ScheduleConfig, section: str) -> Faults:
    """Yield a fault if `min_lr_ratio` is set although the learning rate is constant."""
    if schedule.type == "constant":
        yield from idle(schedule, section, ["min_lr_ratio"], f'<{section}.type> "constant" never falls')


def _length_faults(max_tokens: int, seq_len: int, key: str) -> Faults:
    """Yield a fault if a reply may be as long as a whole conversation. `key` is the full name of the setting
    `max_tokens`."""
    if max_tokens >= seq_len:
        yield f"<{key}=> leaves no room for a prompt in <seq_len=>. Raise seq_len or lower {key}."


def _temperature_faults(temperatures: list[float], key: str) -> Faults:
    """Yield a fault if a temperature is listed twice. `key` is the name of the list."""
    if len(set(temperatures)) != len(temperatures):
        yield f"<{key}=> names a temperature twice; the results would be one metric."


def _teacher_faults(config: RLConfig) -> Faults:
    """Yield a fault for a teacher that has nothing to teach, and for teacher settings without effect."""
    yield from distillation_faults(config.trainer.loss, config.has_teacher)
    if config.teacher_gpu_ids and not config.has_teacher:
        yield "<teacher_gpu_ids=> cannot act with <teacher.type=>. Remove it, or name a teacher."
    if isinstance(config.teacher, TeacherConfig):
        yield from _short_teacher_faults(config, config.teacher)
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


def _short_teacher_faults(config: RLConfig, teacher: TeacherConfig) -> Faults:
    """Yield a fault if the teacher cannot read the longest rollouts. Dropping these rollouts would favour short
    replies."""
    needed = config.seq_len + (1 if isinstance(teacher, ServerTeacherConfig) else 0)  # servers sample one more token
    if teacher.seq_len < needed:
        yield (
            "<teacher.seq_len=> cannot hold rollouts of <seq_len=> tokens: those would be played and then dropped. Set "
            f"it to {needed} and what the teacher's context adds, or lower seq_len."
        )


def _monitor_faults(config: RLConfig) -> Faults:
    """Yield a fault for a bound of a monitor that is off, and for a monitor in `stop` that is off or cannot raise an
    alarm. If all monitors are switched off, accept their settings, so that one flag can switch them on."""
    monitors = config.monitors
    if not monitors.enabled:
        return
    for name in monitors.stop:
        if name in monitors.off:
            yield f'<monitors.stop> has "{name}", which cannot act: <monitors.off> has it too. Remove one of the two.'
        if why := _never_raised(config, name):
            yield f'<monitors.stop> has "{name}", which cannot act: {why}'
    for key in find_changed(monitors, list(BOUNDS)):
        if BOUNDS[key] in monitors.off:
            yield f'<monitors.{key}=> cannot act: its monitor "{BOUNDS[key]}" is in <monitors.off>. Remove either.'


def _never_raised(config: RLConfig, name: str) -> str:
    """Return the reason why a monitor can never end the run; an empty text if it can end the run."""
    loss, num = config.trainer.loss.resolve(config.has_teacher), config.orchestrator.rollouts_per_example
    match name:
        case "held_out_gap" if not 0 < config.eval.interval_steps < config.max_steps:
            return "held-out tasks are measured before and after training alone. Set eval.interval_steps."
        case "zero_signal" if loss.has_critic or loss.teacher_tau > 0 or loss.student_tau > 0:
            return "with a value head or distillation every group carries a signal. Remove it."
        case "reward_spread" if config.has_teacher:
            return "a policy that learns from a teacher needs no spread of rewards. Remove it."
        case "duplicates" if num == 1:
            return "orchestrator.rollouts_per_example = 1 leaves no two rollouts to compare. Remove it."
    return ""


RULES: dict[type[CommandConfig], Callable[[Any], Faults]] = {
    RLConfig: _rl_faults,
    ProbeConfig: _probe_faults,
    TrainerOnlyConfig: _trainer_faults,
    SFTConfig: _sft_faults,
    EvalRunConfig: _eval_faults,
    ServeConfig: _serve_faults,
    PlayConfig: _play_faults,
}
