"""The keys that prime-rl's files for `rl` and for `sft` share: checkpoints, logs, placement, optimizer, LoRA."""

from slimrl_tools.prime_rl.rules import Found, Impossible, Outcome, Renamed, Rule, impossible, only, to, unneeded
from slimrl_tools.prime_rl.values import decay_steps, lora_targets, min_lr_ratio


def under(section: str, keys: dict[str, Rule]) -> dict[str, Rule]:
    """The same keys below a section."""
    return {f"{section}.{key}": rule for key, rule in keys.items()}


def _resume(found: Found) -> Outcome:
    if found.value == -1:
        return Renamed(("resume",), True)
    return Impossible("a run is continued from its newest checkpoint: give --resume on the command line")


def _monitors(keys: dict[str, Rule]) -> dict[str, Rule]:
    return keys | {f"monitors.{key}": rule for key, rule in keys.items()}


def _turn_on(found: Found) -> Outcome:
    return Renamed(("wandb", "enabled"), found.value is not False, "a section by its bare name turns W&B on")


COMPUTES = unneeded("how the trainer computes is chosen by what the machine has")
MAKES = unneeded("weights are safetensors in Hugging Face format, and an adapter is kept beside the merged weights")

CKPT: dict[str, Rule] = {
    "ckpt": unneeded("checkpoints are written anyway, at the end and every ckpt.interval_steps"),
    "ckpt.interval": to("ckpt.interval_steps"),
    "ckpt.keep_last": to("ckpt.keep"),
    "ckpt.keep_interval": impossible("only the newest checkpoints are kept: ckpt.keep says how many"),
    "ckpt.resume_step": _resume,
    "resume.step": _resume,
    "ckpt.output_dir": impossible("checkpoints are in output_dir/checkpoints"),
    "ckpt.weights.save_format": only(("safetensors",), "it is the format here", "weights are safetensors here"),
    "ckpt.weights.**": MAKES,
    "ckpt.skip_progress": only((False,), "it is off", "a resumed run continues exactly"),
    "ckpt.skip_scheduler": only((False,), "it is off", "a resumed run continues exactly"),
    "ckpt.skip_dataloader": only((False,), "it is off", "a resumed run continues exactly"),
    "ckpt.skip_buffer": only((False,), "it is off", "a resumed run continues exactly"),
    "ckpt.wait_for_weights_timeout": unneeded("everything is one process here"),
}

WANDB: dict[str, Rule] = _monitors(
    {
        "wandb": _turn_on,
        "wandb.project": to("wandb.project"),
        "wandb.name": to("wandb.name"),
        "wandb.entity": to("wandb.entity"),
        "wandb.offline": only((False,), "it is off", "set WANDB_MODE=offline in the environment"),
        "wandb.group": impossible("set WANDB_RUN_GROUP in the environment"),
        "wandb.tags": impossible("set WANDB_TAGS in the environment"),
        "wandb.shared": unneeded("there is one process, and one run of W&B"),
        "wandb.log_extras.**": unneeded("rollouts are in local files"),
        "wandb.interval": unneeded("every step is logged"),
    }
)

LOGS: dict[str, Rule] = {
    "log.**": unneeded("the console shows a line for each step, and metrics.jsonl has all of them"),
    "monitors.file.**": unneeded("metrics.jsonl is always written"),
    "monitors.prime.**": unneeded("nothing is sent to the platform; metrics.jsonl is always written"),
    "prime_monitor.**": unneeded("nothing is sent to the platform; metrics.jsonl is always written"),
    "heartbeat.**": unneeded("metrics.jsonl grows with every step"),
    "metrics_server.**": unneeded("metrics.jsonl grows with every step"),
}

DEPLOYMENT: dict[str, Rule] = {
    "deployment.**": unneeded("the program looks at the machine, and says which device it takes"),
    "slurm.**": unneeded("the run starts where the command is given"),
}

LORA: dict[str, Rule] = {
    "model.lora.rank": to("model.lora.rank"),
    "model.lora.alpha": to("model.lora.alpha", float),
    "model.lora.target_modules": to("model.lora.targets", lora_targets),
    "model.lora.dropout": only((0, 0.0), "there is none here", "dropout would make sampler and trainer differ"),
    "model.lora.modules_to_save": only(([],), "it is empty", "an adapter trains no other matrices here"),
}

MODEL_COMPUTES = (
    *("impl", "attn", "compile.**", "ac.**", "ac_offloading.**", "fsdp_cpu_offload", "optim_cpu_offload"),
    *("reshard_after_forward", "dp_replicate", "dp_shard", "ep", "ep_comm_backend", "tp", "cp", "cp_style"),
    *("optimization_dtype", "reduce_dtype", "moe_use_grouped_mm", "freeze_moe_router", "fp8", "load_using_meta"),
    *("fused_lm_head_chunk_size", "fused_lm_head_token_chunk_size", "deepep_num_sms", "deepep_token_chunk_size"),
)
TRAINER_COMPUTES = (
    *("memory_profiler_path", "trace_path", "dist_timeout_seconds", "gc.**", "max_concurrent_runs", "loss_impl"),
    *("enable_router_replay", "broadcast_at_step_zero", "weight_broadcast.**", "rollout_transport.**", "env_vars.**"),
)

# How a trainer of many GPUs computes; below `trainer` in files for `rl`, at the top of those for `sft`.
COMPUTE: dict[str, Rule] = {
    "model.trust_remote_code": only((False,), "it is off", "code of a model's repository is never run"),
    "model.debug.**": impossible("the whole model is trained"),
    "model.vlm.**": impossible("models read text alone here"),
    **{f"model.{key}": COMPUTES for key in MODEL_COMPUTES},
    **dict.fromkeys(TRAINER_COMPUTES, COMPUTES),
}


def optim(prefix: str, target: str) -> dict[str, Rule]:
    """The keys of the optimizer."""
    return {
        f"{prefix}.type": only(("adamw",), "it is AdamW here", "the optimizer is AdamW here"),
        f"{prefix}.lr": to(f"{target}.lr", float),
        f"{prefix}.weight_decay": to(f"{target}.weight_decay", float),
        f"{prefix}.max_norm": to(f"{target}.max_grad_norm", float),
        f"{prefix}.betas1": to(f"{target}.beta1", float),
        f"{prefix}.betas2": to(f"{target}.beta2", float),
    }


def schedule(prefix: str, target: str) -> dict[str, Rule]:
    """The keys of the learning rate's schedule."""
    return {
        f"{prefix}.type": to(f"{target}.type"),
        f"{prefix}.warmup_steps": to(f"{target}.warmup_steps"),
        f"{prefix}.decay_steps": decay_steps(prefix),
        f"{prefix}.min_lr": min_lr_ratio(target),
    }
