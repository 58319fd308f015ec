"""The rules of each command about combinations of settings, and the rule about secrets. A combination may be invalid
although each setting is valid. Settings must not contain secrets, because they are shown, stored with a run, and sent
to W&B. The rules of `rl` are in `rules.py`."""

import json
import re
from collections.abc import Callable
from datetime import date
from operator import attrgetter
from typing import Any

from slimrl.config.base import SECRET, CommandConfig, Config
from slimrl.config.data import ExpertDataConfig, FileDataConfig, HubDataConfig
from slimrl.config.model import ModelConfig
from slimrl.config.reading.formats import flatten
from slimrl.config.reading.schema import Path
from slimrl.config.rules import (
    Rules,
    deployment_rules,
    distillation_rules,
    idle,
    loss_rules,
    monitor_rules,
    reward_rules,
    sampler_rules,
    teacher_rules,
)
from slimrl.config.run import EvalRunConfig, ProbeConfig, RLConfig, SFTConfig, TrainerOnlyConfig
from slimrl.config.serve import ServeConfig
from slimrl.config.teacher import TeacherConfig
from slimrl.config.train import ScheduleConfig
from slimrl.errors import UserError
from slimrl.io.secrets import has_secret, names_secret
from slimrl.io.urls import fault_of_base_url, is_loopback, is_variable_name

ADVICE = (
    "Remove it, or rename it if it is no key: a key goes into a variable of the environment, which `api_key_variable` "
    "beside a `base_url` names, and which an environment of yours reads by itself"
)
KEY = re.compile(r"<([a-z_0-9.]+)(=?)>")


class ConfigError(UserError):
    """An error for an invalid combination of settings. `paths` are the paths of the settings. `load` adds the origin of
    each setting to the message."""

    def __init__(self, text: str, *keys: str) -> None:
        super().__init__(text)
        self.paths: tuple[Path, ...] = tuple(tuple(key.split(".")) for key in keys)


def check(config: CommandConfig) -> None:
    """Apply all rules of the command. Raise ConfigError for the first broken rule."""
    check_secrets(config.model_dump())
    for is_broken, fault in RULES[type(config)](config) if type(config) in RULES else ():
        if is_broken:
            raise error_of(fault, config)


def error_of(fault: str, config: Config) -> ConfigError:
    """Return the error for a fault. `<lr>` in the text becomes the setting's name, and `<lr=>` the name with the value.

    >>> from slimrl.config.train import OptimConfig
    >>> str(error_of("<lr=> is higher than <beta1>.", OptimConfig(lr=2.0)))
    'lr = 2.0 is higher than beta1.'
    """

    def spell(found: re.Match[str]) -> str:
        return f"{found[1]} = {json.dumps(attrgetter(found[1])(config), ensure_ascii=False)}" if found[2] else found[1]

    keys = dict.fromkeys(found[1] for found in KEY.finditer(fault))
    return ConfigError(KEY.sub(spell, fault), *keys)


def check_secrets(settings: dict[str, Any]) -> None:
    """Raise ConfigError if a setting has the name of a secret, looks like an API key, or is a URL that contains a key.
    The arguments of environments are checked, too. The message does not show the value."""
    for path, value in flatten(settings):
        if isinstance(value, str) and value and path != (SECRET,):
            name = next(key for key in reversed(path) if not key.isdecimal())  # items of a list have the list's name
            if found := _secret_in(name, value):
                key = ".".join(path)
                raise ConfigError(f"{key} has {found}. {ADVICE}.", key)


def _secret_in(name: str, text: str) -> str:
    if names_secret(name):
        return "the name of a secret, and would be written to files"
    if name.endswith("key_variable") and not is_variable_name(text):
        return "what is no name of a variable, such as TEACHER_API_KEY, and may be the key itself"
    if name == "base_url" and (fault := fault_of_base_url(text)):
        return fault
    return has_secret(text)


def _rl_rules(config: RLConfig) -> Rules:
    orchestrator, loss, teacher = config.orchestrator, config.trainer.loss, config.teacher
    group = orchestrator.rollouts_per_example
    yield from _model_rules(config.model)
    yield from _group_rules(orchestrator.batch_size, group, "orchestrator")
    yield from loss_rules(loss, group, "orchestrator.rollouts_per_example", config.has_teacher)
    yield from distillation_rules(loss, config.has_teacher)
    idle_gpus = config.teacher_gpu_ids and not config.has_teacher
    yield idle_gpus, "<teacher_gpu_ids=> cannot act with <teacher.type=>. Remove it, or name a teacher."
    if isinstance(teacher, TeacherConfig):
        yield from teacher_rules(config, teacher)
    yield from sampler_rules(config)
    yield from deployment_rules(config)
    yield from _schedule_rules(config.trainer.schedule, "trainer.schedule", config)
    yield from _schedule_rules(config.warmup.schedule, "warmup.schedule", config)
    yield from _length_rules(orchestrator.sampling.max_tokens, config.seq_len, "orchestrator.sampling.max_tokens")
    yield from _temperature_rules(config.eval.temperatures, "eval.temperatures")
    yield from monitor_rules(config)


def _probe_rules(config: ProbeConfig) -> Rules:
    yield from _rl_rules(config)
    yield (
        not config.has_teacher,
        "<teacher.type=> leaves nothing to probe: the policy is compared with its teacher. Name one in [teacher].",
    )
    why = "the probe trains nothing; model.name may be a run's warmup/weights/step_N, with which RL begins"
    yield from idle(config, why, "warmup.max_steps")
    yield config.resume, "<resume> cannot act: the probe has nothing to continue. Remove it."


