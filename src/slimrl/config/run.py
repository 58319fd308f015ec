"""The top level of the commands `rl`, `probe`, `sft`, `trainer` and `eval`, which write a run directory.

The other commands, such as `inference` and `play`, are in `serve.py` and `play.py`. `COMMANDS` has all commands.
"""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from slimrl.config.base import CommandConfig, Config
from slimrl.config.check import CheckConfig
from slimrl.config.data import ExpertDataConfig, FakeDataConfig, FileDataConfig, HubDataConfig
from slimrl.config.deployment import DeploymentConfig
from slimrl.config.model import ModelConfig
from slimrl.config.monitors import MonitorsConfig
from slimrl.config.play import PlayConfig
from slimrl.config.rollout import EnvConfig, EpisodesConfig, EvalSamplingConfig, InferenceConfig, OrchestratorConfig
from slimrl.config.serve import ServeConfig
from slimrl.config.teacher import AnyTeacherConfig, NoTeacherConfig
from slimrl.config.train import OptimConfig, PassConfig, ScheduleConfig, TrainerConfig
from slimrl.config.wandb import WandbConfig

GpuIds = list[Annotated[int, Field(ge=0)]]
Temperatures = Annotated[list[Annotated[float, Field(ge=0)]], Field(min_length=1)]


class CkptConfig(Config):
    """Checkpoints in `output_dir/checkpoints`, from which `--resume` continues exactly."""

    interval_steps: int = Field(default=10, ge=0)
    """Steps between two checkpoints; 0 writes one at the end only."""

    keep: int = Field(default=2, ge=1)
    """Newest checkpoints to keep, and as many of the newest `weights/step_*`; older ones of both are deleted."""


class EvalConfig(Config):
    """Held-out evaluation inside `rl`: before training, after it, and, if requested, in between."""

    interval_steps: int = Field(default=0, ge=0)
    """Training steps between two evaluations; 0 evaluates only before and after."""

    num_examples: int = Field(default=200, ge=1)
    """Held-out tasks, drawn from the whole split by a hash, so the same ones every time. The 95% interval narrows with
    the square root of their number."""

    temperatures: Temperatures = Field(default=[0.0, 1.0])
    """Each task is tried once at each of these; 0 takes the likeliest token."""

    def is_due(self, step: int) -> bool:
        """Return True if an intermediate evaluation is due before this step."""
        return step > 0 and self.interval_steps > 0 and step % self.interval_steps == 0


class WarmupConfig(Config):
    """Supervised fine-tuning before RL, on demonstrations by the environments' scripted experts.

    It is for a model that never earns a reward by itself: RL can only strengthen replies that are sometimes sampled.
    """

    max_steps: int = Field(default=0, ge=0)
    """Supervised steps; 0 starts with RL at once. So does a model that has already had supervised training in slimrl,
    by `sft` or by an earlier warm-up."""

    batch_size: int = Field(default=32, ge=1)
    """Demonstrations in one step."""

    optim: OptimConfig = OptimConfig()
    schedule: ScheduleConfig = ScheduleConfig()


class RunConfig(CommandConfig):
    """A command that writes a directory of results. A command redeclares a field to document it differently."""

    seq_len: int = Field(default=1024, ge=2)
    """Longest conversation in tokens, prompt included; an episode that reaches it stops there."""

    output_dir: str = Field(min_length=1)
    """Directory of the run."""

    seed: int = Field(default=0, ge=0)
    """Sets every random choice of the run: the order of tasks or conversations, and every sampled token."""

    resume: bool = False
    """Continue from the newest checkpoint in `output_dir`."""

    model: ModelConfig = ModelConfig()


class TrainingRunConfig(RunConfig):
    """A command that trains: it takes steps, keeps checkpoints and may report to other programs that show runs."""

    max_steps: int = Field(default=100, ge=1)
    """Training steps."""

    ckpt: CkptConfig = CkptConfig()
    wandb: WandbConfig = WandbConfig()


