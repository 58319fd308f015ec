"""The keys of prime-rl's settings files for `rl` and for `sft`, in all three dialects, with the rule for each.

The names are from prime-rl's published settings classes and examples, up to August 2026, and from the documentation of
the hosted `prime train`. A key that is neither in these tables nor among slimrl's keys is impossible.

`<trainer>` is the section of the trainer, and `<part>` the section of any part; their names depend on the kind of file.
"""

from slimrl_tools.prime_rl import values
from slimrl_tools.prime_rl.rules import Table, impossible, make_table, only, same_as, to, unless_set, unneeded

LOCAL = "metrics.jsonl is always written"
NO_CODE = "code of a model's repository is never run"
NO_FILTERS = "nothing is filtered by text"
NO_RANKS = "tasks are not sorted by how hard they are"
NO_OVERWRITING = ("nothing is overwritten", "delete the directory yourself, or name another one")
ONCE = "each held-out task is tried once"
ONE_PROCESS = "everything is one process here"
OWN_TOKENIZER = "the tokenizer is the model's own"
SAFETENSORS = "weights are safetensors in Hugging Face format, and an adapter is kept beside the merged weights"
SAME_LENGTH = "held-out replies may be as long as those of training here"
SIDE_BY_SIDE = "episodes of one process run side by side"
TRAINERS = "the trainer's counts"
WHOLE_SOFTMAX = (
    "the trainer's log-probabilities are those of the whole softmax, so sampling is not truncated or penalised"
)

SHARED: Table = {
    # Checkpoints.
    "<part>ckpt": unneeded("checkpoints are written anyway, at the end and every ckpt.interval_steps"),
    "<part>ckpt.interval": to("ckpt.interval_steps"),
    "<part>ckpt.keep_last": to("ckpt.keep"),
    "<part>ckpt.keep_interval": impossible("only the newest checkpoints are kept: ckpt.keep says how many"),
    "<part>ckpt.resume_step <part>resume.step": to("resume", values.resume),
    "<part>ckpt.output_dir": impossible("checkpoints are in output_dir/checkpoints"),
    "<part>ckpt.weights.save_format": only(("safetensors",), "it is the format here", "weights are safetensors here"),
    "<part>ckpt.weights.**": unneeded(SAFETENSORS),
    "<part>ckpt.skip_{progress,scheduler,dataloader,buffer}": only(
        (False,), "it is off", "a resumed run continues exactly"
    ),
    "<part>ckpt.wait_for_weights_timeout": unneeded(ONE_PROCESS),
    # Logs.
    "<part>{,monitors.}wandb": to(
        "wandb.enabled", lambda value: value is not False, note="a section by its bare name turns W&B on"
    ),
    "<part>{,monitors.}wandb.{project,name,entity}": to("wandb.{key}"),
    "<part>{,monitors.}wandb.offline": only((False,), "it is off", "set WANDB_MODE=offline in the environment"),
    "<part>{,monitors.}wandb.group": impossible("set WANDB_RUN_GROUP in the environment"),
    "<part>{,monitors.}wandb.tags": impossible("set WANDB_TAGS in the environment"),
    "<part>{,monitors.}wandb.shared": unneeded("there is one process, and one run of W&B"),
    "<part>{,monitors.}wandb.log_extras.**": unneeded("rollouts are in local files"),
    "<part>{,monitors.}wandb.interval": unneeded("every step is logged"),
    "<part>log.**": unneeded("the console shows a line for each step, and metrics.jsonl has all of them"),
    "<part>monitors.file.**": unneeded(LOCAL),
    "<part>{monitors.prime,prime_monitor}.**": unneeded(f"nothing is sent to the platform; {LOCAL}"),
    "<part>{heartbeat,metrics_server}.**": unneeded("metrics.jsonl grows with every step"),
    # Placement.
    "deployment.**": unneeded("the program looks at the machine, and says which device it takes"),
    "slurm.**": unneeded("the run starts where the command is given"),
    # Parallelism of a trainer on many GPUs.
    "<trainer>model.{impl,attn,compile.**,ac.**,ac_offloading.**,fsdp_cpu_offload,optim_cpu_offload}"
    " <trainer>model.{reshard_after_forward,dp_replicate,dp_shard,ep,ep_comm_backend,tp,cp,cp_style}"
    " <trainer>model.{optimization_dtype,reduce_dtype,moe_use_grouped_mm,freeze_moe_router,fp8,load_using_meta}"
    " <trainer>model.{fused_lm_head_chunk_size,fused_lm_head_token_chunk_size,deepep_num_sms,deepep_token_chunk_size}"
    " <trainer>{memory_profiler_path,trace_path,dist_timeout_seconds,gc.**,max_concurrent_runs,loss_impl}"
    " <trainer>{enable_router_replay,broadcast_at_step_zero,weight_broadcast.**,rollout_transport.**,env_vars.**}": (
        unneeded("how the trainer computes is chosen by what the machine has")
    ),
    "<trainer>model.trust_remote_code": only((False,), "it is off", NO_CODE),
    "<trainer>model.debug.**": impossible("the whole model is trained"),
    "<trainer>model.vlm.**": impossible("models read text alone here"),
    # LoRA, the optimizer and the schedule of its learning rate.
    "<lora>.rank": to("model.lora.rank"),
    "<lora>.alpha": to("model.lora.alpha", float),
    "<lora>.target_modules": to("model.lora.targets", values.lora_targets),
    "<lora>.dropout": only((0, 0.0), "there is none here", "dropout would make sampler and trainer differ"),
    "<lora>.modules_to_save": only(([],), "it is empty", "an adapter trains no other matrices here"),
    "<trainer>optim.{lr,weight_decay}": to("{above}optim.{key}", float),
    "<trainer>optim.max_norm": to("{above}optim.max_grad_norm", float),
    "<trainer>optim.betas1": to("{above}optim.beta1", float),
    "<trainer>optim.betas2": to("{above}optim.beta2", float),
    "<trainer>scheduler.{type,warmup_steps}": to("{above}schedule.{key}"),
    "<trainer>optim.type": only(("adamw",), "it is AdamW here", "the optimizer is AdamW here"),
    "<trainer>scheduler.decay_steps": values.decay_steps,
    "<trainer>scheduler.min_lr": values.min_lr_ratio,
}


