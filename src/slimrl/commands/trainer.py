"""The `trainer` command: the RL trainer alone, on random batches, to measure its speed and memory."""

import io
import os
from contextlib import ExitStack
from pathlib import Path

from slimrl.config.model import ModelConfig
from slimrl.config.reading.load import Resolved
from slimrl.config.run import TrainerOnlyConfig
from slimrl.launch.advice import note_config_warnings
from slimrl.launch.parts import open_policy, open_sinks, restore_measured
from slimrl.launch.ranks import agree_on_dtype, join_ranks, run_on_first
from slimrl.launch.run_dir import open_training_dir, with_pinned_model
from slimrl.models.load import load_policy
from slimrl.monitor.console import RunConsole
from slimrl.monitor.sinks import Monitor
from slimrl.trainer.aux_losses import build_aux_losses
from slimrl.trainer.fake import FakeBatches
from slimrl.trainer.fsdp import shard
from slimrl.trainer.parallel import Ranks
from slimrl.trainer.rl.train import train
from slimrl.trainer.state import save_missing_weights, start
from slimrl.trainer.weights import weights_directory


def run_trainer(resolved: Resolved[TrainerOnlyConfig]) -> int:
    """Run the `trainer` command. Under torchrun, several processes share the work of each batch."""
    resolved = with_pinned_model(resolved)
    with join_ranks(os.environ, resolved.config.model) as (ranks, model):
        return _train_alone(resolved, ranks, model, RunConsole() if ranks.leads else RunConsole(io.StringIO()))


def _train_alone(resolved: Resolved[TrainerOnlyConfig], ranks: Ranks, model: ModelConfig, console: RunConsole) -> int:
    config, output_dir = resolved.config, Path(resolved.config.output_dir)
    directory = open_training_dir(resolved, output_dir, config.resume, console.note)
    with ExitStack() as held:  # one process alone may open the directory, and all others wait for it
        run_on_first(ranks, lambda: held.enter_context(directory))
        model = agree_on_dtype(restore_measured(model, output_dir, config.resume), ranks)
        policy = open_policy(model, console)
        note_config_warnings(config.model, "trainer.optim.lr", config.trainer.optim.lr, console)
        shard(policy.module, ranks)
        loss = config.trainer.loss.resolve()
        aux_losses = build_aux_losses(loss, policy.module, lambda: shard(load_policy(model).module, ranks))
        state = start(policy, config.trainer.optim, output_dir, config.resume, aux_losses, ranks)
        save_missing_weights(state, output_dir)
        first = state.progress.step
        batches = FakeBatches(config.data, len(policy.tokenizer), config.seed)
        sinks = open_sinks(resolved, output_dir, config.wandb, console, first) if ranks.leads else []
        with Monitor([*sinks, console.steps(config.max_steps, first, "loss/policy")]) as monitor:
            train(state, config, batches.receive, lambda version: None, monitor)
        console.note(f"weights: {weights_directory(output_dir, config.max_steps)}")
    return 0