class RLConfig(TrainingRunConfig):
    """Reinforcement learning: sample rollouts, score them, update the weights, publish them, repeat."""

    command: ClassVar[str] = "rl"
    examples: ClassVar[tuple[str, ...]] = (
        "slimrl rl @ examples/reverse_text/rl.toml",
        "slimrl rl @ examples/reverse_text/rl.toml --max_steps 20 --trainer.optim.lr 3e-6",
        "slimrl rl @ examples/reverse_text/rl.toml --trainer.loss.type rloo --output_dir outputs/rloo --dry-run",
        """slimrl rl --orchestrator.env '[{id="reverse-text"}]' --trainer @ my_trainer.toml""",
        "slimrl rl @ outputs/rl/config.toml --resume",
    )

    page: ClassVar[tuple[str, ...]] = (
        *("orchestrator.env", "model.name", "model.device", "model.lora.rank", "max_steps", "seq_len", "output_dir"),
        *("seed", "resume", "orchestrator.batch_size", "orchestrator.rollouts_per_example", "orchestrator.max_turns"),
        *("orchestrator.sampling.temperature", "orchestrator.sampling.max_tokens", "orchestrator.sampling.stop"),
        *("trainer.optim.lr", "trainer.loss.type", "warmup.max_steps", "eval.num_examples", "eval.interval_steps"),
        *("ckpt.interval_steps", "max_async_level"),
    )

    max_async_level: Literal["auto"] | Annotated[int, Field(ge=0)] = "auto"
    """How many weight versions a rollout may lag behind the weights that it trains. 0 samples and trains in turn, and a
    run in one process is reproducible bit for bit from its seed. With more, episodes continue during training; a group
    that becomes older is dropped, counted as `drop/stale` and played again. `auto` is 2 if sampling and training have
    separate GPUs, else 0."""

    output_dir: str = Field(default="outputs/rl", min_length=1)
    """Directory of the run: config, metrics, rollouts, weights, checkpoints, plot."""

    trainer_gpu_ids: GpuIds = Field(default=[])
    """GPUs to train on, as in `0` or `0,1`; a line at the start reports the choice. If empty, take the CPU, or the only
    GPU, or, of several GPUs, all that have no other use."""

    inference_gpu_ids: GpuIds = Field(default=[])
    """GPUs to sample on. If they differ from `trainer_gpu_ids`, sampler and trainer are separate processes."""

    teacher_gpu_ids: GpuIds = Field(default=[])
    """GPUs reserved for a teacher of type `model`; this version uses the first one. If empty, it is on the policy's
    device."""

    plan: Literal["refuse", "warn", "off"] = "refuse"
    """How to treat the predicted memory of the run at the start (docs/plan.md): `refuse` ends a run that cannot fit
    before anything is loaded, `warn` lets it try, and `off` computes nothing."""

    deployment: DeploymentConfig = DeploymentConfig()
    orchestrator: OrchestratorConfig
    inference: InferenceConfig = InferenceConfig()
    trainer: TrainerConfig = TrainerConfig()
    teacher: AnyTeacherConfig = Field(default=NoTeacherConfig(), discriminator="type")
    warmup: WarmupConfig = WarmupConfig()
    eval: EvalConfig = EvalConfig()
    monitors: MonitorsConfig = MonitorsConfig()

    @property
    def async_level(self) -> int:
        """`max_async_level` as a number. `auto` counts as 0 until `launch/placement.py` has chosen the processes of the
        run."""
        return 0 if self.max_async_level == "auto" else self.max_async_level

    @property
    def has_teacher(self) -> bool:
        """True if the run distils a teacher."""
        return not isinstance(self.teacher, NoTeacherConfig)


class ProbeConfig(RLConfig):
    """Measure the possible gain of distillation before any training: the held-out rewards of the policy and of its
    teacher, and the distance between the two on the policy's own rollouts. The teacher reads more context. Uses the
    same file as `rl`."""

    command: ClassVar[str] = "probe"
    examples: ClassVar[tuple[str, ...]] = (
        "slimrl probe @ experiments/context_distill/gpu.toml",
        "slimrl probe @ experiments/context_distill/rl.toml --warmup.max_steps 0 --eval.num_examples 50",
    )