SAMPLING: Table = {
    "<sampling>.max_completion_tokens <sampling>.max_tokens": to("orchestrator.sampling.max_tokens"),
    "<sampling>.temperature": to("orchestrator.sampling.temperature", float),
    "<sampling>.repetition_penalty": only((1, 1.0), "1 is no penalty", WHOLE_SOFTMAX),
    "<sampling>.min_tokens": only((0,), "0 is no bound", "a reply has no least length here"),
    "<sampling>.extra_body.top_p": only((1, 1.0), "1 keeps all tokens", WHOLE_SOFTMAX),
    "<sampling>.extra_body.top_k": only((-1, 0), "it keeps all tokens", WHOLE_SOFTMAX),
    "<sampling>.extra_body.min_p": only((0, 0.0), "0 keeps all tokens", WHOLE_SOFTMAX),
    "<sampling>.seed": unless_set("seed", why="the run's seed decides every token"),
    "<sampling>.temp_scheduler.**": impossible("the temperature is the same all along here"),
    "<sampling>.{enable_thinking,reasoning_effort}": impossible("the model's own chat template decides that here"),
}

# An environment to train on, in the classic interface and as a task set with a harness.
ENVIRONMENT: Table = {
    "<env>.name": to("orchestrator.env.{0}.name", note="a label of metrics"),
    "<env>.id <env>.{,env.}taskset.id": to("orchestrator.env.{0}.id", values.environment_id),
    "<env>.args.**": to("orchestrator.env.{0}.args.**"),
    "<env>.num_workers": unneeded(SIDE_BY_SIDE),
    "<env>.max_retries": unneeded("a rollout that fails is dropped, counted, and its group goes on"),
    "<env>.max_total_completion_tokens": only((-1,), "-1 is no bound", "seq_len bounds an episode here"),
    "<env>.ratio": only((1, 1.0), "tasks are drawn evenly", "tasks are drawn evenly from all environments"),
    "<env>.curriculum.gates.zero_advantage.**": unneeded(values.REPLACED),
    "<env>.{,env.}taskset.task.**": impossible("slimrl's environments have no such arguments"),
    "<env>.{,env.}taskset.**": to("orchestrator.env.{0}.args.**", note="an argument of the environment"),
    "<env>.{,env.}{,agent.,player.}harness.id": only(
        ("null", "default"), "slimrl has one agent loop", "slimrl has one agent loop, and no harness `{value}`"
    ),
    "<env>.{,env.}{,agent.,player.}harness.runtime.** <env>.{,env.}{,agent.}runtime.**": unneeded(ONE_PROCESS),
}

