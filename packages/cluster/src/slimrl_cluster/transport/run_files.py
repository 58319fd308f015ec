"""The files in the run's directory by which trainer and orchestrator communicate when they are separate processes.

    transport/batches/step_7.safetensors    the batch of training step 7, by the orchestrator
    transport/weights/step_7/               the weights after 7 steps, by the trainer; the sampler reads them

Each file or directory appears complete, by one rename. So a shared file system suffices, and a killed process leaves no
partial file. A part logs a long wait for another part. If that part dies, or the wait is too long, an error names it.
"""

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from slimrl.config.deployment import Part
from slimrl.errors import UserError
from slimrl.io.files import replace_file
from slimrl.transport.base import Batch
from slimrl_cluster.transport.batch_file import read_batch, write_batch
from slimrl_cluster.transport.roster import Facts, Roster, wait_path

POLL_S = 0.02
CHECK_S = 1.0  # seconds between two checks that the other part lives
SAY_S = 30.0  # seconds of waiting before it is logged
# The files that a part writes while it works.
SIGNS: dict[Part, tuple[str, ...]] = {
    "trainer": ("metrics.jsonl", "warmup/metrics.jsonl"),
    "orchestrator": ("held_out/*.jsonl", "transport/batches/step_*"),
    "inference": (),
}
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RunFiles:
    """The files of one run, as the part `own` sees them. `note` receives a line about a long wait."""

    output_dir: Path
    timeout_s: float
    note: Callable[[str], None]
    roster: Roster
    own: Part

    def batch_path(self, step: int) -> Path:
        return self.output_dir / "transport" / "batches" / f"step_{step}.safetensors"

    def weights_path(self, version: int) -> Path:
        return self.output_dir / "transport" / "weights" / f"step_{version}"

    def send(self, step: int, batch: Batch) -> None:
        """Send the trainer a batch. Raises UserError if it cannot be written."""
        write_batch(batch, self.batch_path(step))

    def receive(self, step: int) -> Batch:
        """Return the batch of a step, once the orchestrator has sent it. Raises UserError if it does not."""
        path = self.batch_path(step)
        self.wait("orchestrator", f"batch of step {step}", lambda: path if path.exists() else None)
        return read_batch(path)

    def drop_batches_before(self, step: int) -> None:
        """Delete the batches of earlier steps."""
        _drop(self.batch_path(0).parent, step)

    def await_weights(self, version: int) -> Path:
        """Return the directory of a version's weights, once the trainer has written it. Raises UserError if it does
        not."""
        path = self.weights_path(version)
        return self.wait("trainer", f"weights of version {version}", lambda: path if path.exists() else None)

    def newest_version(self) -> int:
        """Return the newest version with weights; -1 if there are none."""
        return max((_step(path) for path in self.weights_path(0).parent.glob("step_*")), default=-1)

    def drop_weights_before(self, version: int) -> None:
        """Delete the weights of earlier versions."""
        _drop(self.weights_path(0).parent, version)

    def clear(self) -> None:
        """Delete the files of an earlier process: a resumed run writes them again."""
        for directory in (self.batch_path(0).parent, self.weights_path(0).parent):
            shutil.rmtree(directory, ignore_errors=True)

    def await_part(self, part: Part) -> Facts:
        """Return a part's announcement, once it has started. Raises UserError if it does not."""
        return self.wait(part, f"start (`slimrl {part} @ FILE`)", lambda: self.roster.find(part))

    def _signs(self, part: Part) -> frozenset[tuple[str, int, int]]:
        """Return the files that a part writes while it works, each with its size and time. A change is a sign of work.
        The times are not compared with this machine's clock, because the clock of a file server may differ."""
        found = set()
        for path in (path for pattern in SIGNS[part] for path in self.output_dir.glob(pattern)):
            with suppress(FileNotFoundError):  # deleted in the meantime
                status = path.stat()
                found.add((path.name, status.st_size, status.st_mtime_ns))
        return frozenset(found)

    def wait(self, part: Part, what: str, find: Callable[[], T | None]) -> T:
        """Call `find` until its result, the work of another part, is not None, and return the result. Raises UserError
        if that part dies, or gives no sign of work for `timeout_s`."""
        began = checked = said = heard = time.monotonic()
        signs = self._signs(part)
        with ExitStack() as shown:
            while (found := find()) is None:
                now = time.monotonic()
                if now - checked > min(CHECK_S, self.timeout_s / 4):
                    if checked == began:
                        shown.enter_context(self._shorten(part, what))
                    checked = now
                    end = self.roster.describe_end(part)
                    if end and (found := find()) is not None:
                        break  # it was that part's last work
                    if end:
                        raise UserError(f"{end}. It has not left its {what}; mend that, and continue with `--resume`.")
                    if (newest := self._signs(part)) != signs:
                        signs, heard = newest, now
                if now - heard > self.timeout_s:
                    raise UserError(
                        f"waited {now - began:.0f} s in vain for the {part}'s {what}: for {now - heard:.0f} s it has "
                        "written nothing (deployment.timeout_s). Its log says what it does; mend that, and continue "
                        "with `--resume`."
                    )
                if now - said > SAY_S:
                    said = now
                    self.note(f"waiting for the {part}'s {what}, for {now - began:.0f} s so far")
                time.sleep(POLL_S)
        return found

    @contextmanager
    def _shorten(self, part: Part, what: str) -> Iterator[None]:
        """Context manager: write to a file which part this one waits for, and since when, for `slimrl status`."""
        path = wait_path(self.output_dir, self.own)
        replace_file(path, [json.dumps({"pid": os.getpid(), "for": part, "what": what, "since": time.time()}).encode()])
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def _step(path: Path) -> int:
    return int(path.stem.removeprefix("step_"))


def _drop(directory: Path, step: int) -> None:
    """Delete the files and directories `step_N` of earlier steps."""
    for path in directory.glob("step_*"):
        if _step(path) < step:
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
