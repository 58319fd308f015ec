"""The rules of an RL run about its loss, teacher, sampler, processes and monitors.

A rule is a pair: a condition that is true if the configuration breaks the rule, and the text of the fault. In this
text, `<seq_len>` becomes the full name of a setting, and `<seq_len=>` the name with the value.
"""

from collections.abc import Iterator, Sequence
from operator import attrgetter
from urllib.parse import urlsplit

from slimrl.config.base import Config
from slimrl.config.deployment import DeploymentConfig
from slimrl.config.loss import ADVANTAGES, CREDITS, OWN, POLICIES, LossConfig, ResolvedLoss
from slimrl.config.monitors import BOUNDS
from slimrl.config.run import EvalRunConfig, RLConfig
from slimrl.config.teacher import PolicyTeacherConfig, ServerTeacherConfig, TeacherConfig
from slimrl.io.urls import is_http_url

Rules = Iterator[tuple[object, str]]
"""Conditions, and the text of the fault if a condition is true."""

# Settings that have an effect only if the parts are processes.
OF_PROCESSES = (
    *(f"deployment.{name}" for name in DeploymentConfig.model_fields if name != "type"),
    *(f"inference.{name}" for name in ("api_key_variable", "vllm_program", "port", "timeout_s")),
)
GPUS = ("trainer_gpu_ids", "inference_gpu_ids", "teacher_gpu_ids")
WHOLE_EPISODE = {
    "gae": "a value head credits every token by itself",
    "rae": "the running mean is of what whole episodes earned",
}


def find_changed(config: Config, keys: Sequence[str]) -> list[str]:
    """Return each full name in `keys` whose setting differs from its default."""
    found = []
    for key in keys:
        above, _, name = key.rpartition(".")
        section = attrgetter(above)(config) if above else config
        if vars(section)[name] != type(section).model_fields[name].default:
            found.append(key)
    return found


def idle(config: Config, why: str, *keys: str, when: object = True) -> Rules:
    """Yield a rule against each changed setting in `keys`. It is broken if `when` is true: the setting then has no
    effect. `why` is the reason in the message."""
    mend = "Remove it, or change the other" if "<" in why else "Remove it"
    for key in find_changed(config, keys):
        yield when, f"<{key}=> cannot act: {why}. {mend}."


def loss_rules(loss: LossConfig, rollouts_per_example: int, group_key: str, teacher: bool = False) -> Rules:
    """Yield the rules about hyperparameters without effect, conflicting parts of a loss, and groups that are too small
    for a baseline. `group_key` is the full name of the group size."""
    resolved = loss.resolve(teacher)
    yield from _hyperparameter_rules(loss, resolved)
    for part in OWN:
        yield (
            vars(loss)[f"{part}_args"] and ":" not in vars(loss)[part],
            f"<trainer.loss.{part}_args> cannot act: these are the arguments of a function of your own. Remove them, "
            f"or name it in <trainer.loss.{part}=> as `path/to/file.py:function`.",
        )
    yield (
        resolved.advantage in WHOLE_EPISODE and resolved.credit != "episode",
        f'<trainer.loss.credit=> cannot act: with <trainer.loss.advantage> "{resolved.advantage}" '
        f"{WHOLE_EPISODE.get(resolved.advantage)}. Remove one of the two.",
    )
    yield (
        resolved.policy == "clip" and 0 < resolved.policy_args["dual_clip"] <= 1,
        "<trainer.loss.dual_clip=> would stop the gradient of all bad tokens: it bounds their ratio, which begins at "
        "1. Set it above 1, such as 3, or to 0 for none.",
    )
    yield (
        resolved.is_group_relative and rollouts_per_example < 2,
        "<trainer.loss.type=> compares the rollouts of a group, and a group of 1 has nothing to be compared with: "
        f'every advantage would be 0. Set <{group_key}> to 2 or more, or use type "reinforce".',
    )


def _hyperparameter_rules(loss: LossConfig, resolved: ResolvedLoss) -> Rules:
    """Yield a rule against each hyperparameter that none of the chosen parts of the loss uses."""
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
            yield True, f"<trainer.loss.{name}> cannot act: {why}. Remove it, or choose another loss."


def distillation_rules(loss: LossConfig, teacher: bool) -> Rules:
    """Yield the rules against a weight `adv_tau` or `teacher_tau` that has no effect, leaves nothing to learn from, or
    conflicts with the advantage "gae"."""
    given, resolved = loss.overrides(), loss.resolve(teacher)
    yield (
        not teacher and "teacher_tau" in given,
        "<trainer.loss.teacher_tau> cannot act without a teacher. Remove it, or choose a <teacher.type>.",
    )
    yield (
        not teacher and resolved.adv_tau == 0 and resolved.student_tau == 0,
        "<trainer.loss.adv_tau=> leaves nothing to learn from without a <teacher.type>. Raise it, or set that.",
    )
    yield (
        teacher and resolved.teacher_tau == 0,
        '<trainer.loss.teacher_tau=> asks the teacher in vain. Raise it, or set <teacher.type> to "none".',
    )
    name = "teacher.type" if teacher else "trainer.loss.student_tau" if resolved.student_tau > 0 else ""
    yield (
        resolved.has_critic and ("adv_tau" in given or name),
        f'<{name or "trainer.loss.adv_tau"}> does not go with <trainer.loss.advantage> "gae", whose value head makes '
        "the advantages of tokens. Take another advantage, or remove the first.",
    )


