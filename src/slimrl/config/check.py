"""Rules that no section can check alone. Plain functions that raise and never change anything.

What cannot act is an error: a clip range for a loss that does not clip would be a silent mistake. A section that is
switched off (`wandb.enabled = false`, `warmup.max_steps = 0`) keeps its settings, so that one flag can switch it on.
"""

import re
from collections.abc import Iterable
from typing import Any

from slimrl.config.base import CommandConfig
from slimrl.config.data import FileDataConfig, HubDataConfig
from slimrl.config.loss import ADVANTAGES, CREDITS, POLICIES, LossChoices, LossConfig
from slimrl.config.model import ModelConfig
from slimrl.config.play import PlayConfig
from slimrl.config.run import EvalRunConfig, ProbeConfig, RLConfig, SFTConfig, TrainerOnlyConfig
from slimrl.config.schema import Path
from slimrl.config.serve import ServeConfig
from slimrl.config.teacher import ModelTeacherConfig, PolicyTeacherConfig, ServerTeacherConfig, TeacherConfig
from slimrl.config.train import ScheduleConfig
from slimrl.errors import UserError
from slimrl.hosts import has_password, is_address, is_loopback, is_variable


class Contradiction(UserError):
    """Settings that are valid one by one and not together; `paths` names them, for `load` to say where they stand."""

    def __init__(self, text: str, *keys: str) -> None:
        super().__init__(text)
        self.paths: tuple[Path, ...] = tuple(tuple(key.split(".")) for key in keys)


def check(config: CommandConfig) -> None:
    """Every rule of the command.

    Raises:
        Contradiction: the first rule that is broken.
    """
    check_addresses(config.model_dump())
    match config:
        case ProbeConfig():
            check_rl(config)
            check_probe(config)
        case RLConfig():
            check_rl(config)
        case TrainerOnlyConfig():
            check_trainer(config)
        case SFTConfig():
            check_sft(config)
        case EvalRunConfig():
            check_eval(config)
        case ServeConfig():
            check_serve(config)
        case PlayConfig():
            check_play(config)


def check_addresses(settings: Any, key: str = "") -> None:
    """No key in the address of a server, also not in what is passed on to an environment: it would stand in every file
    and message that names the address."""
    match settings:
        case dict():
            entries: Iterable[tuple[Any, Any]] = settings.items()
        case list():
            entries = enumerate(settings)
        case _:
            return
    for name, value in entries:
        place = f"{key}.{name}" if key else str(name)
        if name == "base_url" and isinstance(value, str) and has_password(value):  # it is not repeated
            raise Contradiction(
                f"{place} has a user or a password in it (`...@...`). Remove it: a key goes into the variable of the "
                "environment that `api_key_variable` beside it names.",
                place,
            )
        check_addresses(value, place)


def check_rl(config: RLConfig) -> None:
    check_model(config.model)
    check_async(config.max_async_level)
    group = config.orchestrator.rollouts_per_example
    check_groups(config.orchestrator.batch_size, group, "orchestrator")
    check_loss(config.trainer.loss, group, "orchestrator.rollouts_per_example", config.has_teacher)
    check_teacher(config)
    check_schedule(config.trainer.schedule, "trainer.schedule")
    check_schedule(config.warmup.schedule, "warmup.schedule")
    check_fits(config.orchestrator.sampling.max_tokens, config.seq_len, "orchestrator.sampling.max_tokens")
    check_micro_batch(config.trainer.micro_batch_tokens, config.seq_len, "trainer.micro_batch_tokens")
    check_temperatures(config.eval.temperatures, "eval.temperatures")


def check_trainer(config: TrainerOnlyConfig) -> None:
    check_model(config.model)
    check_groups(config.data.batch_size, config.data.rollouts_per_example, "data")
    check_loss(config.trainer.loss, config.data.rollouts_per_example, "data.rollouts_per_example")
    check_taus(config.trainer.loss, teacher=False)
    check_rewards_count(config.trainer.loss, "made-up samples have made-up advantages")
    if config.trainer.loss.numbers_set().get("student_tau", 0.0) > 0:
        raise Contradiction(
            "trainer.loss.student_tau cannot act: made-up samples have made-up advantages. Remove it.",
            "trainer.loss.student_tau",
        )
    check_schedule(config.trainer.schedule, "trainer.schedule")
    check_micro_batch(config.trainer.micro_batch_tokens, config.seq_len, "trainer.micro_batch_tokens")
    length = config.data.prompt_len + config.data.completion_len
    if length > config.seq_len:
        raise Contradiction(
            f"data.prompt_len + data.completion_len = {length} tokens do not fit in seq_len = {config.seq_len}.",
            "data.prompt_len",
            "data.completion_len",
            "seq_len",
        )


