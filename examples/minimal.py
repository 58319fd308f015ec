"""Reinforcement learning of a language model on one page: tasks, episodes, advantages, step.

    uv run python examples/minimal.py              # some minutes on two CPU cores; no GPU, no network
    uv run python examples/minimal.py --steps 40 --seed 1

The parts are those of `slimrl rl`; what that adds is a file of settings, evaluation with intervals, several
environments and turns, checkpoints to resume from, and metrics (docs: "The life of a rollout").
"""

import argparse
import asyncio
import random
import statistics

from slimrl.config.loss import LossConfig, ResolvedLoss
from slimrl.config.model import ModelConfig
from slimrl.config.rollout import LimitsConfig
from slimrl.config.train import OptimConfig, TrainerConfig
from slimrl.environments.reverse_text import ReverseText
from slimrl.inference.engine import Engine
from slimrl.inference.local_client import LocalClient
from slimrl.models.load import Policy, load_policy
from slimrl.orchestrator.advantages import token_advantages, turn_advantages
from slimrl.rollout.episode import EpisodeSpec, RolloutContext
from slimrl.rollout.games import run_groups
from slimrl.trainer.optim import MasterAdamW
from slimrl.trainer.step import TrainStep
from slimrl.transport.base import Batch
from slimrl.types import Rollout, Sample, SamplingParams, Task

SEQ_LEN = 128  # tokens of a whole conversation
STOP = ("</reversed_text>",)


def main() -> None:
    args = parse_args()
    rng = random.Random(args.seed)

    # The policy is one PyTorch module: the engine samples from the very weights that the trainer changes.
    policy = load_policy(ModelConfig(name=args.model))
    engine = Engine(policy.module, policy.chat.stop_ids, args.groups * args.group_size, SEQ_LEN)
    client, num = LocalClient(engine, policy.chat.text), args.groups * args.group_size
    context = RolloutContext(client, policy.chat, LimitsConfig(max_turns=1), SEQ_LEN, num)

    optimizer = MasterAdamW(policy.module, OptimConfig(lr=args.lr))
    loss = LossConfig(type="grpo")
    train_step = TrainStep(policy.module, optimizer, TrainerConfig(loss=loss), SEQ_LEN)

    taskset = ReverseText(style="code", min_length=4, max_length=10)
    train_tasks, test_tasks = list(taskset.tasks("train")), list(taskset.tasks("test"))[: args.test]

    def play(tasks: list[Task], group_size: int, temperature: float) -> list[list[Rollout]]:
        """Play `group_size` episodes on each task. A failed episode costs itself, not the run."""
        groups = []
        for task in tasks:
            seeds = [rng.getrandbits(32) for _ in range(group_size)]
            sampling = [SamplingParams(32, temperature, stop=STOP, seed=seed) for seed in seeds]
            groups.append([EpisodeSpec(taskset, task, params) for params in sampling])
        played = asyncio.run(run_groups(groups, context))
        return [[rollout for rollout in group if not rollout.failure] for group in played]

    def evaluate() -> float:
        """The mean reward on held-out tasks, greedy."""
        return statistics.fmean(rollout.reward for group in play(test_tasks, 1, 0.0) for rollout in group)

    print(f"base model: held-out reward {evaluate():.3f}", flush=True)

    # The base model never writes the tags that the task asks for, and RL can only strengthen what is sometimes sampled.
    # A few supervised steps show it the form: REINFORCE on demonstrations with advantage 1 raises their log-likelihood.
    imitate = TrainStep(policy.module, optimizer, TrainerConfig(loss=LossConfig(type="reinforce")), SEQ_LEN)
    for _ in range(args.warmup):
        samples = [demonstration(taskset, task, policy) for task in rng.sample(train_tasks, 32)]
        imitate(Batch(tuple(samples), 1.0), lr_factor=args.warmup_lr / args.lr, version=0)
        engine.publish(0)
    print(f"after {args.warmup} supervised steps: held-out reward {evaluate():.3f}", flush=True)

    for step in range(args.steps):
        groups = play(rng.sample(train_tasks, args.groups), args.group_size, 1.0)
        samples = [sample for group in groups for sample in credit(group, loss.resolve())]
        metrics = train_step(Batch(tuple(samples), 1.0), lr_factor=1.0, version=step)
        engine.publish(step + 1)  # the weights are in place already; this drops the keys and values of the old ones
        reward = statistics.fmean(rollout.reward for group in groups for rollout in group)
        gap = metrics.get("guard/mean_logprob_gap", 0.0)
        print(f"step {step + 1}/{args.steps}: reward {reward:.3f}, sampler and trainer {gap:.4f} apart", flush=True)

    print(f"after RL: held-out reward {evaluate():.3f}")


def credit(group: list[Rollout], loss: ResolvedLoss) -> list[Sample]:
    """Compare the rollouts of one task: a token is worth how much better its rollout did than the others."""
    if not group:
        return []
    advantages_GK = turn_advantages(group, loss)
    if not any(value for values in advantages_GK for value in values):
        return []  # all did equally well: nothing to learn
    return [
        Sample(
            token_ids_T=rollout.token_ids_T,
            loss_mask_T=rollout.loss_mask_T,
            logprobs_T=rollout.logprobs_T,
            advantages_T=token_advantages(rollout, advantages_K),
            version=min(rollout.versions_T),
        )
        for rollout, advantages_K in zip(group, advantages_GK, strict=True)
    ]


def demonstration(taskset: ReverseText, task: Task, policy: Policy) -> Sample:
    """An expert's conversation with advantage 1; no sampler drew it (version -1), so it has no log-probabilities."""
    token_ids, mask = policy.chat.encode_conversation(taskset.scripts["expert"](task, 0))
    num_tokens = len(token_ids)
    return Sample(tuple(token_ids), tuple(mask), (0.0,) * num_tokens, (1.0,) * num_tokens, version=-1)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m", help="a Hub id, a directory, a .gguf file")
    parser.add_argument("--steps", type=int, default=20, help="RL steps")
    parser.add_argument("--warmup", type=int, default=3, help="supervised steps before")
    parser.add_argument("--groups", type=int, default=8, help="tasks in one step")
    parser.add_argument("--group-size", type=int, default=8, help="rollouts of each task")
    parser.add_argument("--lr", type=float, default=2e-5, help="learning rate of RL")
    parser.add_argument("--warmup-lr", type=float, default=1e-4, help="learning rate of the supervised steps")
    parser.add_argument("--test", type=int, default=100, help="held-out tasks")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


if __name__ == "__main__":
    main()
