"""One step of every loss, alone or as one of several processes. No test: `test_parallel.py` runs it.

python -m tests.trainer.rank_steps RANK NUM STORE_FILE OUTPUT_FILE
"""

import sys
from dataclasses import replace
from pathlib import Path
from typing import get_args

import torch
from torch import Tensor, distributed

from slimrl.config.loss import POLICIES, Aggregation, LossConfig
from slimrl.config.train import OptimConfig, TrainerConfig
from slimrl.models.shards import whole
from slimrl.trainer.aux_losses import build_aux_losses
from slimrl.trainer.fsdp import shard
from slimrl.trainer.optim import MasterAdamW
from slimrl.trainer.parallel import Ranks
from slimrl.trainer.step import TrainStep
from slimrl.trainer.token_log import NAMES, TokenLog
from slimrl.transport.base import Batch
from slimrl.types import Metrics, Sample
from tests.trainer.samples import near_policy, policy_module, random_samples, reference_module

SEQ_LEN, MICRO_BATCH_TOKENS = 100, 60
OPTIM = OptimConfig(lr=1e-3, max_grad_norm=1e9)  # nothing is clipped, so the first moment is the gradient's tenth

LOSSES = {
    f"{policy}/{aggregation}": LossConfig(policy=policy, aggregation=aggregation)
    for policy in POLICIES
    for aggregation in get_args(Aggregation)
} | {
    "kl": LossConfig(kl_beta=0.3),
    "gae": LossConfig(type="ppo", advantage="gae", gamma=0.99),
    "gae and kl of one sample": LossConfig(type="ppo", advantage="gae", kl_beta=0.3),
}
Found = dict[str, tuple[dict[str, Tensor], Metrics]]  # of each loss: gradients by name, and metrics


def steps(ranks: Ranks) -> Found:
    """What one step of each loss gives on the same samples."""
    reference = reference_module("llama")
    close, far = (near_policy(random_samples(3), reference, spread) for spread in (0.0004, 0.5))
    return {
        name: step(loss, close if loss.policy == "gspo" else far[:1] if "one sample" in name else far, ranks)
        for name, loss in LOSSES.items()
    }


def step(loss: LossConfig, samples: list[Sample], ranks: Ranks) -> tuple[dict[str, Tensor], Metrics]:
    module = shard(policy_module("llama"), ranks)
    aux_losses = build_aux_losses(loss.resolve(), module, lambda: shard(policy_module("llama", seed=1), ranks))
    heads = {name: head for aux_loss in aux_losses for name, head in aux_loss.heads.items()}
    optimizer = MasterAdamW(module, OPTIM, heads, ranks)
    config = TrainerConfig(loss=loss, optim=OPTIM, micro_batch_tokens=MICRO_BATCH_TOKENS)
    old = tuple(replace(sample, version=-1, rewards_T=sample.advantages_T) for sample in samples)
    log = TokenLog(Path("unused"), ranks)  # the samples are of no file, so nothing is written
    metrics = TrainStep(module, optimizer, config, SEQ_LEN, aux_losses, ranks)(Batch(old, 1.0), 1.0, 0, log)
    metrics |= {f"token {name}": float(row.float().abs().sum()) for name, row in zip(NAMES, log.table, strict=True)}
    state = optimizer.state_dict()["parameters"]
    return {name: whole(part["mean"]) / (1 - OPTIM.beta1) for name, part in state.items()}, metrics


def main() -> None:
    rank, num, store, output = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), Path(sys.argv[4])
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=store.as_uri(), rank=rank, world_size=num)
    torch.save(steps(Ranks(rank, num)), output)
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
