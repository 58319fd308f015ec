"""The half of a run that samples, as the trainer sees it: in this process, or in others that it meets in files.

Here, batches and evaluations are made when they are asked for. Elsewhere, the orchestrator makes both ahead of time,
and the trainer waits for them: `commands/orchestrator.py` is the other side.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from slimrl.config.run import RLConfig
from slimrl.environments.base import Offloading, Taskset
from slimrl.environments.find import call_user_code
from slimrl.errors import UserError
from slimrl.io.files import replace_file
from slimrl.launch.advice import nothing_earned
from slimrl.launch.health import unknown_right_metric
from slimrl.launch.held_out import DIRECTORY, recall_stage, stage_path
from slimrl.launch.parts import Parts, SamplingParts, TrainerParts
from slimrl.launch.weights import PublishedWeights
from slimrl.models.history import read_history
from slimrl.monitor.console import RunConsole
from slimrl.monitor.rollouts import RolloutRecord, rollout_file, write_rollouts
from slimrl.monitor.summary import Stage
from slimrl.monitor.thinning import thin_rollouts
from slimrl.orchestrator.distill import Distillation
from slimrl.orchestrator.orchestrator import Orchestrator
from slimrl.transport.base import Batch
from slimrl.transport.run_files import RunFiles
from slimrl.types import Metrics

TOKENIZER = "tokenizer/tokenizer.json"
THINNED = "orchestrator.max_rollouts_gb"
# What the first rank of a trainer tells the others while something is waited for.
IT_IS_THERE, SEND_AGAIN, WAIT_ON = "it is there", "send again", "wait on"
PULSE_S = 60.0  # how often it does, though there is nothing to do
THIN_EVERY = 10  # steps: a long run has many files to look at
# Stages of the held-out evaluation, by the names of their files.
BASE, START = "base", "start"
FINAL = "final", "after RL"


def base_name(config: RLConfig) -> str:
    """The name of the evaluation before the warm-up."""
    return "before warm-up" if read_history(Path(config.model.name)) else "base model"


def start_name(config: RLConfig) -> str:
    """The name of the evaluation right before RL."""
    return "after warm-up" if config.warmup.max_steps else "before RL"


def stage_after(step: int) -> tuple[str, str]:
    """The slug and the name of the evaluation between start and end that comes before a step."""
    return f"step_{step}", f"after {step} steps"


class Sampling(Protocol):
    """What the trainer needs of the half that samples."""

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from the orchestrator's state in a checkpoint."""

    def receive(self, step: int) -> Batch:
        """The batch of a step."""

    def publish(self, version: int) -> None:
        """Sample from the module's present weights from now on, under this version."""

    def measure(self, slug: str, name: str) -> tuple[Stage, Metrics]:
        """The held-out evaluation of the weights that were published last."""

    def recall(self, slug: str) -> tuple[Stage, Metrics] | None:
        """What was measured at a stage before this process began, if it was."""

    def make_room(self) -> None:
        """Free memory of this process that only sampling needs, and sample nothing until `publish`."""

    def close(self) -> None:
        """End the episodes that are in flight, as no batch needs them."""


class SamplingHere:
    """Sampling in this process, in turn with training."""

    def __init__(self, parts: Parts, distillation: Distillation | None) -> None:
        self._parts = parts
        self._orchestrator = make_orchestrator(parts.sampling, distillation)
        self._held_out: Metrics = {}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._orchestrator.restore(state)

    def receive(self, step: int) -> Batch:
        # The counter runs on over steps and evaluations, so the step's own number is a difference.
        counters = self._parts.engine.counters
        before = counters.prefilled
        batch = self._orchestrator.collect(step)
        # The trainer and the engine take turns. Before it is the trainer's, what it takes away is sampled anew, so that
        # environments have something to do in the meantime; and no more than twice that, or it would never have one.
        self._parts.client.sample_on(2 * int(batch.metrics["rollout/tokens_sampled"]))
        self.make_room()
        metrics = batch.metrics | {"perf/prefill_tokens": float(counters.prefilled - before)}
        if step == 0:
            advise(self._parts.config, self._parts.tasksets, metrics | self._held_out, self._parts.console)
        return replace(batch, metrics=metrics)

    def publish(self, version: int) -> None:
        self._parts.engine.publish(version)
        self._parts.client.resume()

    def close(self) -> None:
        self._orchestrator.close()

    def measure(self, slug: str, name: str) -> tuple[Stage, Metrics]:
        stage, self._held_out = self._parts.held_out.measure(slug, name)
        return stage, self._held_out

    def recall(self, slug: str) -> tuple[Stage, Metrics] | None:
        return self._parts.held_out.recall(slug)

    def make_room(self) -> None:
        make_room(self._parts)


