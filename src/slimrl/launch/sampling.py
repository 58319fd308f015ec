"""The sampling half of a run makes batches and evaluations. This module has the interface of the sampling half to the
trainer, and an implementation in the trainer's process. Deployments (`slimrl.deployments`) have implementations in
other processes, which make batches before the trainer requests them."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from slimrl.config.run import RLConfig
from slimrl.io.files import replace_file
from slimrl.io.run_dir import RunDir
from slimrl.io.user_code import call_user_code
from slimrl.launch.parts import Parts, SamplingParts
from slimrl.models.history import read_history
from slimrl.monitor.rollouts import RolloutRecord, write_rollouts
from slimrl.monitor.summary import Stage
from slimrl.orchestrator.distill import Distillation
from slimrl.orchestrator.orchestrator import Orchestrator
from slimrl.trainer.checkpoint import Progress
from slimrl.transport.base import Batch
from slimrl.types import Metrics

TOKENIZER = "tokenizer/tokenizer.json"
# The names of the stages of the held-out evaluation in file names.
BASE, START = "base", "start"
FINAL = "final", "after RL"


def base_name(config: RLConfig) -> str:
    """Return the name of the evaluation before the warm-up."""
    return "before warm-up" if read_history(Path(config.model.name)).trained else "base model"


def start_name(config: RLConfig) -> str:
    """Return the name of the evaluation right before RL."""
    return "after warm-up" if config.warmup.max_steps else "before RL"


def stage_after(step: int) -> tuple[str, str]:
    """Return the slug and the name of the evaluation after `step` training steps."""
    return f"step_{step}", f"after {step} steps"


class Sampling(Protocol):
    """The interface of the sampling half to the trainer."""

    def receive(self, step: int) -> Batch:
        """Return the batch of a step."""

    def publish(self, version: int) -> None:
        """Sample from the trainer's current weights from now on. `version` is the version of these weights."""

    def measure(self, slug: str, name: str) -> tuple[Stage, Metrics]:
        """Evaluate the newest published weights on held-out tasks; see `HeldOut.measure`."""

    def make_room(self) -> None:
        """Free the memory that only sampling needs, and stop sampling until `publish`."""

    def close(self) -> None:
        """Cancel the episodes in flight, because no batch needs them."""


class SamplingHere:
    """Sampling in this process. Sampling and training take turns. `past` is the progress of earlier processes."""

    def __init__(self, parts: Parts, distillation: Distillation | None, past: Progress | None = None) -> None:
        self._parts = parts
        self._orchestrator = make_orchestrator(parts, distillation, past)

    def receive(self, step: int) -> Batch:
        # The counter is never reset, so compute the difference over this step.
        counters = self._parts.engine.counters
        before = counters.prefilled
        batch = self._orchestrator.collect(step)
        # The trainer and the engine take turns. New episodes start before the trainer's turn, so that their
        # environments work during training. So sample until no request is open. Stop at twice the tokens of this step,
        # because otherwise training might never start.
        self._parts.client.sample_on(2 * int(batch.metrics["rollout/tokens_sampled"]))
        self.make_room()
        return replace(batch, metrics=batch.metrics | {"perf/prefill_tokens": float(counters.prefilled - before)})

    def publish(self, version: int) -> None:
        self._parts.engine.publish(version)
        self._parts.client.resume()

    def close(self) -> None:
        self._orchestrator.close()

    def measure(self, slug: str, name: str) -> tuple[Stage, Metrics]:
        return self._parts.held_out.measure(slug, name)

    def make_room(self) -> None:
        make_room(self._parts)


def make_room(parts: Parts) -> None:
    """Free the memory of samplers and judges, because the trainer runs next."""
    parts.client.pause()
    parts.engine.offload()
    for taskset in parts.tasksets:
        # Above async level 0, episodes continue and may need the memory that `offload` frees.
        if not parts.config.async_level:
            call_user_code(f"{taskset.class_name}.offload() failed", taskset.offload)


def make_orchestrator(
    parts: SamplingParts, distillation: Distillation | None, past: Progress | None = None
) -> Orchestrator:
    """Make the orchestrator of a run, which continues from `past`. It writes every rollout to `output_dir/rollouts`."""
    shown: set[str] = set()
    # With the vocabulary file, a viewer can split texts into tokens without the model.
    if tokenizer := parts.context.chat.tokenizer_json():
        replace_file(parts.output_dir / TOKENIZER, [tokenizer.encode()])

    def record(step: int, records: Sequence[RolloutRecord]) -> None:
        write_rollouts(RunDir(parts.output_dir).rollouts_of(step), records)
        for rollout in (one.rollout for one in records if one.rollout.failure):
            if rollout.failure not in shown:  # only the first of each kind; the file has all failures
                shown.add(rollout.failure)
                parts.console.note(f"step {step + 1}: {rollout.failure}: {rollout.failure_detail}", style="yellow")

    config = parts.config
    loss = config.trainer.loss.resolve(config.has_teacher)
    orchestrator = Orchestrator(
        parts.tasksets,
        parts.context,
        config.orchestrator,
        loss,
        config.seed,
        record,
        distillation,
        config.async_level,
        config.monitors,
    )
    orchestrator.restore(past.orchestrator_state if past else {})
    return orchestrator
