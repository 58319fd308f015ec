"""The `trainer` command. It trains on random batches, to measure the speed and memory of the trainer."""

from functools import partial
from pathlib import Path

from slimrl.config.reading.load import Resolved
from slimrl.config.run import TrainerOnlyConfig
from slimrl.io.run_dir import RunDir
from slimrl.launch.parts import open_monitor, open_policy
from slimrl.launch.ranks import console_of_rank, open_shared_run
from slimrl.models.load import load_policy
from slimrl.trainer.aux_losses import build_aux_losses
from slimrl.trainer.fake import fake_batch
from slimrl.trainer.fsdp import shard
from slimrl.trainer.rl.train import train
from slimrl.trainer.state import save_missing_weights, start


def run_trainer(resolved: Resolved[TrainerOnlyConfig]) -> int:
    """Run the `trainer` command. Under torchrun, several processes share the work of each batch."""
    console, config, output_dir = console_of_rank(), resolved.config, Path(resolved.config.output_dir)
    with open_shared_run(resolved, config.model, console) as (ranks, model):
        policy = open_policy(model, console)
        shard(policy.module, ranks)
        loss = config.trainer.loss.resolve()
        aux_losses = build_aux_losses(loss, policy.module, lambda: shard(load_policy(model).module, ranks))
        state = start(policy, config.trainer.optim, output_dir, config.resume, aux_losses, ranks)
        save_missing_weights(state, output_dir)
        first = state.progress.step
        receive = partial(fake_batch, config.data, len(policy.tokenizer), config.seed)
        with open_monitor(resolved, console, first, ranks.leads) as monitor:
            monitor.add(console.steps(config.max_steps, first, "loss/policy"))
            train(state, config, receive, lambda version: None, monitor)
        console.note(f"weights: {RunDir(output_dir).weights_of(config.max_steps)}")
    return 0