def reward_rules(loss: LossConfig, why: str) -> Rules:
    """Yield rules against changed settings for computing advantages from rewards. Call this if rewards are not used.
    `why` is the reason in the message."""
    resolved, replaced = loss.resolve(), loss.overrides()
    given = [name for name in ("advantage", "credit") if vars(loss)[name] not in ("preset", "episode")]
    given += [name for name in (*ADVANTAGES.get(resolved.advantage, {}), *CREDITS[resolved.credit]) if name in replaced]
    for name in given:
        yield not resolved.has_critic, f"<trainer.loss.{name}> cannot act: {why}. Remove it."


def teacher_rules(config: RLConfig, teacher: TeacherConfig) -> Rules:
    """Yield the rules about a teacher that does not differ from the policy, and teacher settings without effect."""
    # A server samples one token after the rollout, so it needs room for this token. To drop long rollouts instead would
    # favour short replies.
    needed = config.seq_len + (1 if isinstance(teacher, ServerTeacherConfig) else 0)
    yield (
        teacher.seq_len < needed,
        "<teacher.seq_len=> cannot hold rollouts of <seq_len=> tokens: those would be played and then dropped. Set it "
        f"to {needed} and what the teacher's context adds, or lower seq_len.",
    )
    if config.trainer.loss.resolve(has_teacher=True).adv_tau == 0:
        yield from reward_rules(config.trainer.loss, "with <trainer.loss.adv_tau=> the teacher alone counts")
    match teacher:
        case PolicyTeacherConfig(env_args=more):
            yield (
                all({**env.args, **more} == env.args for env in config.orchestrator.env),
                "<teacher.type=> has nothing to teach: the same weights read the same, because <teacher.env_args=> "
                'changes no args of the environment. Give more context there, or take type "model" or "server".',
            )
        case ServerTeacherConfig(base_url=url):
            yield not is_http_url(url), "<teacher.base_url=>: expected an address as http://localhost:8000/v1."
            yield (
                config.orchestrator.sampling.temperature != 1.0,
                "<orchestrator.sampling.temperature=> does not go with <teacher.type=>: servers give the "
                "log-probabilities of a prompt at temperature 1 alone. Set it to 1.",
            )


def sampler_rules(config: RLConfig | EvalRunConfig) -> Rules:
    """Yield the rules about settings that the chosen sampler ignores, and about `base_url`."""
    url = config.inference.base_url
    yield (
        url and not (is_http_url(url) and urlsplit(url).path in ("", "/")),
        "<inference.base_url=>: expected an address as http://localhost:8000, without a path.",
    )
    if url:
        why = "the sampler at <inference.base_url> runs already, and it is set where that server is started"
        yield from idle(config, why, "inference.vllm_program", "inference.port")
    elif config.inference.backend == "vllm":
        yield from idle(config, "vLLM, as <inference.backend=>, has no key", "inference.api_key_variable")
    else:
        yield from idle(config, 'nothing but <inference.backend> "vllm" starts vLLM', "inference.vllm_program")


def deployment_rules(config: RLConfig) -> Rules:
    """Yield the rules about the processes of a run, and about a sampler that the run did not start."""
    deployment, url = config.deployment, config.inference.base_url
    if deployment.type == "one-process":
        yield from idle(config, "<deployment.type=> samples by itself", "inference.backend", "inference.base_url")
        for name in settings_of_processes(config):
            yield True, f"<{name}=> cannot act: <deployment.type=> has no other parts. Remove one of the two."
    if url:
        sampler = "the sampler at <inference.base_url=>"
        yield from idle(config, f"{sampler} may have other weights; warm up by `slimrl sft`", "warmup.max_steps")
        yield from idle(config, f"{sampler} has the device that it was started with", "inference_gpu_ids")
        yield from idle(
            config, f"{sampler} is one, by itself", "deployment.num_samplers", "deployment.gpus_per_sampler"
        )
    no_address = deployment.host in ("0.0.0.0", "::")
    yield no_address, "<deployment.host=> is no address that others can reach: set the one that they shall use."
    if deployment.type != "ray":
        of_ray = ("deployment.address", "deployment.cpus", "deployment.gpus_per_sampler")
        yield from idle(config, 'it is for <deployment.type> "ray"', *of_ray)
        return
    if config.inference.backend != "vllm":
        why = 'slimrl\'s own sampler has one GPU, and <inference.backend> "vllm" may have several'
        yield from idle(config, why, "deployment.gpus_per_sampler")
    numbers = "as many as deployment.num_samplers and num_trainers say"
    yield from idle(config, f"with <deployment.type=> each part has GPUs of its own, {numbers}", *GPUS)


def settings_of_processes(config: RLConfig) -> list[str]:
    """Return the changed settings that have an effect only if the parts are separate processes."""
    return find_changed(config, OF_PROCESSES)


def monitor_rules(config: RLConfig) -> Rules:
    """Yield the rules about bounds of monitors that are off. If all monitors are off, their settings are accepted, so
    that one flag can turn them off and on."""
    monitors = config.monitors
    if not monitors.enabled:
        return
    for key in find_changed(config, [f"monitors.{bound}" for bound in BOUNDS]):
        monitor = BOUNDS[key.removeprefix("monitors.")]
        fault = f'<{key}=> cannot act: its monitor "{monitor}" is in <monitors.off>. Remove either.'
        yield monitor in monitors.off, fault
