"""The keys of prime-rl's files for `rl`, in all three dialects, and what becomes of each.

The names come from prime-rl's published settings classes and examples, up to August 2026, and from the documentation of
the hosted `prime train`. A key that stands nowhere here, and is no key of slimrl's, cannot be done.
"""

from slimrl_tools.prime_rl.rules import (
    Found,
    Impossible,
    NotNeeded,
    Outcome,
    Renamed,
    Rule,
    Table,
    impossible,
    only,
    to,
    unneeded,
)
from slimrl_tools.prime_rl.shared_keys import (
    CKPT,
    COMPUTE,
    DEPLOYMENT,
    LOGS,
    LORA,
    WANDB,
    optim,
    schedule,
    under,
)
from slimrl_tools.prime_rl.values import (
    at_least_one,
    environment_id,
    of_a_training_environment,
    only_item,
    same_as,
    unless_set,
)

ENGINE = unneeded("the engine is slimrl's own, in the same process; inference.max_slots is its size")
# Named one by one, because slimrl has a section of this name too, in which a misspelt key must not pass.
ENGINE_KEYS = (
    *("model.**", "vllm.**", "vllm_extra.**", "parallel.**", "server.**", "weight_broadcast.**", "deployment.**"),
    *("gpu_memory_utilization", "enable_lora", "max_loras", "max_cpu_loras", "max_lora_rank", "seed", "log.**"),
    *("enable_prefix_caching", "api_server_count", "enable_expert_parallel", "enable_eplb", "all2all_backend"),
    *("use_deep_gemm", "reasoning_parser", "kv_cache_dtype", "output_dir", "slurm.**", "env_vars.**", "dry_run"),
)
ONE_PROCESS = unneeded("everything is one process here")
LABEL = "a label of metrics"


def _harness(found: Found) -> Outcome:
    if found.value in ("null", "default"):
        return NotNeeded("slimrl has one agent loop")
    return Impossible(f"slimrl has one agent loop, and no harness `{found.value}`")


def _filtering(found: Found) -> Outcome:
    """Whether groups without a signal are replaced."""
    if found.value is False:
        return Renamed(("orchestrator", "resample_factor"), 1, "groups without a signal are not replaced")
    return NotNeeded("groups without a signal are replaced anyway, up to orchestrator.resample_factor")


def _temperature(found: Found) -> Outcome:
    temperature = float(found.value)
    return Renamed(("eval", "temperatures"), [temperature], "held-out tasks are tried at this temperature alone")


def _eval_environment(found: Found) -> Outcome:
    if of_a_training_environment(found.value, found.file):
        return NotNeeded("held-out tasks of the environments that are trained on are evaluated anyway")
    return Impossible(
        "`rl` evaluates on held-out tasks of its own environments alone; evaluate others with `slimrl eval`"
    )


def _reply_length(prefix: str) -> Rule:
    """A rule for the length of a reply in evaluations, which is that of training here."""
    ours = ("sampling.max_tokens", "orchestrator.sampling.max_tokens", "orchestrator.sampling.max_completion_tokens")
    return same_as(
        *(*ours, "orchestrator.train.sampling.max_completion_tokens", "orchestrator.train.sampling.max_tokens"),
        why="held-out replies may be as long as those of training here",
        otherwise=f"held-out replies may be as long as those of training here: remove {prefix}, or evaluate with "
        "`slimrl eval --sampling.max_tokens N`",
    )


def _server_teacher(found: Found) -> Outcome:
    return Renamed(("teacher", "base_url"), only_item(found.value), 'with teacher.type = "server"')


def _teacher_name(prefix: str) -> Rule:
    def rule(found: Found) -> Outcome:
        key = "model" if found.get(f"{prefix}.client.base_url") else "name"
        return Renamed(("teacher", key), found.value)

    return rule