EVALUATION: Table = {
    "<eval>.interval": to("eval.interval_steps"),
    "<eval>.{num_examples,select.limit} <eval>.{env,source}.*.num_examples": to(
        "eval.num_examples", values.num_examples
    ),
    "<eval>.{,env.*.,source.*.}{rollouts_per_example,group_size}": only((1,), f"{ONCE} at each of eval.temperatures"),
    "<eval>.sampling.temperature": to(
        "eval.temperatures", lambda value: [float(value)], note="held-out tasks are tried at this temperature alone"
    ),
    "<eval>.sampling.{max_tokens,max_completion_tokens}": same_as(
        *("sampling.max_tokens", "orchestrator.sampling.max_tokens", "orchestrator.sampling.max_completion_tokens"),
        *("orchestrator.train.sampling.max_completion_tokens", "orchestrator.train.sampling.max_tokens"),
        why=SAME_LENGTH,
        otherwise=f"{SAME_LENGTH}: remove {{key}}, or evaluate with `slimrl eval --sampling.max_tokens N`",
    ),
    "<eval>.eval_base_model": only(
        (True,), "the base model is evaluated anyway", "what is learnt shows beside the base model"
    ),
    "<eval>.skip_eval_on_resume": unneeded("a resumed run reads what was measured before"),
    "<eval>.cancel_inflight_rollouts_on_eval": unneeded("sampling and evaluation take turns"),
    "<eval>.num_workers": unneeded(SIDE_BY_SIDE),
    "<eval>.max_retries": unneeded("an episode that fails is left out and counted"),
    "<eval>.{env,source}.*.name": unneeded(values.HELD_OUT),
    "<eval>.{env,source}.*.{,taskset.,env.taskset.}id": values.evaluated_environment,
    "<eval>.{env,source}.*.{harness,env.agent}.**": unneeded(ONE_PROCESS),
}

BUFFER: Table = {
    "<buffer>.online_difficulty_filtering": values.filtering,
    "<buffer>.seed": unneeded("the run's seed decides the order of tasks"),
    "<buffer>.hash_keys": unneeded("a checkpoint keeps the position in the order of tasks"),
    "<buffer>.{easy,hard}_fraction": only((0, 0.0), "0 is off", NO_RANKS),
    "<buffer>.{easy,hard}_threshold": impossible(f"{NO_RANKS}; a group without a signal is replaced"),
    "<buffer>.env_ratios": impossible("tasks are drawn evenly from all environments"),
}

LOSS: Table = {
    "trainer.loss.type": to(
        "trainer.loss.type",
        lambda name: "aipo" if name == "default" else name,
        note="theirs masks tokens whose probability has moved, ours caps the ratio (docs/algorithms)",
    ),
    "trainer.loss.kl_tau": only((0, 0.0), "0 is off", "it is a penalty on the ratio; ours is trainer.loss.kl_beta"),
    "trainer.loss.{import_path,kwargs.**}": impossible(
        "its function takes other tensors: write it for slimrl, and name it in trainer.loss.policy (docs/algorithms)"
    ),
    "orchestrator.advantage.type": only(
        ("default",), "rewards are compared with their group's mean", "trainer.loss.advantage has the estimators"
    ),
    "orchestrator.advantage.length_weighted_mean": only(
        (False,), "it is off", 'trainer.loss.advantage = "opo" has a baseline weighted by length'
    ),
    "orchestrator.verification.enabled": only((True,), "rewards count", "there is no run without rewards"),
}

