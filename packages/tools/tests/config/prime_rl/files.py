"""Settings files as users of prime-rl have them: three of each dialect, and what each comes to here."""

UP_TO_V05 = {
    "a LoRA run of several turns": (
        """
max_steps = 60
seq_len = 3072
max_async_level = 1
clean_output_dir = false

[model]
name = "smollm2-135m"

[wandb]
project = "names"
entity = "team"
offline = false

[ckpt]
interval = 20
keep_last = 3

[trainer.model]
impl = "hf"
attn = "sdpa"

[trainer.model.ac]
freq = 2

[trainer.model.lora]
rank = 24
alpha = 48
dropout = 0.0
target_modules = ["q_proj", "v_proj", "experts"]

[trainer.optim]
type = "adamw"
lr = 4e-5
weight_decay = 0.02
betas2 = 0.95
max_norm = 0.5

[trainer.scheduler]
type = "cosine"
warmup_steps = 6
min_lr = 4e-6

[orchestrator]
batch_size = 96
rollouts_per_example = 12
oversampling_factor = 1.5
trajectory_strategy = "interleaved"
lora_name = "r24"

[orchestrator.sampling]
max_tokens = 700
repetition_penalty = 1.0
extra_body = { top_k = -1 }

[orchestrator.buffer]
online_difficulty_filtering = true
seed = 7

[[orchestrator.env]]
id = "primeintellect/alphabet-sort"
name = "sorting"
args = { max_turns = 2 }

[orchestrator.eval]
interval = 15
num_examples = 40
rollouts_per_example = 1

[[orchestrator.eval.env]]
id = "primeintellect/alphabet-sort"

[inference]
gpu_memory_utilization = 0.8
enable_lora = true

[inference.parallel]
dp = 2
""",
        {
            "max_steps": 60,
            "seq_len": 3072,
            "max_async_level": 1,
            "wandb.project": "names",
            "wandb.entity": "team",
            "ckpt.interval_steps": 20,
            "ckpt.keep": 3,
            "model.lora.rank": 24,
            "model.lora.alpha": 48.0,
            "model.lora.targets": ["q_proj", "v_proj"],
            "trainer.optim.lr": 4e-5,
            "trainer.optim.weight_decay": 0.02,
            "trainer.optim.beta2": 0.95,
            "trainer.optim.max_grad_norm": 0.5,
            "trainer.schedule.type": "cosine",
            "trainer.schedule.warmup_steps": 6,
            "trainer.schedule.min_lr_ratio": 0.1,
            "orchestrator.batch_size": 96,
            "orchestrator.rollouts_per_example": 12,
            "orchestrator.resample_factor": 2,
            "orchestrator.sampling.max_tokens": 700,
            "orchestrator.env": [
                {"id": "alphabet-sort", "args": {"max_turns": 2}, "worker": "auto", "memory_gb": 0.0, "name": "sorting"}
            ],
            "eval.interval_steps": 15,
            "eval.num_examples": 40,
        },
    ),
    "a full run with a teacher": (
        """
max_steps = 30
output_dir = "outputs/theirs"

[model]
name = "smollm2-135m"

[orchestrator]
batch_size = 32
rollouts_per_example = 4
seq_len = 2048
max_steps = 30

[orchestrator.sampling]
max_tokens = 256
temperature = 0.9

[[orchestrator.env]]
id = "wordle"

[orchestrator.teacher_model.model]
name = "smollm2-135m"

[trainer]
max_async_level = 2
dist_timeout_seconds = 900

[trainer.model]
seq_len = 8192
name = "smollm2-135m"

[trainer.loss]
adv_tau = 0.5
teacher_tau = 0.5

[trainer.weight_broadcast]
type = "filesystem"

[log]
level = "debug"
""",
        {
            "output_dir": "outputs/theirs",
            "seq_len": 2048,
            "max_async_level": 2,
            "trainer.micro_batch_tokens": 8192,
            "trainer.loss.teacher_tau": 0.5,
            "teacher.type": "model",
            "teacher.name": "smollm2-135m",
            "orchestrator.sampling.temperature": 0.9,
            "orchestrator.env": [{"id": "wordle", "args": {}, "worker": "auto", "memory_gb": 0.0, "name": ""}],
        },
    ),
    "two environments and no filter": (
        """
max_steps = 10
seq_len = 512

[model]
name = "smollm2-135m"

[orchestrator]
batch_size = 16
rollouts_per_example = 4

[orchestrator.buffer]
online_difficulty_filtering = false
hash_keys = ["prompt"]

[[orchestrator.env]]
id = "reverse-text"
name = "short"

[[orchestrator.env]]
id = "primeintellect/reverse_text@0.1.2"
name = "again"

[trainer.loss]
type = "gspo"

[slurm]
partition = "all"
""",
        {
            "trainer.loss.type": "gspo",
            "orchestrator.resample_factor": 1,
            "orchestrator.env": [
                {"id": "reverse-text", "args": {}, "worker": "auto", "memory_gb": 0.0, "name": "short"},
                {"id": "reverse-text", "args": {}, "worker": "auto", "memory_gb": 0.0, "name": "again"},
            ],
        },
    ),
}

