"""The `sft` command: supervised fine-tuning on given conversations."""

import io
import os
from contextlib import ExitStack
from pathlib import Path

from slimrl.config.model import ModelConfig
from slimrl.config.reading.load import Resolved
from slimrl.config.run import SFTConfig
from slimrl.launch.advice import note_config_warnings
from slimrl.launch.demonstrations import load_demonstrations
from slimrl.launch.parts import open_policy, open_sinks, restore_measured
from slimrl.launch.ranks import agree_on_dtype, join_ranks, run_on_first
from slimrl.launch.run_dir import open_training_dir, with_pinned_model
from slimrl.models.history import SUPERVISED, read_history
from slimrl.monitor.console import RunConsole
from slimrl.monitor.plots import plot_run
from slimrl.monitor.sinks import Monitor
from slimrl.trainer.fsdp import shard
from slimrl.trainer.parallel import Ranks
from slimrl.trainer.sft.train import train as train_sft
from slimrl.trainer.state import save_missing_weights, start
from slimrl.trainer.weights import weights_directory


def run_sft(resolved: Resolved[SFTConfig]) -> int:
    """Run the `sft` command: train on conversations, plot, and say where the weights are. Under torchrun, several
    processes share the work of each batch."""
    resolved = with_pinned_model(resolved)
    with join_ranks(os.environ, resolved.config.model) as (ranks, model):
        return _train(resolved, ranks, model, RunConsole() if ranks.leads else RunConsole(io.StringIO()))


def _train(resolved: Resolved[SFTConfig], ranks: Ranks, model: ModelConfig, console: RunConsole) -> int:
    config, output_dir = resolved.config, Path(resolved.config.output_dir)
    directory = open_training_dir(resolved, output_dir, config.resume, console.note)
    with ExitStack() as held:  # one process alone may open the directory, and all others wait for it
        run_on_first(ranks, lambda: held.enter_context(directory))
        model = agree_on_dtype(restore_measured(model, output_dir, config.resume), ranks)
        policy = open_policy(model, console)
        note_config_warnings(config.model, "optim.lr", config.optim.lr, console)
        conversations = load_demonstrations(config, policy.chat, console)
        shard(policy.module, ranks)
        state = start(policy, config.optim, output_dir, config.resume, ranks=ranks)
        state.history = (*read_history(Path(config.model.name)), SUPERVISED)
        save_missing_weights(state, output_dir)
        first = state.progress.step
        sinks = open_sinks(resolved, output_dir, config.wandb, console, first) if ranks.leads else []
        with Monitor([*sinks, console.steps(config.max_steps, first, "sft/loss")]) as monitor:
            train_sft(state, config, conversations, monitor)
        if ranks.leads:
            console.note(f"plots: {', '.join(map(str, plot_run(output_dir)))}")
        console.note(f"weights: {weights_directory(output_dir, config.max_steps)}")
    return 0
