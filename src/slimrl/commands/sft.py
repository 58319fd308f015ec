"""The `sft` command: supervised fine-tuning on given conversations."""

from pathlib import Path

from slimrl.config.reading.load import Resolved
from slimrl.config.run import SFTConfig
from slimrl.launch.advice import note_config_warnings
from slimrl.launch.demonstrations import load_demonstrations
from slimrl.launch.parts import open_policy, open_sinks, restore_measured
from slimrl.launch.run_dir import open_training_dir, with_pinned_model
from slimrl.models.history import SUPERVISED, read_history
from slimrl.monitor.console import RunConsole
from slimrl.monitor.plots import plot_run
from slimrl.monitor.sinks import Monitor
from slimrl.trainer.sft.train import train as train_sft
from slimrl.trainer.state import save_missing_weights, start
from slimrl.trainer.weights import weights_directory


def run_sft(resolved: Resolved[SFTConfig]) -> int:
    """Run the `sft` command: train on conversations, plot, and say where the weights are."""
    resolved = with_pinned_model(resolved)
    config, console = resolved.config, RunConsole()
    with open_training_dir(resolved, Path(config.output_dir), config.resume, console.note) as output_dir:
        policy = open_policy(restore_measured(config.model, output_dir, config.resume), console)
        note_config_warnings(config.model, "optim.lr", config.optim.lr, console)
        conversations = load_demonstrations(config, policy.chat, console)
        state = start(policy, config.optim, output_dir, config.resume)
        state.history = (*read_history(Path(config.model.name)), SUPERVISED)
        save_missing_weights(state, output_dir)
        first = state.progress.step
        sinks = open_sinks(resolved, output_dir, config.wandb, console, first)
        with Monitor([*sinks, console.steps(config.max_steps, first, "sft/loss")]) as monitor:
            train_sft(state, config, conversations, monitor)
        console.note(f"plots: {', '.join(map(str, plot_run(output_dir)))}")
        console.note(f"weights: {weights_directory(output_dir, config.max_steps)}")
    return 0