SINCE_V06 = {
    "a task set with tools": (
        """
max_steps = 120
seq_len = 4096

[deployment]
type = "multi_node"
num_train_nodes = 1
num_infer_nodes = 2

[slurm]
job_name = "search"

[monitors.wandb]
project = "search"
name = "r8"

[monitors.prime]

[model]
name = "smollm2-135m"

[trainer.optim]
lr = 2e-5

[trainer.model.lora]
rank = 8
target_modules = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]

[trainer.model.compile]

[orchestrator]
batch_size = 64
max_off_policy_steps = 16

[orchestrator.train]
group_size = 8

[orchestrator.train.sampling]
max_completion_tokens = 400
temperature = 1

[[orchestrator.train.source]]
name = "wiki"
curriculum.gates.zero_advantage.type = "advantage_range"
env.taskset.id = "wiki-search"
env.taskset.num_results = 5
env.agent.harness.id = "null"
env.agent.runtime.type = "subprocess"

[orchestrator.concurrency]
initial_inflight = 128

[orchestrator.renderer]
name = "qwen3"

[orchestrator.eval]
interval = 30
select.limit = 50

[[orchestrator.eval.source]]
name = "wiki"
env.taskset.id = "wiki-search"
env.agent.harness.id = "null"

[inference.vllm]
tool_call_parser = "hermes"
max_model_len = 4096
""",
        {
            "wandb.project": "search",
            "wandb.name": "r8",
            "wandb.enabled": "auto",
            "max_async_level": 16,
            "model.lora.rank": 8,
            "orchestrator.rollouts_per_example": 8,
            "orchestrator.sampling.max_tokens": 400,
            "orchestrator.sampling.temperature": 1.0,
            "orchestrator.env": [
                {"id": "wiki-search", "args": {"num_results": 5}, "worker": "auto", "memory_gb": 0.0, "name": "wiki"}
            ],
            "eval.interval_steps": 30,
            "eval.num_examples": 50,
        },
    ),
    "the form between, with env and taskset": (
        """
max_steps = 20
seq_len = 2048

[model]
name = "smollm2-135m"

[orchestrator]
batch_size = 128
group_size = 16

[orchestrator.train.sampling]
max_completion_tokens = 128

[[orchestrator.train.env]]
name = "reverse-text"
env.taskset = { id = "reverse-text-v1" }
env.agent.harness = { id = "null", runtime = { type = "subprocess" } }

[trainer.optim]
lr = 3e-6
weight_decay = 0.0

[[orchestrator.filters]]
type = "repetition"
enforce = false
window = 3000

[ckpt]

[inference]
""",
        {
            "orchestrator.rollouts_per_example": 16,
            "orchestrator.sampling.max_tokens": 128,
            "orchestrator.env": [
                {"id": "reverse-text", "args": {}, "worker": "auto", "memory_gb": 0.0, "name": "reverse-text"}
            ],
            "trainer.optim.lr": 3e-6,
        },
    ),
    "a linear schedule and a resumed run": (
        """
max_steps = 50
max_model_len = 1536

[model]
name = "smollm2-135m"

[resume]
step = -1

[ckpt]
interval = 5
keep_last = 1

[ckpt.weights]
save_adapter_separately = true

[trainer.scheduler]
type = "linear"
warmup_steps = 10
decay_steps = 40
min_lr = 0.0

[orchestrator]
batch_size = 32
group_size = 8

[[orchestrator.train.source]]
taskset = { id = "primeintellect/wordle-v1" }
harness = { id = "null", runtime = { type = "subprocess" } }

[orchestrator.train.sampling]
max_completion_tokens = 512
""",
        {
            "resume": True,
            "seq_len": 1536,
            "ckpt.interval_steps": 5,
            "ckpt.keep": 1,
            "trainer.schedule.type": "linear",
            "trainer.schedule.warmup_steps": 10,
            "trainer.schedule.min_lr_ratio": 0.0,
            "orchestrator.env": [{"id": "wordle", "args": {}, "worker": "auto", "memory_gb": 0.0, "name": ""}],
        },
    ),
}