def sampling(prefix: str) -> dict[str, Rule]:
    """The keys of how the policy's tokens are chosen."""
    target = "orchestrator.sampling"
    whole = "the trainer's log-probabilities are those of the whole softmax, so sampling is not truncated or penalised"
    return {
        f"{prefix}.max_completion_tokens": to(f"{target}.max_tokens"),
        f"{prefix}.max_tokens": to(f"{target}.max_tokens"),
        f"{prefix}.temperature": to(f"{target}.temperature", float),
        f"{prefix}.repetition_penalty": only((1, 1.0), "1 is no penalty", whole),
        f"{prefix}.min_tokens": only((0,), "0 is no bound", "a reply has no least length here"),
        f"{prefix}.extra_body.top_p": only((1, 1.0), "1 keeps all tokens", whole),
        f"{prefix}.extra_body.top_k": only((-1, 0), "it keeps all tokens", whole),
        f"{prefix}.extra_body.min_p": only((0, 0.0), "0 keeps all tokens", whole),
        f"{prefix}.seed": unless_set("seed", "seed", "the run's seed decides every token"),
        f"{prefix}.temp_scheduler.**": impossible("the temperature is the same all along here"),
        f"{prefix}.enable_thinking": impossible("the model's own chat template decides that here"),
        f"{prefix}.reasoning_effort": impossible("the model's own chat template decides that here"),
    }


def environment(prefix: str, target: str = "orchestrator.env.{0}") -> dict[str, Rule]:
    """The keys of an environment to train on, in the classic interface and as a task set with a harness."""
    keys: dict[str, Rule] = {
        f"{prefix}.*.name": to(f"{target}.name", note=LABEL),
        f"{prefix}.*.id": to(f"{target}.id", environment_id),
        f"{prefix}.*.args.**": to(f"{target}.args.**"),
        f"{prefix}.*.num_workers": unneeded("episodes of one process run side by side"),
        f"{prefix}.*.max_retries": unneeded("a rollout that fails is dropped, counted, and its group goes on"),
        f"{prefix}.*.max_total_completion_tokens": only((-1,), "-1 is no bound", "seq_len bounds an episode here"),
        f"{prefix}.*.ratio": only((1, 1.0), "tasks are drawn evenly", "tasks are drawn evenly from all environments"),
        f"{prefix}.*.curriculum.gates.zero_advantage.**": unneeded(
            "groups without a signal are replaced anyway, up to orchestrator.resample_factor"
        ),
    }
    for at in ("", "env."):
        keys |= {
            f"{prefix}.*.{at}taskset.id": to(f"{target}.id", environment_id),
            f"{prefix}.*.{at}taskset.task.**": impossible("slimrl's environments have no such arguments"),
            f"{prefix}.*.{at}taskset.**": to(f"{target}.args.**", note="an argument of the environment"),
            f"{prefix}.*.{at}harness.id": _harness,
            f"{prefix}.*.{at}harness.runtime.**": ONE_PROCESS,
            f"{prefix}.*.{at}runtime.**": ONE_PROCESS,
            f"{prefix}.*.{at}agent.harness.id": _harness,
            f"{prefix}.*.{at}agent.harness.runtime.**": ONE_PROCESS,
            f"{prefix}.*.{at}agent.runtime.**": ONE_PROCESS,
            f"{prefix}.*.{at}player.harness.id": _harness,
            f"{prefix}.*.{at}player.harness.runtime.**": ONE_PROCESS,
        }
    return keys


