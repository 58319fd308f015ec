"""Starts the trainer of an `rl` run with separate processes."""

import time
from contextlib import ExitStack
from pathlib import Path

from slimrl.config.reading.load import Resolved
from slimrl.config.run import RLConfig
from slimrl.errors import UserError
from slimrl.launch.extensions import begin_hooks
from slimrl.launch.open_dir import lock_patience_s
from slimrl.launch.parts import TrainerParts, open_monitor, open_policy
from slimrl.launch.placement import device_of, place
from slimrl.launch.ranks import console_of_rank, open_shared_run, run_on_first
from slimrl.launch.supervised import prepare_warm_up, without_needless_warm_up
from slimrl.launch.training import Run
from slimrl.trainer.checkpoint import read_progress
from slimrl.trainer.fsdp import shard
from slimrl_cluster.launch.agreement import announcement
from slimrl_cluster.launch.elsewhere import SamplingElsewhere
from slimrl_cluster.launch.weights import PublishedWeights
from slimrl_cluster.services.ray_cluster import open_roster


def run_trainer_of_rl(resolved: Resolved[RLConfig]) -> int:
    """Run the `trainer` command with a settings file of `rl`: train on batches from an orchestrator in another process.
    Under torchrun, several processes share the work of each batch."""
    began, console = time.monotonic(), console_of_rank()
    placed = without_needless_warm_up(place(resolved.config, console.note, "trainer"), console.note)
    config = device_of(placed, "trainer")
    output_dir = Path(config.output_dir)
    with ExitStack() as held:
        shared = open_shared_run(resolved, config.model, console, config.trainer_gpu_ids)
        ranks, model = held.enter_context(shared)
        if ranks.num < (num := config.deployment.num_trainers) and not config.trainer_gpu_ids:
            raise UserError(
                f"deployment.num_trainers = {num}, and {ranks.num} was started: start them by `torchrun "
                f"--nproc-per-node {num} -m slimrl.trainer.rl.train`."
            )
        if resolved.config.deployment.type != "ray":
            quiet = placed.model_copy(update={"plan": "off" if placed.plan == "off" else "warn"})  # `rl` printed it
            run_on_first(ranks, lambda: begin_hooks(quiet, output_dir, lambda text, style: None))
        past = read_progress(output_dir) if config.resume else None
        roster = open_roster(config, "trainer", console.note)
        own = held.enter_context(roster.reserve(lock_patience_s(resolved.config))) if ranks.leads else None
        first = past.step if past else 0
        with open_monitor(resolved, console, first, ranks.leads) as monitor:
            policy = open_policy(model, console)
            parts = TrainerParts(config, output_dir, policy, console, ranks)
            sampling = SamplingElsewhere(parts, roster, PublishedWeights(parts, roster), first)
            warmup = prepare_warm_up(parts, past)
            shard(policy.module, ranks)
            # Announce only now, after an earlier process's files were deleted, so that no part mistakes them for new
            # files.
            run_on_first(ranks, sampling.clear)
            if own:
                own.announce(announcement(resolved.config, policy, first))
            run = Run(parts, sampling, past, began)
            stages = run.train(warmup, monitor, ())
        if ranks.leads:
            run.report(stages)
    return 0