HOSTED = {
    "the smallest": (
        """
model = "smollm2-135m"
max_steps = 40
batch_size = 64
rollouts_per_example = 8

[sampling]
max_tokens = 96

[[env]]
id = "primeintellect/reverse-text"
""",
        {
            "model.name": "smollm2-135m",
            "orchestrator.batch_size": 64,
            "orchestrator.rollouts_per_example": 8,
            "orchestrator.sampling.max_tokens": 96,
            "orchestrator.env": [{"id": "reverse-text", "args": {}, "worker": "auto", "memory_gb": 0.0, "name": ""}],
        },
    ),
    "with most keys": (
        """
name = "sorting-1"
model = "smollm2-135m"
max_steps = 80
batch_size = 120
rollouts_per_example = 12
learning_rate = 2e-4
lora_alpha = 20
oversampling_factor = 2.0
max_async_level = 2
trajectory_strategy = "interleaved"

[sampling]
max_tokens = 300
temperature = 0.8

[[env]]
id = "primeintellect/alphabet-sort"
args = { max_turns = 3 }

[wandb]
project = "hosted"
name = "one"

[eval]
interval = 20
num_examples = 30
rollouts_per_example = 1
eval_base_model = true

[[eval.env]]
id = "primeintellect/alphabet-sort"

[buffer]
online_difficulty_filtering = true
seed = 42
""",
        {
            "trainer.optim.lr": 2e-4,
            "model.lora.alpha": 20.0,
            "model.lora.rank": 16,
            "orchestrator.resample_factor": 2,
            "max_async_level": 2,
            "orchestrator.sampling.temperature": 0.8,
            "orchestrator.env": [
                {"id": "alphabet-sort", "args": {"max_turns": 3}, "worker": "auto", "memory_gb": 0.0, "name": ""}
            ],
            "wandb.project": "hosted",
            "eval.interval_steps": 20,
            "eval.num_examples": 30,
        },
    ),
    "with a validation set": (
        """
model = "smollm2-135m"
max_steps = 25
batch_size = 32
group_size = 8

[sampling]
max_tokens = 64

[[env]]
id = "team/wordle@latest"
name = "words"

[val]
num_examples = 64
rollouts_per_example = 1
interval = 5
""",
        {
            "orchestrator.rollouts_per_example": 8,
            "orchestrator.env": [{"id": "wordle", "args": {}, "worker": "auto", "memory_gb": 0.0, "name": "words"}],
            "eval.num_examples": 64,
            "eval.interval_steps": 5,
        },
    ),
}

SFT = {
    "up to v0.5": (
        """
max_steps = 100

[model]
name = "smollm2-135m"

[model.lora]
rank = 8

[data]
type = "sft"
name = "PrimeIntellect/Reverse-Text-SFT"
subsets = ["default"]
splits = ["train"]
seq_len = 2048
batch_size = 16
micro_batch_size = 2
pack_function = "cat"
loss_mask = { assistant = true, tool = false }

[optim]
lr = 2e-5
max_norm = 2.0

[scheduler]
type = "cosine"
warmup_steps = 5
min_lr = 0.0

[ckpt]
interval = 50
""",
        {
            "data.type": "hub",
            "data.name": "PrimeIntellect/Reverse-Text-SFT",
            "data.subset": "default",
            "data.split": "train",
            "seq_len": 2048,
            "batch_size": 16,
            "micro_batch_tokens": 4096,
            "optim.max_grad_norm": 2.0,
            "schedule.type": "cosine",
            "ckpt.interval_steps": 50,
            "model.lora.rank": 8,
        },
    ),
    "since v0.6": (
        """
max_steps = 20

[ckpt]

[model]
name = "smollm2-135m"

[data]
seq_len = 1024
batch_size = 64
micro_batch_size = 1

[[data.source]]
dataset = "willcb/V3-wordle"

[optim]
lr = 1e-5

[deployment]
num_gpus = 2
""",
        {
            "data.type": "hub",
            "data.name": "willcb/V3-wordle",
            "seq_len": 1024,
            "batch_size": 64,
            "micro_batch_tokens": 1024,
            "optim.lr": 1e-5,
        },
    ),
}

# The settings that the original design shows, as they stand there, with the packaged model.
DESIGN = """
max_steps = 100
seq_len = 2048
max_async_level = 2
output_dir = "outputs"

[model]
name = "smollm2-135m"

[trainer.optim]
lr = 1e-5

[trainer.model.lora]
rank = 32
alpha = 64
target_modules = ["q_proj", "v_proj"]

[orchestrator]
batch_size = 128
rollouts_per_example = 8

[[orchestrator.env]]
id = "reverse-text"

[wandb]
project = "my-project"
"""
