"""Rules of the commands that train, `rl`, `trainer` and `sft`, and of `probe`, which reads the file of `rl`."""

from slimrl.config.checks.deployment import deployment_faults, sampler_faults
from slimrl.config.checks.faults import Faults, idle
from slimrl.config.checks.loss import distillation_faults, find_reward_faults, loss_faults
from slimrl.config.checks.monitors import monitor_faults
from slimrl.config.checks.sections import group_faults, length_faults, model_faults, schedule_faults, temperature_faults
from slimrl.config.checks.teacher import teacher_faults
from slimrl.config.data import ExpertDataConfig, FileDataConfig, HubDataConfig
from slimrl.config.run import ProbeConfig, RLConfig, SFTConfig, TrainerOnlyConfig


def rl_faults(config: RLConfig) -> Faults:
    """Yield the broken rules of `rl`."""
    orchestrator, trainer = config.orchestrator, config.trainer
    group = orchestrator.rollouts_per_example
    yield from model_faults(config.model)
    yield from group_faults(orchestrator.batch_size, group, "orchestrator")
    yield from loss_faults(trainer.loss, group, "orchestrator.rollouts_per_example", config.has_teacher)
    yield from teacher_faults(config)
    yield from sampler_faults(config.inference)
    yield from deployment_faults(config)
    yield from schedule_faults(trainer.schedule, "trainer.schedule")
    yield from schedule_faults(config.warmup.schedule, "warmup.schedule")
    yield from length_faults(orchestrator.sampling.max_tokens, config.seq_len, "orchestrator.sampling.max_tokens")
    yield from temperature_faults(config.eval.temperatures, "eval.temperatures")
    yield from monitor_faults(config)


def probe_faults(config: ProbeConfig) -> Faults:
    """Yield the broken rules of `probe`, which has a teacher and trains nothing."""
    yield from rl_faults(config)
    if not config.has_teacher:
        yield "<teacher.type=> leaves nothing to probe: the policy is compared with its teacher. Name one in [teacher]."
    why = "the probe trains nothing; model.name may be a run's warmup/weights/step_N, with which RL begins"
    yield from idle(config.warmup, "warmup", ["max_steps"], why)
    if config.resume:
        yield "<resume> cannot act: the probe has nothing to continue. Remove it."


def trainer_faults(config: TrainerOnlyConfig) -> Faults:
    """Yield the broken rules of `trainer`, whose made-up samples need no reward."""
    data, loss, made_up = config.data, config.trainer.loss, "made-up samples have made-up advantages"
    yield from model_faults(config.model)
    yield from group_faults(data.batch_size, data.rollouts_per_example, "data")
    yield from loss_faults(loss, data.rollouts_per_example, "data.rollouts_per_example")
    yield from distillation_faults(loss, teacher=False)
    yield from find_reward_faults(loss, made_up)
    if loss.overrides().get("student_tau", 0.0) > 0:
        yield f"<trainer.loss.student_tau> cannot act: {made_up}. Remove it."
    yield from schedule_faults(config.trainer.schedule, "trainer.schedule")
    length = data.prompt_len + data.completion_len
    if length > config.seq_len:
        yield f"<data.prompt_len> + <data.completion_len> = {length} tokens do not fit in <seq_len=>."


def sft_faults(config: SFTConfig) -> Faults:
    """Yield the broken rules of `sft`: a single environment needs no name; validation data are set only once."""
    yield from model_faults(config.model)
    yield from schedule_faults(config.schedule, "schedule")
    match config.data:
        case ExpertDataConfig(env=env) if env.name:
            yield "<data.env.name=> cannot act: there is one environment. Remove it."
        case FileDataConfig(val_path=own) | HubDataConfig(val_split=own) if own:
            why = f"<data.{'val_path' if isinstance(config.data, FileDataConfig) else 'val_split'}> is validated on"
            yield from idle(config.data, "data", ["val_fraction"], why)
