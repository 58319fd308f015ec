"""Rules about `[trainer.loss]`: hyperparameters that cannot act, and parts of a loss that do not go together."""

from slimrl.config.checks.error import ConfigError
from slimrl.config.loss import ADVANTAGES, CREDITS, POLICIES, LossConfig, ResolvedLoss


def check_hyperparameters(loss: LossConfig, resolved: ResolvedLoss) -> None:
    """Refuses a hyperparameter that none of the chosen parts uses. Raises ConfigError."""
    parts = (
        ("advantage", resolved.advantage, ADVANTAGES),
        ("policy", resolved.policy, POLICIES),
        ("credit", resolved.credit, CREDITS),
    )
    used = {name for _, chosen, table in parts for name in table[chosen]}
    for name in loss.overrides().keys() - used:
        owners = [(part, chosen, [key for key in table if name in table[key]]) for part, chosen, table in parts]
        if found := [(part, chosen, keys) for part, chosen, keys in owners if keys]:
            acts_with = ", or ".join(f"the {part} {' or '.join(keys)}" for part, _, keys in found)
            here = " and ".join(f'the {part} is here "{chosen}"' for part, chosen, _ in found)
            raise ConfigError(
                f"trainer.loss.{name} cannot act: it is for {acts_with}, and with trainer.loss.type = "
                f'"{loss.type}" {here}. Remove it, or choose another loss.',
                f"trainer.loss.{name}",
                "trainer.loss.type",
                *(f"trainer.loss.{part}" for part, _, _ in found),
            )


def check_loss(loss: LossConfig, rollouts_per_example: int, group_key: str, teacher: bool = False) -> None:
    """Refuses hyperparameters that cannot act, parts that do not go together, and a group too small for its baseline.
    Raises ConfigError, which names `group_key` where the size of the group is the mistake."""
    resolved = loss.resolve(teacher)
    check_hyperparameters(loss, resolved)
    whole_episode = {
        "gae": "a value head credits every token by itself",
        "rae": "the running mean is of what whole episodes earned",
    }
    if resolved.advantage in whole_episode and resolved.credit != "episode":
        raise ConfigError(
            f'trainer.loss.credit = "{resolved.credit}" cannot act: with advantage "{resolved.advantage}" '
            f"{whole_episode[resolved.advantage]}. Remove one of the two.",
            "trainer.loss.credit",
            "trainer.loss.advantage",
        )
    if 0 < resolved.dual_clip <= 1:
        raise ConfigError(
            f"trainer.loss.dual_clip = {resolved.dual_clip:g} would stop the gradient of all bad tokens: it bounds "
            "their ratio, which begins at 1. Set it above 1, such as 3, or to 0 for none.",
            "trainer.loss.dual_clip",
        )
    if resolved.is_group_relative and rollouts_per_example < 2:
        raise ConfigError(
            f'trainer.loss.type = "{loss.type}" compares the rollouts of a group, and a group of 1 has nothing to be '
            f'compared with: every advantage would be 0. Set {group_key} to 2 or more, or use type "reinforce".',
            "trainer.loss.type",
            group_key,
        )


def check_taus(loss: LossConfig, teacher: bool) -> None:
    """Refuses weights of distillation that weigh nothing. Raises ConfigError."""
    given, resolved = loss.overrides(), loss.resolve(teacher)
    if not teacher and "teacher_tau" in given:
        raise ConfigError(
            'trainer.loss.teacher_tau cannot act without a teacher. Remove it, or set teacher.type to "policy", '
            '"model" or "server".',
            "trainer.loss.teacher_tau",
            "teacher.type",
        )
    if not teacher and resolved.adv_tau == 0 and resolved.student_tau == 0:
        raise ConfigError(
            "trainer.loss.adv_tau = 0 leaves nothing to learn from: without a teacher there is the reward alone. "
            "Raise it, or name a teacher.",
            "trainer.loss.adv_tau",
            "teacher.type",
        )
    if resolved.has_critic and "adv_tau" in given:
        raise ConfigError(
            'trainer.loss.adv_tau cannot act with trainer.loss.advantage "gae": a value head makes the advantages. '
            "Remove it, or take another advantage.",
            "trainer.loss.adv_tau",
            "trainer.loss.advantage",
        )
    if teacher and resolved.teacher_tau == 0:
        raise ConfigError(
            "trainer.loss.teacher_tau = 0 asks the teacher in vain: nothing of what it says would count. Raise it, or "
            'set teacher.type to "none".',
            "trainer.loss.teacher_tau",
            "teacher.type",
        )
    if resolved.has_critic and (teacher or resolved.student_tau > 0):
        name = "teacher.type" if teacher else "trainer.loss.student_tau"
        raise ConfigError(
            f'{name} does not go with trainer.loss.advantage "gae": a value head makes the advantages of tokens from '
            "what they earned, and there is nothing to add a log-probability to. Take another advantage.",
            name,
            "trainer.loss.advantage",
        )


def check_rewards_count(loss: LossConfig, why: str, *keys: str) -> None:
    """Refuses settings of how rewards become advantages where no reward is used, for the reason `why`. Raises
    ConfigError."""
    resolved, replaced = loss.resolve(), loss.overrides()
    given = [name for name in ("advantage", "credit") if getattr(loss, name) not in ("preset", "episode")]
    given += [name for name in (*ADVANTAGES[resolved.advantage], *CREDITS[resolved.credit]) if name in replaced]
    if given and not resolved.has_critic:
        raise ConfigError(f"trainer.loss.{given[0]} cannot act: {why}. Remove it.", f"trainer.loss.{given[0]}", *keys)
