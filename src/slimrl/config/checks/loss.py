"""Rules about `[trainer.loss]`: hyperparameters without effect, and parts of a loss that conflict."""

from slimrl.config.checks.faults import Faults
from slimrl.config.loss import ADVANTAGES, CREDITS, OWN, POLICIES, LossConfig, ResolvedLoss

WHOLE_EPISODE = {
    "gae": "a value head credits every token by itself",
    "rae": "the running mean is of what whole episodes earned",
}


def loss_faults(loss: LossConfig, rollouts_per_example: int, group_key: str, teacher: bool = False) -> Faults:
    """Yield a fault for each hyperparameter without effect, for conflicting parts, and for a group that is too small
    for its baseline. The setting `group_key` is the size of a group."""
    resolved = loss.resolve(teacher)
    yield from _hyperparameter_faults(loss, resolved)
    for part in OWN:
        if vars(loss)[f"{part}_args"] and ":" not in vars(loss)[part]:
            yield (
                f"<trainer.loss.{part}_args> cannot act: these are the arguments of a function of your own. Remove "
                f"them, or name it in <trainer.loss.{part}=> as `path/to/file.py:function`."
            )
    if resolved.advantage in WHOLE_EPISODE and resolved.credit != "episode":
        why = f'with <trainer.loss.advantage> "{resolved.advantage}" {WHOLE_EPISODE[resolved.advantage]}'
        yield f"<trainer.loss.credit=> cannot act: {why}. Remove one of the two."
    if resolved.policy == "clip" and 0 < resolved.policy_args["dual_clip"] <= 1:
        yield (
            "<trainer.loss.dual_clip=> would stop the gradient of all bad tokens: it bounds their ratio, which begins "
            "at 1. Set it above 1, such as 3, or to 0 for none."
        )
    if resolved.is_group_relative and rollouts_per_example < 2:
        yield (
            "<trainer.loss.type=> compares the rollouts of a group, and a group of 1 has nothing to be compared with: "
            f'every advantage would be 0. Set <{group_key}> to 2 or more, or use type "reinforce".'
        )


def _hyperparameter_faults(loss: LossConfig, resolved: ResolvedLoss) -> Faults:
    """Yield a fault for each hyperparameter that none of the chosen parts uses."""
    parts = (
        ("advantage", resolved.advantage, ADVANTAGES),
        ("policy", resolved.policy, POLICIES),
        ("credit", resolved.credit, CREDITS),
    )
    used = {name for _, chosen, table in parts for name in table.get(chosen, {})}
    for name in loss.overrides().keys() - used:
        owners = [(part, chosen, [key for key in table if name in table[key]]) for part, chosen, table in parts]
        if found := [(part, chosen, keys) for part, chosen, keys in owners if keys]:
            acts_with = ", or ".join(f"the {part} {' or '.join(keys)}" for part, _, keys in found)
            here = " and ".join(f'<trainer.loss.{part}> is here "{chosen}"' for part, chosen, _ in found)
            why = f"it is for {acts_with}, and with <trainer.loss.type=> {here}"
            yield f"<trainer.loss.{name}> cannot act: {why}. Remove it, or choose another loss."


def distillation_faults(loss: LossConfig, teacher: bool) -> Faults:
    """Yield a fault for each weight (`adv_tau`, `teacher_tau`) that has no effect, leaves nothing to learn from, or
    cannot be combined with the advantage "gae"."""
    given, resolved = loss.overrides(), loss.resolve(teacher)
    if not teacher and "teacher_tau" in given:
        yield "<trainer.loss.teacher_tau> cannot act without a teacher. Remove it, or choose a <teacher.type>."
    if not teacher and resolved.adv_tau == 0 and resolved.student_tau == 0:
        yield "<trainer.loss.adv_tau=> leaves nothing to learn from without a <teacher.type>. Raise it, or set that."
    if teacher and resolved.teacher_tau == 0:
        yield '<trainer.loss.teacher_tau=> asks the teacher in vain. Raise it, or set <teacher.type> to "none".'
    if resolved.has_critic:
        name = "teacher.type" if teacher else "trainer.loss.student_tau" if resolved.student_tau > 0 else ""
        if "adv_tau" in given or name:
            yield (
                f'<{name or "trainer.loss.adv_tau"}> does not go with <trainer.loss.advantage> "gae", whose value '
                "head makes the advantages of tokens. Take another advantage, or remove the first."
            )


def find_reward_faults(loss: LossConfig, why: str) -> Faults:
    """Yield a fault for each changed setting about turning rewards into advantages. Rewards are not used, for the
    reason `why`."""
    resolved, replaced = loss.resolve(), loss.overrides()
    given = [name for name in ("advantage", "credit") if getattr(loss, name) not in ("preset", "episode")]
    given += [name for name in (*ADVANTAGES.get(resolved.advantage, {}), *CREDITS[resolved.credit]) if name in replaced]
    for name in given if not resolved.has_critic else ():
        yield f"<trainer.loss.{name}> cannot act: {why}. Remove it."