def check_sft(config: SFTConfig) -> None:
    check_model(config.model)
    check_schedule(config.schedule, "schedule")
    check_micro_batch(config.micro_batch_tokens, config.seq_len, "micro_batch_tokens")
    match config.data:
        case FileDataConfig(val_path=own) if own:
            check_held_out(config.data, "val_path")
        case HubDataConfig(val_split=own) if own:
            check_held_out(config.data, "val_split")


def check_held_out(data: FileDataConfig | HubDataConfig, own: str) -> None:
    if data.val_fraction != type(data).model_fields["val_fraction"].default:
        raise Contradiction(
            f"data.val_fraction cannot act, because data.{own} names what to validate on. Remove one of the two.",
            "data.val_fraction",
            f"data.{own}",
        )


def check_eval(config: EvalRunConfig) -> None:
    check_model(config.model)
    check_nothing_trained(config.model)
    check_fits(config.max_tokens, config.seq_len, "max_tokens")
    check_temperatures(config.temperatures, "temperatures")
    if any(config.temperatures):
        return
    for key, value, neutral in (("top_p", config.top_p, 1.0), ("top_k", config.top_k, 0), ("min_p", config.min_p, 0.0)):
        if value != neutral:
            raise Contradiction(
                f"{key} = {value} cannot act, because temperature 0 always takes the likeliest token. Remove it, or "
                "add a temperature above 0.",
                key,
                "temperatures",
            )


def check_serve(config: ServeConfig) -> None:
    check_model(config.model)
    check_nothing_trained(config.model)
    if not config.api_key and not is_loopback(config.host):
        raise Contradiction(
            f"host = {config.host} can be reached from other machines, and without an api_key everyone there could use "
            "the server and replace its weights. Set the variable SLIMRL_API_KEY, or leave host at 127.0.0.1.",
            "host",
            "api_key",
        )


def check_play(config: PlayConfig) -> None:
    """Settings of a model where none is named."""
    if config.model.name:
        check_model(config.model)
        check_nothing_trained(config.model)
        check_fits(config.sampling.max_tokens, config.seq_len, "sampling.max_tokens")
        return
    defaults = PlayConfig.model_fields
    given = [key for key in ("model", "sampling", "seq_len") if vars(config)[key] != defaults[key].default]
    if given:
        raise Contradiction(
            f"{' and '.join(given)} cannot act, because no model plays. Name one with model.name to seat it at the "
            "other side, or remove it.",
            *given,
        )


def check_model(model: ModelConfig) -> None:
    if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", model.device):
        raise Contradiction(
            f'model.device = "{model.device}" is no device, expected auto, cpu, cuda or cuda:NUMBER.',
            "model.device",
        )


def check_nothing_trained(model: ModelConfig) -> None:
    if model.lora.rank > 0:
        raise Contradiction(
            f"model.lora.rank = {model.lora.rank} cannot act, because this command trains nothing. Remove it: adapters "
            "are merged into the weights that a run saves, and model.name may be an adapter's directory.",
            "model.lora.rank",
        )


def check_async(max_async_level: int) -> None:
    if max_async_level != 0:
        raise Contradiction(
            f"max_async_level = {max_async_level}: asynchronous training is not in this version. Set it to 0: sampling "
            "and training take turns.",
            "max_async_level",
        )


def check_groups(batch_size: int, rollouts_per_example: int, section: str) -> None:
    if batch_size % rollouts_per_example != 0:
        lower = batch_size // rollouts_per_example * rollouts_per_example
        sizes = f"{lower} or {lower + rollouts_per_example}" if lower else f"{rollouts_per_example}"
        raise Contradiction(
            f"{section}.batch_size = {batch_size} is not a multiple of {section}.rollouts_per_example = "
            f"{rollouts_per_example}, so the last group would be incomplete. Set batch_size to {sizes}.",
            f"{section}.batch_size",
            f"{section}.rollouts_per_example",
        )


def check_numbers(loss: LossConfig, choices: LossChoices) -> None:
    """A number that none of the chosen parts uses."""
    parts = (
        ("advantage", choices.advantage, ADVANTAGES),
        ("policy", choices.policy, POLICIES),
        ("credit", choices.credit, CREDITS),
    )
    used = {name for _, chosen, table in parts for name in table[chosen]}
    for name in loss.numbers_set().keys() - used:
        owners = [(part, chosen, [key for key in table if name in table[key]]) for part, chosen, table in parts]
        if found := [(part, chosen, keys) for part, chosen, keys in owners if keys]:
            acts_with = ", or ".join(f"the {part} {' or '.join(keys)}" for part, _, keys in found)
            here = " and ".join(f'the {part} is here "{chosen}"' for part, chosen, _ in found)
            raise Contradiction(
                f"trainer.loss.{name} cannot act: it is for {acts_with}, and with trainer.loss.type = "
                f'"{loss.type}" {here}. Remove it, or choose another loss.',
                f"trainer.loss.{name}",
                "trainer.loss.type",
                *(f"trainer.loss.{part}" for part, _, _ in found),
            )


