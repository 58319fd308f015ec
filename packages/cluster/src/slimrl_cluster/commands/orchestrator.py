"""Implements the `orchestrator` command. It plays episodes with a sampler's model, and makes batches for a trainer in
another process.

It also evaluates the model: before training, between training steps if `eval.interval_steps` is set, and at the end. It
writes each result to a file in the run's directory, for which the trainer waits (`launch/elsewhere.py`).
"""

import time
from dataclasses import replace
from pathlib import Path

from slimrl.config.reading.load import Resolved
from slimrl.config.run import RLConfig
from slimrl.launch.held_out import recall_stage
from slimrl.launch.open_dir import lock_patience_s
from slimrl.launch.parts import SamplingParts, concurrent_episodes, make_held_out
from slimrl.launch.placement import place
from slimrl.launch.sampling import BASE, FINAL, START, base_name, make_orchestrator, stage_after, start_name
from slimrl.launch.supervised import without_needless_warm_up
from slimrl.launch.tasksets import load_tasksets
from slimrl.launch.teacher import make_distillation
from slimrl.models.load import load_chat
from slimrl.monitor.console import RunConsole
from slimrl.rollout.episode import RolloutContext
from slimrl.rollout.worker.program import start_here
from slimrl.trainer.checkpoint import read_progress
from slimrl.types import Metrics
from slimrl_cluster.launch.agreement import check_agreement, with_announced_date
from slimrl_cluster.launch.weights import SampledWeights, make_replicas
from slimrl_cluster.services.ray_cluster import open_roster
from slimrl_cluster.transport.batch_file import write_batch


def run_orchestrator(resolved: Resolved[RLConfig]) -> int:
    """Run the `orchestrator` command: make a batch for each training step. Each batch is sampled from weights that are
    at most `max_async_level` training steps old."""
    console = RunConsole()
    config = place(resolved.config, console.note, "orchestrator")
    config = without_needless_warm_up(config, console.note)
    output_dir, roster = Path(config.output_dir), open_roster(config, "orchestrator", console.note)
    with roster.reserve(lock_patience_s(resolved.config)) as own:
        own.announce({})
        starts = [start_here] * config.deployment.num_workers
        tasksets = load_tasksets(config.orchestrator.env, config.orchestrator.episode_timeout_s, starts)
        trainer = roster.await_part("trainer")  # the trainer has checked the checkpoint from which to continue
        past = read_progress(output_dir) if config.resume else None
        first = past.step if past else 0
        check_agreement(trainer, resolved.config, first)
        chat = load_chat(with_announced_date(config.model, trainer))
        client = make_replicas(config, roster, chat.stop_ids)
        context = RolloutContext(client, chat, config.orchestrator, config.seq_len, concurrent_episodes(config))
        held_out = make_held_out(config, tasksets, context, output_dir, console)
        parts = SamplingParts(config, output_dir, console, context, tasksets, held_out)
        distillation = make_distillation(parts, trainer["dtype"])
        orchestrator = make_orchestrator(parts, distillation, past)
        weights = SampledWeights(roster, client)

        # The trainer publishes its first weights after its warm-up. Until then the sampler has the base model's
        # weights.
        if config.warmup.max_steps and not recall_stage(output_dir, BASE, console.note):
            client.check()  # raises UserError if the sampler has an earlier run's weights
            held_out.measure(BASE, base_name(config))
        weights.await_version(first)
        if not recall_stage(output_dir, START, console.note):
            held_out.measure(START, start_name(config))

        for step in range(first, config.max_steps):
            if config.eval.is_due(step):
                weights.await_version(step)
                held_out.measure(*stage_after(step))
            began = time.perf_counter()
            # Make each batch at most one step ahead, because a later batch contains groups from newer weights.
            weights.await_version(max(first, step - min(1, config.async_level)))
            waited: Metrics = {"time/wait_weights_s": time.perf_counter() - began}
            with weights.keep_new():
                batch = orchestrator.collect(step)
            write_batch(replace(batch, metrics=batch.metrics | waited), roster.run.batch_of(step))
        orchestrator.close()
        weights.await_version(config.max_steps)
        held_out.measure(*FINAL)
    return 0
