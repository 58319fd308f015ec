"""The `sft` command: supervised fine-tuning on given conversations."""

from pathlib import Path

from slimrl.config.reading.load import Resolved
from slimrl.config.run import SFTConfig
from slimrl.io.run_dir import RunDir
from slimrl.launch.extensions import end_hooks
from slimrl.launch.parts import open_monitor, open_policy
from slimrl.launch.ranks import console_of_rank, open_shared_run
from slimrl.launch.supervised import load_demonstrations, load_experts
from slimrl.models.history import SUPERVISED, read_history
from slimrl.monitor.plots import plot_run
from slimrl.trainer.fsdp import shard
from slimrl.trainer.sft.train import train as train_sft
from slimrl.trainer.state import start


def run_sft(resolved: Resolved[SFTConfig]) -> int:
    """Run the `sft` command: train on conversations, plot, and print the path of the weights. Under torchrun, several
    processes share the work of each batch."""
    console, config, output_dir = console_of_rank(), resolved.config, Path(resolved.config.output_dir)
    with open_shared_run(resolved, config.model, console) as (ranks, model):
        experts = load_experts(config, console)  # before the model, which takes longer
        policy = open_policy(model, console)
        conversations = load_demonstrations(config, experts, policy.chat, console)
        shard(policy.module, ranks)
        state = start(policy, config.optim, output_dir, config.resume, ranks=ranks)
        state.history = (*read_history(Path(config.model.name)).trained, SUPERVISED)
        first = state.progress.step
        with open_monitor(resolved, console, first, ranks.leads) as monitor:
            monitor.add(console.steps(config.max_steps, first, "sft/loss"))
            train_sft(state, config, conversations, monitor)
        if ranks.leads:
            console.note(f"plots: {', '.join(map(str, plot_run(output_dir)))}")
            end_hooks(output_dir, config.max_steps, console)
        console.note(f"weights: {RunDir(output_dir).weights_of(config.max_steps)}")
    return 0