def check_loss(loss: LossConfig, rollouts_per_example: int, group_key: str, teacher: bool = False) -> None:
    """Numbers that cannot act, parts that do not go together, or a group too small for its baseline."""
    choices = loss.choices(teacher)
    check_numbers(loss, choices)
    whole = {
        "gae": "a value head credits every token by itself",
        "rae": "the running mean is of what whole episodes earned",
    }
    if choices.advantage in whole and choices.credit != "episode":
        raise Contradiction(
            f'trainer.loss.credit = "{choices.credit}" cannot act: with advantage "{choices.advantage}" '
            f"{whole[choices.advantage]}. Remove one of the two.",
            "trainer.loss.credit",
            "trainer.loss.advantage",
        )
    if 0 < choices.dual_clip <= 1:
        raise Contradiction(
            f"trainer.loss.dual_clip = {choices.dual_clip:g} would stop the gradient of all bad tokens: it bounds "
            "their ratio, which begins at 1. Set it above 1, such as 3, or to 0 for none.",
            "trainer.loss.dual_clip",
        )
    if choices.compares and rollouts_per_example < 2:
        raise Contradiction(
            f'trainer.loss.type = "{loss.type}" compares the rollouts of a group, and a group of 1 has nothing to be '
            f'compared with: every advantage would be 0. Set {group_key} to 2 or more, or use type "reinforce".',
            "trainer.loss.type",
            group_key,
        )


def check_teacher(config: RLConfig) -> None:
    """A teacher that has nothing to say, or that cannot be heard."""
    check_taus(config.trainer.loss, config.has_teacher)
    if config.teacher_gpu_ids:
        check_teacher_gpu(config)
    if isinstance(config.teacher, TeacherConfig):
        check_teacher_reads(config.seq_len, config.teacher)
        if config.trainer.loss.choices(has_teacher=True).adv_tau == 0:
            why = "with trainer.loss.adv_tau = 0 the teacher alone counts"
            check_rewards_count(config.trainer.loss, why, "trainer.loss.adv_tau")
    match config.teacher:
        case ModelTeacherConfig(device=device) if not re.fullmatch(r"policy|cpu|cuda(:\d+)?", device):
            raise Contradiction(
                f'teacher.device = "{device}" is no device, expected policy, cpu, cuda or cuda:NUMBER.',
                "teacher.device",
            )
        case PolicyTeacherConfig(env_args=more):
            if all({**env.args, **more} == env.args for env in config.orchestrator.env):
                raise Contradiction(
                    'teacher.type = "policy" has nothing to teach: the same weights read the same, because '
                    "teacher.env_args change no args of the environment. Give it more context there, or another model "
                    'with type "model" or "server".',
                    "teacher.type",
                    "teacher.env_args",
                )
        case ServerTeacherConfig() as server:
            check_teacher_server(server, config.orchestrator.sampling.temperature)


def check_teacher_server(server: ServerTeacherConfig, temperature: float) -> None:
    if not is_address(server.base_url):
        raise Contradiction(
            f"teacher.base_url must be as http://localhost:8000/v1, not {server.base_url!r}.", "teacher.base_url"
        )
    if not is_variable(server.api_key_variable):  # what stands there may be the key: it is not repeated
        raise Contradiction(
            "teacher.api_key_variable is no name of a variable. It names the variable of the environment in which the "
            "key is, such as TEACHER_API_KEY; a key itself belongs in no file and on no command line.",
            "teacher.api_key_variable",
        )
    if temperature != 1.0:
        raise Contradiction(
            f"orchestrator.sampling.temperature = {temperature:g} does not go with "
            'teacher.type = "server": servers give the log-probabilities of a prompt at temperature 1 alone, and '
            "the two must be of the same one. Set it to 1.",
            "orchestrator.sampling.temperature",
            "teacher.type",
        )


def check_teacher_reads(seq_len: int, teacher: TeacherConfig) -> None:
    """Rollouts that the teacher cannot read are dropped, the longest ones always, which would favour short replies."""
    needed = seq_len + (1 if isinstance(teacher, ServerTeacherConfig) else 0)  # servers sample a token more
    if teacher.seq_len < needed:
        raise Contradiction(
            f"teacher.seq_len = {teacher.seq_len} cannot hold rollouts of seq_len = {seq_len} tokens: those would be "
            f"played and then dropped. Set it to {needed} and what the teacher's context adds, or lower seq_len.",
            "teacher.seq_len",
            "seq_len",
        )