def evaluation(prefix: str) -> dict[str, Rule]:
    """The keys of evaluations during training."""
    once = "each held-out task is tried once at each of eval.temperatures"
    keys: dict[str, Rule] = {
        f"{prefix}.interval": to("eval.interval_steps"),
        f"{prefix}.num_examples": _num_examples,
        f"{prefix}.select.limit": _num_examples,
        f"{prefix}.rollouts_per_example": only((1,), once, once),
        f"{prefix}.group_size": only((1,), once, once),
        f"{prefix}.sampling.temperature": _temperature,
        f"{prefix}.sampling.max_tokens": _reply_length(f"{prefix}.sampling.max_tokens"),
        f"{prefix}.sampling.max_completion_tokens": _reply_length(f"{prefix}.sampling.max_completion_tokens"),
        f"{prefix}.eval_base_model": only(
            (True,),
            "the base model is evaluated anyway",
            "what is learnt shows beside the base model",
        ),
        f"{prefix}.skip_eval_on_resume": unneeded("a resumed run reads what was measured before"),
        f"{prefix}.cancel_inflight_rollouts_on_eval": unneeded("sampling and evaluation take turns"),
        f"{prefix}.num_workers": unneeded("episodes of one process run side by side"),
        f"{prefix}.max_retries": unneeded("an episode that fails is left out and counted"),
    }
    for at in (f"{prefix}.env", f"{prefix}.source"):
        keys |= {
            f"{at}.*.name": unneeded("held-out tasks of the environments that are trained on are evaluated anyway"),
            f"{at}.*.id": _eval_environment,
            f"{at}.*.taskset.id": _eval_environment,
            f"{at}.*.env.taskset.id": _eval_environment,
            f"{at}.*.num_examples": _num_examples,
            f"{at}.*.rollouts_per_example": only((1,), once, once),
            f"{at}.*.group_size": only((1,), once, once),
            f"{at}.*.harness.**": ONE_PROCESS,
            f"{at}.*.env.agent.**": ONE_PROCESS,
        }
    return keys


def _hosted_model(found: Found) -> Outcome:
    """The model by its name, where other dialects have a section; the header of an empty section says nothing."""
    return NotNeeded("it is empty") if found.value == {} else Renamed(("model", "name"), found.value)


def _num_examples(found: Found) -> Outcome:
    if found.value == -1:
        return Impossible("say how many held-out tasks, as in eval.num_examples = 200: all of them would take long")
    return Renamed(("eval", "num_examples"), found.value)


BUFFER: dict[str, Rule] = {
    "online_difficulty_filtering": _filtering,
    "seed": unneeded("the run's seed decides the order of tasks"),
    "hash_keys": unneeded("a checkpoint keeps the position in the order of tasks"),
    "easy_fraction": only((0, 0.0), "0 is off", "tasks are not sorted by how hard they are"),
    "hard_fraction": only((0, 0.0), "0 is off", "tasks are not sorted by how hard they are"),
    "easy_threshold": impossible("tasks are not sorted by how hard they are; a group without a signal is replaced"),
    "hard_threshold": impossible("tasks are not sorted by how hard they are; a group without a signal is replaced"),
    "env_ratios": impossible("tasks are drawn evenly from all environments"),
}

LOSS: dict[str, Rule] = {
    "trainer.loss.type": to(
        "trainer.loss.type",
        lambda name: "aipo" if name == "default" else name,
        note="theirs masks tokens whose probability has moved, ours caps the ratio (docs/algorithms)",
    ),
    "trainer.loss.kl_tau": only((0, 0.0), "0 is off", "it is a penalty on the ratio; ours is trainer.loss.kl_beta"),
    "trainer.loss.import_path": impossible("a loss of your own is a function in src/slimrl/trainer/losses.py"),
    "trainer.loss.kwargs.**": impossible("a loss of your own is a function in src/slimrl/trainer/losses.py"),
    "orchestrator.advantage.type": only(
        ("default",), "rewards are compared with their group's mean", "trainer.loss.advantage has the estimators"
    ),
    "orchestrator.advantage.length_weighted_mean": only(
        (False,), "it is off", 'trainer.loss.advantage = "opo" has a baseline weighted by length'
    ),
    "orchestrator.verification.enabled": only((True,), "rewards count", "there is no run without rewards"),
}