def _trainer_rules(config: TrainerOnlyConfig) -> Rules:
    data, loss, made_up = config.data, config.trainer.loss, "made-up samples have made-up advantages"
    yield from _model_rules(config.model)
    yield from _group_rules(data.batch_size, data.rollouts_per_example, "data")
    yield from loss_rules(loss, data.rollouts_per_example, "data.rollouts_per_example")
    yield from distillation_rules(loss, teacher=False)
    yield from reward_rules(loss, made_up)
    has_entropy = loss.overrides().get("student_tau", 0.0) > 0
    yield has_entropy, f"<trainer.loss.student_tau> cannot act: {made_up}. Remove it."
    yield from _schedule_rules(config.trainer.schedule, "trainer.schedule", config)
    length = data.prompt_len + data.completion_len
    yield (
        length > config.seq_len,
        f"<data.prompt_len> + <data.completion_len> = {length} tokens do not fit in <seq_len=>.",
    )


def _sft_rules(config: SFTConfig) -> Rules:
    yield from _model_rules(config.model)
    yield from _schedule_rules(config.schedule, "schedule", config)
    match config.data:
        case ExpertDataConfig(env=env):
            yield env.name, "<data.env.name=> cannot act: there is one environment. Remove it."
        case FileDataConfig(val_path=own):
            yield from idle(config, "<data.val_path> is validated on", "data.val_fraction", when=own)
        case HubDataConfig(val_split=own):
            yield from idle(config, "<data.val_split> is validated on", "data.val_fraction", when=own)


def _eval_rules(config: EvalRunConfig) -> Rules:
    yield from _model_rules(config.model, is_trained=False)
    elsewhere = (f"inference.{name}" for name in ("backend", "base_url", "timeout_s", "port"))
    yield from idle(config, "`eval` samples in its own process", *elsewhere)
    yield from sampler_rules(config)
    yield from _length_rules(config.sampling.max_tokens, config.seq_len, "sampling.max_tokens")
    yield from _temperature_rules(config.temperatures, "temperatures")
    drawn = (f"sampling.{name}" for name in ("top_p", "top_k", "min_p"))
    why = "with <temperatures=> the likeliest token is always taken"
    yield from idle(config, why, *drawn, when=not any(config.temperatures))


def _serve_rules(config: ServeConfig) -> Rules:
    yield from _model_rules(config.model, is_trained=False)
    yield (
        not config.api_key and not is_loopback(config.host),
        "<host=> can be reached from other machines, and without an <api_key> everyone there could use the server and "
        "replace its weights. Set the variable SLIMRL_API_KEY, or leave host at 127.0.0.1.",
    )


def _model_rules(model: ModelConfig, is_trained: bool = True) -> Rules:
    """Yield the rules about the device and the date, and against LoRA if the model is not trained (`is_trained`)."""
    is_device = re.fullmatch(r"auto|cpu|cuda(:\d+)?", model.device)
    yield not is_device, "<model.device=> is no device, expected auto, cpu, cuda or cuda:NUMBER."
    no_date = model.date != "auto" and not _is_date(model.date)
    yield no_date, "<model.date=> is no date, expected auto or YEAR-MONTH-DAY, as in 2026-01-31."
    yield (
        model.lora.rank > 0 and not is_trained,
        "<model.lora.rank=> cannot act, because this command trains nothing. Remove it: saved weights have their "
        "adapters merged, and model.name may be an adapter's directory.",
    )


def _is_date(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def _group_rules(batch_size: int, rollouts_per_example: int, section: str) -> Rules:
    """Yield the rule that a batch consists of whole groups. Both sizes are settings in `section`."""
    lower = batch_size // rollouts_per_example * rollouts_per_example
    sizes = f"{lower} or {lower + rollouts_per_example}" if lower else f"{rollouts_per_example}"
    yield (
        lower != batch_size,
        f"<{section}.batch_size=> is not a multiple of <{section}.rollouts_per_example=>: the last group would be "
        f"incomplete. Set batch_size to {sizes}.",
    )


def _schedule_rules(schedule: ScheduleConfig, section: str, config: Config) -> Rules:
    why = f'<{section}.type> "constant" never falls'
    yield from idle(config, why, f"{section}.min_lr_ratio", when=schedule.type == "constant")


def _length_rules(max_tokens: int, seq_len: int, key: str) -> Rules:
    """Yield the rule that a reply's limit, `max_tokens`, is below `seq_len`. `key` is the full name of `max_tokens`."""
    yield max_tokens >= seq_len, f"<{key}=> leaves no room for a prompt in <seq_len=>. Raise seq_len or lower {key}."


def _temperature_rules(temperatures: list[float], key: str) -> Rules:
    is_double = len({f"{temperature:g}" for temperature in temperatures}) != len(temperatures)  # as in metrics' names
    yield is_double, f"<{key}=> names a temperature twice; the results would be one metric."


RULES: dict[type[CommandConfig], Callable[[Any], Rules]] = {
    RLConfig: _rl_rules,
    ProbeConfig: _probe_rules,
    TrainerOnlyConfig: _trainer_rules,
    SFTConfig: _sft_rules,
    EvalRunConfig: _eval_rules,
    ServeConfig: _serve_rules,
}
