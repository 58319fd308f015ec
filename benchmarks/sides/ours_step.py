"""Our side of `rl_step.py`: orchestrator, engine and train step of the `rl` command, without its console and files."""

import time
from collections.abc import Sequence
from importlib.metadata import version

import torch

from benchmarks.harness.step_work import (
    LEARNING_RATE,
    MAX_GRAD_NORM,
    NEW_TOKENS,
    NUM_ROLLOUTS,
    PROMPTS,
    ROLLOUTS_PER_PROMPT,
    WARM_UP_STEPS,
    SideReport,
    reward,
    side_arguments,
)
from slimrl.config.loss import LossConfig
from slimrl.config.model import ModelConfig
from slimrl.config.rollout import EnvConfig, OrchestratorConfig, SamplingConfig
from slimrl.config.train import OptimConfig, TrainerConfig
from slimrl.inference.engine import Engine
from slimrl.inference.local_client import LocalClient
from slimrl.models.load import load_policy
from slimrl.orchestrator.orchestrator import Orchestrator
from slimrl.rollout.episode import RolloutContext
from slimrl.trainer.optim import MasterAdamW
from slimrl.trainer.step import TrainStep
from slimrl.types import Message, Split, Task, Taskset, Turn

SEQ_LEN = 256


class Questions(Taskset):
    """The taskset of the benchmark: one question, one answer."""

    def tasks(self, split: Split) -> Sequence[Task]:
        return [Task(id=prompt, data={}) for prompt in PROMPTS]

    def environment(self, task: Task) -> "Question":
        return Question(task.id)


class Question:
    """One episode."""

    def __init__(self, prompt: str) -> None:
        self._prompt = prompt

    async def start(self) -> list[Message]:
        return [{"role": "user", "content": self._prompt}]

    async def step(self, reply: str) -> Turn:
        return Turn(done=True, reward=reward(reply))


def main() -> None:
    parser = side_arguments()
    parser.add_argument("--micro-batch-tokens", type=int, required=True)
    arguments = parser.parse_args()
    policy = load_policy(ModelConfig(name=str(arguments.model), device=arguments.device, dtype=arguments.dtype))
    trainer = TrainerConfig(
        optim=OptimConfig(lr=LEARNING_RATE, max_grad_norm=MAX_GRAD_NORM),
        loss=LossConfig(type="grpo"),
        micro_batch_tokens=arguments.micro_batch_tokens,
    )
    experience = OrchestratorConfig(
        env=[EnvConfig(id=f"{__file__}:Questions")],
        batch_size=NUM_ROLLOUTS,
        rollouts_per_example=ROLLOUTS_PER_PROMPT,
        sampling=SamplingConfig(max_tokens=NEW_TOKENS),
        resample_factor=1,
    )
    engine = Engine(policy.module, frozenset(), NUM_ROLLOUTS, SEQ_LEN)  # nothing stops a completion before its end
    client = LocalClient(engine, policy.chat.text)
    context = RolloutContext(client, policy.chat, experience, SEQ_LEN, NUM_ROLLOUTS)
    orchestrator = Orchestrator(
        [Questions()], context, experience, trainer.loss.resolve(), seed=0, record=lambda step, records: None
    )
    train_step = TrainStep(policy.module, MasterAdamW(policy.module, trainer.optim), trainer, SEQ_LEN)

    report = SideReport(
        side="slimrl",
        versions={name: version(name) for name in ("slimrl", "torch", "transformers")},
        settings=f"{arguments.dtype} compute, float32 master weights, micro-batches of {arguments.micro_batch_tokens} "
        "tokens",
        prompt_tokens=[len(policy.chat.opening([{"role": "user", "content": prompt}])) for prompt in PROMPTS],
        num_threads=torch.get_num_threads(),
    )
    for step in range(WARM_UP_STEPS + arguments.steps):
        began = time.perf_counter()
        batch = orchestrator.collect(step)
        engine.offload()
        sampled = time.perf_counter()
        metrics = train_step(batch, lr_factor=1.0, version=step)
        engine.publish(step + 1)
        if arguments.device == "cuda":
            torch.cuda.synchronize()
        report.add_step(step, began, sampled, time.perf_counter())
        assert len(batch.samples) == NUM_ROLLOUTS, "a rollout was dropped"
        assert metrics["loss/tokens"] == NUM_ROLLOUTS * NEW_TOKENS, "a completion ended early"
    if arguments.device == "cuda":
        report.peak_memory_gb = torch.cuda.max_memory_allocated() / 1e9
    report.write(arguments.output)


if __name__ == "__main__":
    main()