ORCHESTRATOR: Table = {
    "{,orchestrator.,orchestrator.train.}group_size": to("orchestrator.rollouts_per_example"),
    "orchestrator.train.batch_size": to("orchestrator.batch_size"),
    "orchestrator.token_batch_size": impossible("a batch is a number of rollouts: orchestrator.batch_size"),
    "{orchestrator,trainer}.max_steps": unless_set("max_steps"),
    "orchestrator.seq_len max_model_len": unless_set("seq_len"),
    "{orchestrator,trainer}.output_dir": unless_set("output_dir"),
    "{orchestrator,trainer}.max_async_level {,orchestrator.}max_off_policy_steps": unless_set("max_async_level"),
    "orchestrator.seed": unless_set("seed"),
    "{orchestrator,trainer,inference}.model.name": unless_set("model.name"),
    "orchestrator.model.lora.rank": unless_set("model.lora.rank", "trainer.model.lora.rank", TRAINERS),
    "orchestrator.model.lora.alpha": unless_set("model.lora.alpha", "trainer.model.lora.alpha", TRAINERS),
    "orchestrator.optim.lr": unless_set("trainer.optim.lr", why=TRAINERS),
    "orchestrator.{lora_name,model.lora.name}": unneeded("the adapter is part of the policy"),
    "orchestrator.strict_async_level": unneeded("sampling and training take turns"),
    "{,orchestrator.}oversampling_factor": to("orchestrator.resample_factor", values.at_least_one),
    # slimrl has a section `inference`, too. prime-rl's keys are therefore listed one by one, to reject misspelt keys.
    "orchestrator.{max_concurrent,max_inflight_rollouts,concurrency.**,tasks_per_minute} teacher_inference.**"
    " inference.{model.**,vllm.**,vllm_extra.**,parallel.**,server.**,weight_broadcast.**,deployment.**}"
    " inference.{gpu_memory_utilization,enable_lora,max_loras,max_cpu_loras,max_lora_rank,seed,log.**}"
    " inference.{enable_prefix_caching,api_server_count,enable_expert_parallel,enable_eplb,all2all_backend}"
    " inference.{use_deep_gemm,reasoning_parser,kv_cache_dtype,output_dir,slurm.**,env_vars.**,dry_run}": (
        unneeded("the engine is slimrl's own, in the same process; inference.max_slots is its size")
    ),
    "orchestrator.{num_train_workers,workers_per_env,client.**,train.num_workers} weight_broadcast.**": (
        unneeded(ONE_PROCESS)
    ),
    "orchestrator.train.max_retries": unneeded("a rollout that fails is dropped, counted, and its group goes on"),
    "orchestrator.use_token_client": unneeded("tokens are never encoded twice"),
    "orchestrator.{use_renderer,renderer.**}": unneeded("the model's own chat template renders"),
    "{,orchestrator.}trajectory_strategy": only(
        ("interleaved",), "a conversation is one sequence", "a conversation is one sequence here"
    ),
    "orchestrator.filters.*.type": unneeded(f"{NO_FILTERS}; `drop/...` counts what is left out"),
    "orchestrator.filters.*.enforce": only((False,), "it would only count", "rollouts are not filtered by their text"),
    "orchestrator.filters.*.**": unneeded(NO_FILTERS),
    "orchestrator.{teacher_model,teacher}.model.name": values.teacher_name,
    "orchestrator.{teacher_model,teacher}.client.base_url": to(
        "teacher.base_url", values.only_item, note='with teacher.type = "server"'
    ),
    "orchestrator.{teacher_model,teacher}.client.api_key_var": to("teacher.api_key_variable"),
}