class TrainerOnlyConfig(TrainingRunConfig):
    """The trainer alone, on made-up samples: measures its speed and memory without an environment."""

    command: ClassVar[str] = "trainer"
    examples: ClassVar[tuple[str, ...]] = (
        "slimrl trainer @ configs/debug/rl/train.toml",
        "slimrl trainer --max_steps 5 --data.completion_len 256 --model.dtype float32",
    )

    seq_len: int = Field(default=1024, ge=2)
    """Longest sequence in tokens."""

    output_dir: str = Field(default="outputs/trainer", min_length=1)
    """Directory of the run: config, metrics, weights, checkpoints."""

    trainer: TrainerConfig = TrainerConfig()
    data: FakeDataConfig = FakeDataConfig()


class SFTConfig(TrainingRunConfig, PassConfig):
    """Supervised fine-tuning: raise the probability of the assistant's words in given conversations."""

    command: ClassVar[str] = "sft"
    examples: ClassVar[tuple[str, ...]] = (
        "slimrl sft @ configs/debug/sft/train.toml",
        "slimrl sft --data.type expert --data.env.id reverse-text --max_steps 50 --optim.lr 1e-4",
        "slimrl sft --data.type file --data.path chats.jsonl --output_dir outputs/chats",
        "slimrl sft --data.type hub --data.name HuggingFaceH4/no_robots --model.name Qwen/Qwen3-0.6B",
    )
    seq_len: int = Field(default=1024, ge=2)
    """Longest conversation in tokens; longer ones are left out and counted."""

    batch_size: int = Field(default=32, ge=1)
    """Conversations in one training step."""

    val_interval_steps: int = Field(default=20, ge=0)
    """Steps between two measurements of the validation loss; 0 measures only before and after."""

    val_num_examples: int = Field(default=64, ge=1)
    """Held-out conversations for the validation loss, the same ones every time."""

    output_dir: str = Field(default="outputs/sft", min_length=1)
    """Directory of the run: config, metrics, weights, checkpoints."""

    data: ExpertDataConfig | FileDataConfig | HubDataConfig = Field(discriminator="type")
    optim: OptimConfig = OptimConfig()
    schedule: ScheduleConfig = ScheduleConfig()


class EvalRunConfig(EpisodesConfig, RunConfig):
    """Evaluation: the mean reward on tasks, with a 95% interval."""

    command: ClassVar[str] = "eval"
    examples: ClassVar[tuple[str, ...]] = (
        "slimrl eval @ examples/reverse_text/eval.toml --model.name outputs/rl/weights/step_100",
        "slimrl eval --env.0.id reverse-text --temperatures '[0.0]' --num_examples 50",
        """slimrl eval --env.0.id wiki-search --split validation --baselines '["random","expert"]'""",
    )
    env: list[EnvConfig] = Field(min_length=1)
    """The environments to evaluate on, one after the other, as in `--env '[{id="reverse-text"}]'`."""

    num_examples: int = Field(default=200, ge=1)
    """Tasks of each environment, drawn from the whole split by a hash, so the same ones every time. The 95% interval
    narrows with the square root of their number."""

    split: Literal["train", "validation", "test"] = "test"
    """The split of the tasks. Training uses neither `validation`, for choosing between runs, nor `test`, for the final
    result of the chosen one. Not every environment has a `validation`."""

    baselines: list[Annotated[str, Field(min_length=1)]] = Field(default=[])
    """Policies to compare the model with, task by task: other models, as in `model.name`, and scripts of the
    environment if it has them: `random` calls tools at random, `expert` is the scripted expert, `script:NAME` is
    another one."""

    temperatures: Temperatures = Field(default=[0.0, 1.0])
    """Each task is tried once at each of these; 0 takes the likeliest token."""

    sampling: EvalSamplingConfig = EvalSamplingConfig()

    output_dir: str = Field(default="outputs/eval", min_length=1)
    """Directory of the results: config, metrics, every rollout, a report to read."""

    resume: bool = False
    """Continue an interrupted evaluation in `output_dir`: finished episodes are not played again. Otherwise an existing
    evaluation is replaced."""

    inference: InferenceConfig = InferenceConfig()


_CLASSES = (RLConfig, SFTConfig, EvalRunConfig, TrainerOnlyConfig, ProbeConfig, PlayConfig, CheckConfig, ServeConfig)
COMMANDS: dict[str, type[CommandConfig]] = {kind.command: kind for kind in _CLASSES}
