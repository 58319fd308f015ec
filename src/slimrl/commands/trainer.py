"""The `trainer` command: the trainer of an `rl` run whose parts are processes; or alone, on random batches, to
measure its speed and memory."""

import time
from contextlib import ExitStack
from functools import cache
from pathlib import Path

from slimrl.config.reading.load import Resolved
from slimrl.config.run import RLConfig, TrainerOnlyConfig
from slimrl.errors import UserError
from slimrl.launch.advice import note_config_warnings
from slimrl.launch.agreement import announcement
from slimrl.launch.health import open_watches
from slimrl.launch.parts import TrainerParts, open_policy, open_sinks
from slimrl.launch.placement import device_of, place
from slimrl.launch.planning import foretell_quietly, keep_plan
from slimrl.launch.ranks import run_on_first
from slimrl.launch.run_dir import lock_patience_s, with_pinned_model
from slimrl.launch.sampling import SamplingElsewhere
from slimrl.launch.shared_run import console_of_rank, open_shared_run
from slimrl.launch.stages import reference_module
from slimrl.launch.tasksets import load_tasksets
from slimrl.launch.training import Run
from slimrl.launch.warm_up import prepare_warm_up, without_needless_warm_up
from slimrl.launch.weights import PublishedWeights
from slimrl.models.load import load_policy
from slimrl.monitor.sinks import Monitor
from slimrl.trainer.aux_losses import build_aux_losses
from slimrl.trainer.checkpoint import read_progress
from slimrl.trainer.fake import FakeBatches
from slimrl.trainer.fsdp import shard
from slimrl.trainer.rl.train import train
from slimrl.trainer.state import save_missing_weights, start
from slimrl.trainer.weights import weights_directory
from slimrl.transport.roster import Roster
from slimrl.transport.run_files import RunFiles


def run_trainer_of_rl(resolved: Resolved[RLConfig]) -> int:
    """Run the `trainer` command on a file of `rl`: train on what an orchestrator collects in another process. Under
    torchrun, several processes share the work of each batch."""
    began, console, resolved = time.monotonic(), console_of_rank(), with_pinned_model(resolved)
    placed = without_needless_warm_up(place(resolved.config, console.note, "trainer"), console.note)
    config = device_of(placed, "trainer")
    output_dir, roster = Path(config.output_dir), Roster(Path(config.output_dir))
    with ExitStack() as held:
        shared = held.enter_context(open_shared_run(resolved, config.model, console, config.trainer_gpu_ids))
        ranks = shared.ranks
        if ranks.num < (num := config.deployment.num_trainers) and not config.trainer_gpu_ids:
            raise UserError(
                f"deployment.num_trainers = {num}, and {ranks.num} was started: start them by `torchrun "
                f"--nproc-per-node {num} -m slimrl.trainer.rl.train`."
            )
        if resolved.config.deployment.type != "ray":
            run_on_first(ranks, lambda: keep_plan(foretell_quietly(placed), output_dir))
        past = read_progress(output_dir) if config.resume else None
        entry = held.enter_context(roster.reserve("trainer", lock_patience_s(resolved.config))) if ranks.leads else None
        first = past.step if past else 0
        sinks = open_sinks(resolved, output_dir, console, first) if ranks.leads else []
        watches = open_watches(config, output_dir, console, first) if ranks.leads else []
        with Monitor(sinks, watches) as monitor:
            policy = open_policy(shared.model, console)
            parts = TrainerParts(config, output_dir, policy, console, ranks)
            files = RunFiles(output_dir, config.deployment.timeout_s, console.note, roster, "trainer")
            sampling = SamplingElsewhere(parts, files, PublishedWeights(parts, files), first)
            warmup = None
            if config.warmup.max_steps and not past:
                tasksets = load_tasksets(config.orchestrator.env, config.orchestrator.episode_timeout_s)
                warmup = prepare_warm_up(parts, tasksets)
            shard(policy.module, ranks)
            # The others may begin now: nothing of an earlier process is left that they could take for this one's.
            run_on_first(ranks, sampling.clear)
            if entry:
                roster.announce(entry, announcement(resolved.config, policy, first))
            run = Run(parts, sampling, cache(lambda: reference_module(parts)), past, began)
            stages = run.train(warmup, monitor, ())
        if ranks.leads:
            run.report(stages)
    return 0


def run_trainer(resolved: Resolved[TrainerOnlyConfig]) -> int:
    """Run the `trainer` command. Under torchrun, several processes share the work of each batch."""
    console, resolved = console_of_rank(), with_pinned_model(resolved)
    config, output_dir = resolved.config, Path(resolved.config.output_dir)
    with open_shared_run(resolved, config.model, console) as shared:
        ranks, model = shared.ranks, shared.model
        policy = open_policy(model, console)
        note_config_warnings(config.model, "trainer.optim.lr", config.trainer.optim.lr, console)
        shard(policy.module, ranks)
        loss = config.trainer.loss.resolve()
        aux_losses = build_aux_losses(loss, policy.module, lambda: shard(load_policy(model).module, ranks))
        state = start(policy, config.trainer.optim, output_dir, config.resume, aux_losses, ranks)
        save_missing_weights(state, output_dir)
        first = state.progress.step
        batches = FakeBatches(config.data, len(policy.tokenizer), config.seed)
        sinks = open_sinks(resolved, output_dir, console, first) if ranks.leads else []
        with Monitor([*sinks, console.steps(config.max_steps, first, "loss/policy")]) as monitor:
            train(state, config, batches.receive, lambda version: None, monitor)
        console.note(f"weights: {weights_directory(output_dir, config.max_steps)}")
    return 0