# The flat files of hosted runs, and the top-level keys of the other files.
TOP: Table = {
    "model": values.hosted_model,
    "name": unneeded("a run is called by its output_dir"),
    "{batch_size,rollouts_per_example}": to("orchestrator.{key}"),
    "learning_rate": to("trainer.optim.lr"),
    "lora_alpha": to("model.lora.alpha", float, note="hosted runs train LoRA; rank 16 is ours"),
    "{env_file,env_files}": impossible("export its variables before the run: slimrl reads no file of secrets"),
    "val.num_examples": unless_set("eval.num_examples"),
    "val.interval": unless_set("eval.interval_steps", "eval.interval"),
    "val.rollouts_per_example": only((1,), ONCE),
    "{clean_output_dir,clean}": only((False,), *NO_OVERWRITING),
    "bench": only((False,), "it is off", "`slimrl trainer` measures the trainer alone"),
    "dry_run": only((False,), "it is off", "give --dry-run on the command line"),
    "{,orchestrator.}experimental.**": impossible("slimrl has none of these experiments"),
    "{model,tokenizer}.trust_remote_code": only((False,), "it is off", NO_CODE),
    "tokenizer.name": same_as("model.name", "model", why="it is the model's own", otherwise=OWN_TOKENIZER),
    "tokenizer.chat_template": impossible("the chat template is the model's own"),
    "trainer.model.seq_len": to("trainer.micro_batch_tokens", note="the tokens of one forward pass"),
    "trainer.data.fake.**": impossible("`slimrl trainer` trains on made-up samples"),
    "trainer.tokenizer.**": unneeded(OWN_TOKENIZER),
}

RL_KEYS: Table = make_table(
    {
        **(SHARED | SAMPLING | ENVIRONMENT | EVALUATION),
        **(BUFFER | LOSS | ORCHESTRATOR | TOP),
    },
    trainer="trainer.",
    part="{,trainer.,orchestrator.}",
    lora="trainer.model.{,experimental.}lora",
    sampling="{,orchestrator.,orchestrator.train.}sampling",
    env="{env,orchestrator.env,orchestrator.train.env,orchestrator.train.source}.*",
    eval="{eval,orchestrator.eval,orchestrator.val}",
    buffer="{,orchestrator.}buffer",
)

SFT: Table = {
    "data.type": values.data_type,
    "data.name": to("data.name"),
    "data.{seq_len,batch_size}": to("{key}"),
    "data.micro_batch_size": values.micro_batch,
    "data.subsets": to("data.subset", values.only_item),
    "data.splits": to("data.split", values.only_item),
    "data.source.*.{dataset,name}": values.first_of("data.name"),
    "data.source.*.subset": values.first_of("data.subset"),
    "data.source.*.split": values.first_of("data.split"),
    "data.probabilities.**": impossible("slimrl trains on one data set"),
    "data.stopping_strategy": unneeded("there is one data set"),
    "data.shuffle": only((True,), "conversations are shuffled anyway"),
    "data.seed": unless_set("seed"),
    "data.pack_function": only(("cat",), "conversations are packed without padding", "packs have no padding here"),
    "data.loss_mask.assistant": only((True,), "the assistant's words are trained"),
    "data.loss_mask.*": only((False,), "only the assistant's words are trained"),
    "data.{length,input_ids}": unneeded("samples are not made up"),
    "val.interval": to("val_interval_steps"),
    "val.data.name": same_as(
        "data.name", why="it is the same data set", otherwise="data.val_split is another split of the same data"
    ),
    "val.data.splits": to("data.val_split", values.only_item),
    "val.data.{seq_len,batch_size}": unneeded("as in training"),
    "eval.**": impossible(
        "`sft` measures the loss on held-out conversations; measure the reward with `slimrl eval` afterwards"
    ),
    "inference.**": unneeded("`sft` samples nothing"),
    "tokenizer.name": same_as("model.name", why="it is the model's own", otherwise=OWN_TOKENIZER),
    "tokenizer.**": impossible("tokenizer and chat template are the model's own"),
    "model.seq_len": unless_set("seq_len", "data.seq_len"),
    "clean_output_dir": only((False,), *NO_OVERWRITING),
    "bench.**": impossible("`slimrl trainer` measures the trainer alone"),
    "dry_run": only((False,), "it is off", "give --dry-run on the command line"),
}

SFT_KEYS: Table = make_table(SHARED | SFT, trainer="", part="", lora="model.lora")