ORCHESTRATOR: dict[str, Rule] = {
    "orchestrator.group_size": to("orchestrator.rollouts_per_example"),
    "orchestrator.train.group_size": to("orchestrator.rollouts_per_example"),
    "orchestrator.train.batch_size": to("orchestrator.batch_size"),
    "orchestrator.token_batch_size": impossible("a batch is a number of rollouts: orchestrator.batch_size"),
    "orchestrator.max_steps": unless_set("max_steps", "max_steps", "max_steps counts"),
    "orchestrator.seq_len": unless_set("seq_len", "seq_len", "seq_len counts"),
    "orchestrator.output_dir": unless_set("output_dir", "output_dir", "output_dir counts"),
    "orchestrator.max_async_level": unless_set("max_async_level", "max_async_level", "max_async_level counts"),
    "orchestrator.max_off_policy_steps": unless_set("max_async_level", "max_async_level", "max_async_level counts"),
    "orchestrator.strict_async_level": unneeded("sampling and training take turns"),
    "orchestrator.oversampling_factor": to("orchestrator.resample_factor", at_least_one),
    "orchestrator.seed": unless_set("seed", "seed", "seed counts"),
    "orchestrator.max_concurrent": ENGINE,
    "orchestrator.max_inflight_rollouts": ENGINE,
    "orchestrator.concurrency.**": ENGINE,
    "orchestrator.tasks_per_minute": ENGINE,
    "orchestrator.num_train_workers": ONE_PROCESS,
    "orchestrator.workers_per_env": ONE_PROCESS,
    "orchestrator.client.**": ONE_PROCESS,
    "orchestrator.train.num_workers": ONE_PROCESS,
    "orchestrator.train.max_retries": unneeded("a rollout that fails is dropped, counted, and its group goes on"),
    "orchestrator.use_token_client": unneeded("tokens are never encoded twice"),
    "orchestrator.use_renderer": unneeded("the model's own chat template renders"),
    "orchestrator.renderer.**": unneeded("the model's own chat template renders"),
    "orchestrator.trajectory_strategy": only(
        ("interleaved",), "a conversation is one sequence", "a conversation is one sequence here"
    ),
    "orchestrator.lora_name": unneeded("the adapter is part of the policy"),
    "orchestrator.model.lora.name": unneeded("the adapter is part of the policy"),
    "orchestrator.model.lora.rank": unless_set("model.lora.rank", "trainer.model.lora.rank", "the trainer's counts"),
    "orchestrator.model.lora.alpha": unless_set("model.lora.alpha", "trainer.model.lora.alpha", "the trainer's counts"),
    "orchestrator.model.name": unless_set("model.name", "model.name", "model.name counts"),
    "orchestrator.optim.lr": unless_set("trainer.optim.lr", "trainer.optim.lr", "the trainer's counts"),
    "orchestrator.filters.*.type": unneeded("nothing is filtered by text; `drop/...` counts what is left out"),
    "orchestrator.filters.*.enforce": only((False,), "it would only count", "rollouts are not filtered by their text"),
    "orchestrator.filters.*.**": unneeded("nothing is filtered by text"),
    "orchestrator.experimental.**": impossible("slimrl has none of these experiments"),
}

TEACHER: dict[str, Rule] = {}
for _prefix in ("orchestrator.teacher_model", "orchestrator.teacher"):
    TEACHER |= {
        f"{_prefix}.model.name": _teacher_name(_prefix),
        f"{_prefix}.client.base_url": _server_teacher,
        f"{_prefix}.client.api_key_var": to("teacher.api_key_variable"),
    }

