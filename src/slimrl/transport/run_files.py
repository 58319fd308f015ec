"""The files by which trainer and orchestrator meet when they are processes of their own, in the directory of the run.

    transport/batches/step_7.safetensors    the batch of training step 7, by the orchestrator
    transport/weights/step_7/               the weights after 7 steps, by the trainer; the sampler reads them

Each appears whole, in one rename, so a shared file system will do and a kill leaves nothing half written. Who waits for
a file says so, and since when; after `timeout_s` without it the run ends, with the name of the part that it waited for.
"""

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from slimrl.errors import UserError
from slimrl.transport.base import Batch
from slimrl.transport.batch_file import read_batch, write_batch

POLL_S = 0.02
SAY_S = 30.0  # of waiting, before it is told


@dataclass(frozen=True, slots=True)
class RunFiles:
    """The files of one run. `alive` is asked while something is awaited, and raises if that is in vain."""

    output_dir: Path
    timeout_s: float
    note: Callable[[str], None]
    alive: Callable[[], None] = lambda: None

    def batch_path(self, step: int) -> Path:
        return self.output_dir / "transport" / "batches" / f"step_{step}.safetensors"

    def weights_path(self, version: int) -> Path:
        return self.output_dir / "transport" / "weights" / f"step_{version}"

    def send(self, step: int, batch: Batch) -> None:
        """Give the trainer a batch. Raises UserError if it cannot be written."""
        write_batch(batch, self.batch_path(step))

    def receive(self, step: int) -> Batch:
        """The batch of a step, when the orchestrator has sent it. Raises UserError if it does not."""
        path = self.batch_path(step)
        self._await(path, f"the orchestrator's batch of step {step}")
        batch = read_batch(path)
        if step:  # a trainer that is killed now takes it up again from its checkpoint, which has not this step
            self.batch_path(step - 1).unlink(missing_ok=True)
        return batch

    def await_weights(self, version: int) -> Path:
        """The directory of weights of a version, when the trainer has written it. Raises UserError if it does not."""
        path = self.weights_path(version)
        self._await(path, f"the trainer's weights of version {version}")
        return path

    def newest_version(self) -> int:
        """The newest version whose weights there are; -1 if there are none."""
        found = (self.output_dir / "transport" / "weights").glob("step_*")
        return max((int(path.name.removeprefix("step_")) for path in found), default=-1)

    def drop_weights_before(self, version: int) -> None:
        """Delete older weights than a version."""
        for path in (self.output_dir / "transport" / "weights").glob("step_*"):
            if int(path.name.removeprefix("step_")) < version:
                shutil.rmtree(path, ignore_errors=True)

    def clear(self) -> None:
        """Delete what an earlier process has left: a resumed run makes it again."""
        shutil.rmtree(self.output_dir / "transport", ignore_errors=True)

    def _await(self, path: Path, what: str) -> None:
        began = said = time.monotonic()
        while not path.exists():
            now = time.monotonic()
            if now - began > self.timeout_s:
                raise UserError(
                    f"waited {now - began:.0f} s in vain for {what}. Its log says why; mend that, and continue with "
                    "`--resume`."
                )
            if now - said > SAY_S:
                said = now
                self.note(f"waiting for {what}, since {now - began:.0f} s")
            self.alive()
            time.sleep(POLL_S)
