"""Implements the trainer's side of a run of several processes: others sample. The trainer exchanges files with the
orchestrator (`commands/orchestrator.py`) in the run's directory."""

import shutil
import time
from dataclasses import dataclass, replace
from pathlib import Path

from slimrl.errors import UserError
from slimrl.launch.held_out import recall_stage
from slimrl.launch.parts import TrainerParts
from slimrl.launch.sampling import FINAL
from slimrl.monitor.summary import Stage
from slimrl.transport.base import Batch
from slimrl.types import Metrics
from slimrl_cluster.launch.weights import PublishedWeights
from slimrl_cluster.transport.batch_file import read_batch
from slimrl_cluster.transport.roster import Roster, drop_before

# The trainer's first rank sends these messages to the other ranks while it waits for a file.
IT_IS_THERE, WAIT_ON = "it is there", "wait on"
PULSE_S = 60.0  # seconds between two WAIT_ON messages


@dataclass(frozen=True, slots=True)
class SamplingElsewhere:
    """The trainer's connection to the sampling processes. It writes weights to the run's directory, and reads batches
    from there."""

    parts: TrainerParts
    roster: Roster
    weights: PublishedWeights
    first: int  # the first step of this process, 0 for a new run

    def clear(self) -> None:
        """Delete files of an earlier process: all batches and weights that it sent, and its evaluations from step
        `first` on. Only one rank calls this."""
        for directory in (self.roster.run.batches, self.roster.run.sent_weights):
            shutil.rmtree(directory, ignore_errors=True)
        for path in self.roster.run.held_out.glob("*.json"):
            step = path.stem.removeprefix("step_")
            if path.stem == FINAL[0] or (step.isdecimal() and int(step) >= self.first):
                path.unlink()

    def receive(self, step: int) -> Batch:
        began = time.perf_counter()
        path = self.roster.run.batch_of(step)
        self._await_file(path, f"batch of step {step}")
        batch = read_batch(path)
        if self.parts.ranks.leads:  # all ranks have the previous step's batch: they have trained on it together
            drop_before(path.parent, step)
        return replace(batch, metrics=batch.metrics | {"time/wait_batch_s": time.perf_counter() - began})

    def _await_file(self, path: Path, awaited: str) -> None:
        """Wait for the orchestrator's file at `path`. `awaited` is the file's name in messages. The first rank looks
        for the file, and sends the result to the other ranks. Raises UserError in all ranks if the file does not
        appear."""
        ranks = self.parts.ranks
        while (found := ranks.of_first(self._look(path, awaited) if ranks.leads else "")) != IT_IS_THERE:
            if found != WAIT_ON:
                raise UserError(found)

    def _look(self, path: Path, awaited: str) -> str:
        """Wait for the file at `path`; only the first rank calls this. Return the message for all ranks: IT_IS_THERE
        or the text of an error. Meanwhile, send WAIT_ON to the other ranks every PULSE_S seconds."""
        sent = time.monotonic()

        def find() -> str | None:
            nonlocal sent
            if path.exists():
                return IT_IS_THERE
            if time.monotonic() - sent > PULSE_S:
                sent = time.monotonic()
                self.parts.ranks.of_first(WAIT_ON)
            return None

        try:
            return self.roster.wait("orchestrator", awaited, find)
        except UserError as error:
            return str(error)

    def publish(self, version: int) -> None:
        self.weights.publish(version)
        # A sampler may still be reading the weights that it loaded last.
        if self.parts.ranks.leads:
            drop_before(self.roster.run.sent_weights, version - self.parts.config.async_level - 1)

    def measure(self, slug: str, name: str) -> tuple[Stage, Metrics]:
        path = self.roster.run.stage(slug)
        self._await_file(path, f"evaluation {name}")
        if (found := recall_stage(self.parts.output_dir, slug, self.parts.console.note)) is None:
            raise UserError(f"{path} cannot be used; a note above says why. Continue with `--resume`.")
        return found

    def make_room(self) -> None:
        """No-op: no sampler runs in this process, so there is no memory to free."""

    def close(self) -> None:
        """No-op: the orchestrator needs no message, because it knows the last step."""