HOSTED: dict[str, Rule] = {
    "model": _hosted_model,
    "name": unneeded("a run is called by its output_dir"),
    "batch_size": to("orchestrator.batch_size"),
    "rollouts_per_example": to("orchestrator.rollouts_per_example"),
    "group_size": to("orchestrator.rollouts_per_example"),
    "learning_rate": to("trainer.optim.lr"),
    "lora_alpha": to("model.lora.alpha", float, note="hosted runs train LoRA; rank 16 is ours"),
    "oversampling_factor": to("orchestrator.resample_factor", at_least_one),
    "max_off_policy_steps": unless_set("max_async_level", "max_async_level", "max_async_level counts"),
    "trajectory_strategy": ORCHESTRATOR["orchestrator.trajectory_strategy"],
    "env_file": impossible("export its variables before the run: slimrl reads no file of secrets"),
    "env_files": impossible("export its variables before the run: slimrl reads no file of secrets"),
    **sampling("sampling"),
    **environment("env"),
    **evaluation("eval"),
    "val.num_examples": unless_set("eval.num_examples", "eval.num_examples", "eval.num_examples counts"),
    "val.interval": unless_set("eval.interval_steps", "eval.interval", "eval.interval counts"),
    "val.rollouts_per_example": only((1,), "each held-out task is tried once", "each held-out task is tried once"),
    **under("buffer", BUFFER),
}

TOP: dict[str, Rule] = {
    "max_model_len": unless_set("seq_len", "seq_len", "seq_len counts"),
    "clean_output_dir": only((False,), "nothing is overwritten", "delete the directory yourself, or name another one"),
    "clean": only((False,), "nothing is overwritten", "delete the directory yourself, or name another one"),
    "bench": only((False,), "it is off", "`slimrl trainer` measures the trainer alone"),
    "dry_run": only((False,), "it is off", "give --dry-run on the command line"),
    "experimental.**": impossible("slimrl has none of these experiments"),
    "model.trust_remote_code": only((False,), "it is off", "code of a model's repository is never run"),
    "tokenizer.name": same_as(
        "model.name", "model", why="it is the model's own", otherwise="the tokenizer is the model's own"
    ),
    "tokenizer.trust_remote_code": only((False,), "it is off", "code of a model's repository is never run"),
    "tokenizer.chat_template": impossible("the chat template is the model's own"),
    "teacher_inference.**": ENGINE,
    "weight_broadcast.**": ONE_PROCESS,
}

TRAINER: dict[str, Rule] = {
    "trainer.model.name": unless_set("model.name", "model.name", "model.name counts"),
    "trainer.model.seq_len": to("trainer.micro_batch_tokens", note="the tokens of one forward pass"),
    "trainer.max_steps": unless_set("max_steps", "max_steps", "max_steps counts"),
    "trainer.max_async_level": unless_set("max_async_level", "max_async_level", "max_async_level counts"),
    "trainer.output_dir": unless_set("output_dir", "output_dir", "output_dir counts"),
    "trainer.data.fake.**": impossible("`slimrl trainer` trains on made-up samples"),
    "trainer.tokenizer.**": unneeded("the tokenizer is the model's own"),
    **under("trainer", COMPUTE),
    **under("trainer", LORA),
    **{key.replace("model.lora", "trainer.model.experimental.lora"): rule for key, rule in LORA.items()},
    **optim("trainer.optim", "trainer.optim"),
    **schedule("trainer.scheduler", "trainer.schedule"),
}

RL_KEYS: Table = {
    **HOSTED,
    **TOP,
    **CKPT,
    **under("trainer", CKPT),
    **under("orchestrator", CKPT),
    **WANDB,
    **under("trainer", WANDB),
    **under("orchestrator", WANDB),
    **LOGS,
    **under("trainer", LOGS),
    **under("orchestrator", LOGS),
    **DEPLOYMENT,
    **LOSS,
    **TRAINER,
    **ORCHESTRATOR,
    **TEACHER,
    **environment("orchestrator.env"),
    **environment("orchestrator.train.env"),
    **environment("orchestrator.train.source"),
    **sampling("orchestrator.sampling"),
    **sampling("orchestrator.train.sampling"),
    **evaluation("orchestrator.eval"),
    **evaluation("orchestrator.val"),
    **under("orchestrator.buffer", BUFFER),
    "inference.model.name": unless_set("model.name", "model.name", "model.name counts"),
    **{f"inference.{key}": ENGINE for key in ENGINE_KEYS},
}