def check_probe(config: ProbeConfig) -> None:
    if not config.has_teacher:
        raise Contradiction(
            'teacher.type = "none" leaves nothing to probe: the probe compares the policy with its teacher. Name one '
            "in [teacher].",
            "teacher.type",
        )
    if config.warmup.max_steps:
        raise Contradiction(
            f"warmup.max_steps = {config.warmup.max_steps}: the probe trains nothing. For the base model set it to 0; "
            "for the weights that RL would begin with, also set model.name to a run's warmup/weights/step_"
            f"{config.warmup.max_steps}.",
            "warmup.max_steps",
        )
    if config.resume:
        raise Contradiction("resume cannot act: the probe has nothing to continue. Remove it.", "resume")


def check_teacher_gpu(config: RLConfig) -> None:
    ids = config.teacher_gpu_ids
    if len(ids) > 1:
        raise Contradiction(
            f"teacher_gpu_ids = {ids}: a teacher in this process has one GPU in this version. For a larger one start "
            'a server on these GPUs, and use teacher.type = "server".',
            "teacher_gpu_ids",
        )
    if not isinstance(config.teacher, ModelTeacherConfig):
        raise Contradiction(
            f'teacher_gpu_ids = {ids} cannot act with teacher.type = "{config.teacher.type}": only a teacher of type '
            '"model" is put somewhere. Remove it.',
            "teacher_gpu_ids",
            "teacher.type",
        )
    if config.teacher.device != "policy":
        raise Contradiction(
            f'teacher_gpu_ids = {ids} and teacher.device = "{config.teacher.device}" say the same thing twice. Remove '
            "one of the two.",
            "teacher_gpu_ids",
            "teacher.device",
        )


def check_taus(loss: LossConfig, teacher: bool) -> None:
    """Weights of distillation that weigh nothing."""
    given, choices = loss.numbers_set(), loss.choices(teacher)
    if not teacher:
        for name in ("adv_tau", "teacher_tau"):
            if name in given:
                raise Contradiction(
                    f'trainer.loss.{name} cannot act without a teacher. Remove it, or set teacher.type to "policy", '
                    '"model" or "server".',
                    f"trainer.loss.{name}",
                    "teacher.type",
                )
    if teacher and choices.teacher_tau == 0:
        raise Contradiction(
            "trainer.loss.teacher_tau = 0 asks the teacher in vain: nothing of what it says would count. Raise it, or "
            'set teacher.type to "none".',
            "trainer.loss.teacher_tau",
            "teacher.type",
        )
    if choices.has_critic and (teacher or choices.student_tau > 0):
        name = "teacher.type" if teacher else "trainer.loss.student_tau"
        raise Contradiction(
            f'{name} does not go with trainer.loss.advantage "gae": a value head makes the advantages of tokens from '
            "what they earned, and there is nothing to add a log-probability to. Take another advantage.",
            name,
            "trainer.loss.advantage",
        )


def check_rewards_count(loss: LossConfig, why: str, *keys: str) -> None:
    """Settings of how rewards become advantages, where no reward does."""
    choices, replaced = loss.choices(), loss.numbers_set()
    given = [name for name in ("advantage", "credit") if getattr(loss, name) not in ("preset", "episode")]
    given += [name for name in (*ADVANTAGES[choices.advantage], *CREDITS[choices.credit]) if name in replaced]
    if given and not choices.has_critic:
        raise Contradiction(f"trainer.loss.{given[0]} cannot act: {why}. Remove it.", f"trainer.loss.{given[0]}", *keys)


def check_schedule(schedule: ScheduleConfig, section: str) -> None:
    if schedule.type == "constant" and schedule.min_lr_ratio != 0.0:
        raise Contradiction(
            f'{section}.min_lr_ratio = {schedule.min_lr_ratio} cannot act, because {section}.type = "constant" never '
            'falls. Remove it, or use type "linear" or "cosine".',
            f"{section}.min_lr_ratio",
            f"{section}.type",
        )


def check_fits(max_tokens: int, seq_len: int, key: str) -> None:
    if max_tokens >= seq_len:
        raise Contradiction(
            f"{key} = {max_tokens} leaves no room for a prompt in seq_len = {seq_len}. Raise seq_len or lower {key}.",
            key,
            "seq_len",
        )


def check_micro_batch(micro_batch_tokens: int, seq_len: int, key: str) -> None:
    if micro_batch_tokens < seq_len:
        raise Contradiction(
            f"{key} = {micro_batch_tokens} cannot hold a sequence of seq_len = {seq_len} tokens, and a sequence is "
            f"never split. Raise {key} to {seq_len} or more.",
            key,
            "seq_len",
        )


def check_temperatures(temperatures: list[float], key: str) -> None:
    if len(set(temperatures)) != len(temperatures):
        raise Contradiction(f"{key} = {temperatures} names a temperature twice; the results would be one metric.", key)