@dataclass(frozen=True, slots=True)
class SamplingElsewhere:
    """Sampling in other processes. Weights go to the run's directory; batches and evaluations come from there."""

    parts: TrainerParts
    files: RunFiles
    weights: PublishedWeights
    first: int  # the step that the run goes on from, 0 for a new one

    def clear(self) -> None:
        """Delete what an earlier process has left of the steps that come. Of several ranks one does."""
        self.files.clear()
        for path in (self.parts.output_dir / DIRECTORY).glob("*.json"):
            step = path.stem.removeprefix("step_")
            if path.stem == FINAL[0] or (step.isdecimal() and int(step) >= self.first):
                path.unlink()

    def restore(self, state: Mapping[str, Any]) -> None:
        """The orchestrator reads its state from the checkpoint itself."""

    def receive(self, step: int) -> Batch:
        began = time.perf_counter()
        self._await_file(self.files.batch_path(step), f"batch of step {step}")
        batch = self.files.receive(step)
        if self.parts.ranks.leads:  # all have the batch of the step before: they have trained on it together
            self.files.drop_batches_before(step)
        return replace(batch, metrics=batch.metrics | {"time/wait_batch_s": time.perf_counter() - began})

    def _await_file(self, path: Path, what: str) -> None:
        """Wait for what the orchestrator writes, and meanwhile broadcast the weights once more whenever a sampler has
        come that lacks them. One rank looks, and tells the others. Raises UserError in all of them if it does not
        come."""
        ranks = self.parts.ranks
        while (do := ranks.of_first(self._look(path, what) if ranks.leads else "")) != IT_IS_THERE:
            if do == SEND_AGAIN:
                self.weights.send_again()
            elif do != WAIT_ON:
                raise UserError(do)

    def _look(self, path: Path, what: str) -> str:
        """What all ranks have to do next. While there is nothing to do, the others hear of it now and then."""
        told = time.monotonic()

        def find() -> str | None:
            nonlocal told
            if path.exists():
                return IT_IS_THERE
            if self.weights.lack_samplers():
                return SEND_AGAIN
            if time.monotonic() - told > PULSE_S:
                told = time.monotonic()
                self.parts.ranks.of_first(WAIT_ON)
            return None

        try:
            return self.files.wait("orchestrator", what, find)
        except UserError as error:
            return str(error)

    def publish(self, version: int) -> None:
        self.weights.publish(version)
        # A sampler may be reading those that the orchestrator had it load last.
        if self.parts.ranks.leads:
            self.files.drop_weights_before(version - self.parts.config.async_level - 1)

    def measure(self, slug: str, name: str) -> tuple[Stage, Metrics]:
        path = stage_path(self.parts.output_dir, slug)
        if slug == START and self.first:
            raise UserError(
                f"{path} is missing or damaged, and cannot be measured again, as training has begun. Copy it there "
                "from a backup, or begin anew in another `--output_dir`."
            )
        self._await_file(path, f"evaluation {name}")
        if (found := self.recall(slug)) is None:
            raise UserError(f"{path} cannot be used; a note above says why. Continue with `--resume`.")
        return found

    def recall(self, slug: str) -> tuple[Stage, Metrics] | None:
        return recall_stage(self.parts.output_dir, slug, self.parts.console.note)

    def make_room(self) -> None:
        """There is nothing to free: nothing samples here."""

    def close(self) -> None:
        """The orchestrator knows itself which batch is the last; here weights are sent no more."""
        self.weights.close()


def make_room(parts: Parts) -> None:
    """Free the memory of everything that samples or judges, because the trainer runs next."""
    parts.client.pause()
    parts.engine.offload()
    for taskset in parts.tasksets:
        # Above level 0 episodes go on, and may need what it holds.
        if isinstance(taskset, Offloading) and not parts.config.async_level:
            call_user_code(f"{type(taskset).__name__}.offload() failed", taskset.offload)


def make_orchestrator(parts: SamplingParts, distillation: Distillation | None) -> Orchestrator:
    """The orchestrator of a run, which writes every rollout to `output_dir/rollouts`."""

    shown: set[str] = set()
    # By it a viewer splits texts into tokens, without the model.
    if tokenizer := parts.context.chat.tokenizer_json():
        replace_file(parts.output_dir / TOKENIZER, [tokenizer.encode()])

    def record(step: int, records: Sequence[RolloutRecord]) -> None:
        write_rollouts(rollout_file(parts.output_dir, step), records)
        max_gb = parts.config.orchestrator.max_rollouts_gb
        if step % THIN_EVERY == 0 and thin_rollouts(parts.output_dir, 1e9 * max_gb) and THINNED not in shown:
            shown.add(THINNED)
            parts.console.note(f"rollouts of older steps are deleted from now on, to keep to {max_gb:g} GB ({THINNED})")
        for rollout in (one.rollout for one in records if one.rollout.failure):
            if rollout.failure not in shown:  # the first of its kind; all of them are in the file
                shown.add(rollout.failure)
                parts.console.note(f"step {step + 1}: {rollout.failure}: {rollout.failure_detail}", style="yellow")

    config = parts.config
    loss = config.trainer.loss.resolve(config.has_teacher)
    return Orchestrator(
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


def advise(config: RLConfig, tasksets: Sequence[Taskset], metrics: Metrics, console: RunConsole) -> None:
    """Print notes about a first step in which nothing was earned, or right answers were not reported; `metrics` are its
    own and the held-out ones."""
    for advice in (nothing_earned(config, tasksets, metrics), unknown_right_metric(config, metrics)):
        if advice:
            console.note(f"step 0: {advice}", "yellow")
