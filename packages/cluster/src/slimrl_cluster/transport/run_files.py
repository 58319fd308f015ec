"""The files in the run's directory by which trainer and orchestrator communicate when they are separate processes.

    transport/batches/step_7.safetensors    the batch of training step 7, by the orchestrator
    transport/weights/step_7/               the weights after 7 steps, by the trainer; the sampler reads them
    transport/waits/trainer.json            the part for which the trainer waits, for `slimrl status`

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
from slimrl.io.run_dir import RunDir, step_directories, step_of
from slimrl_cluster.transport.roster import Facts, Roster

POLL_S = 0.02
CHECK_S = 1.0  # seconds between two checks that the other part lives
SAY_S = 30.0  # seconds of waiting before it is logged
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RunFiles:
    """The files of one run, as the part `own` sees them. `note` receives a line about a long wait."""

    run: RunDir
    timeout_s: float
    note: Callable[[str], None]
    roster: Roster
    own: Part

    def await_part(self, part: Part) -> Facts:
        """Return a part's announcement, once it has started. Raises UserError if it does not."""
        return self.wait(part, f"start (`slimrl {part} @ FILE`)", lambda: self.roster.find(part))

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
                        shown.enter_context(self._show_wait(part, what))
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

    def _signs(self, part: Part) -> frozenset[tuple[Path, int, int]]:
        """Return the files that a part writes while it works, each with its size and time. A change is a sign of work.
        The times alone are not, because the clock of a file server may differ from this machine's."""
        run, found = self.run, set()
        written: dict[Part, list[Path]] = {
            "trainer": [run.metrics, run.warmup.metrics],
            "orchestrator": [*run.held_out.glob("*.jsonl"), *run.batches.glob("step_*")],
            "inference": [],
        }
        for path in written[part]:
            with suppress(FileNotFoundError):  # deleted in the meantime
                status = path.stat()
                found.add((path, status.st_size, status.st_mtime_ns))
        return frozenset(found)

    @contextmanager
    def _show_wait(self, part: Part, what: str) -> Iterator[None]:
        """Context manager: write to a file which part this one waits for, and since when, for `slimrl status`."""
        path = wait_path(self.run, self.own)
        replace_file(path, [json.dumps({"pid": os.getpid(), "for": part, "what": what, "since": time.time()}).encode()])
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def wait_path(run: RunDir, part: str) -> Path:
    """Return the path of the file that names the part for which `part` waits. It exists during the wait."""
    return run.transport / "waits" / f"{part}.json"


def newest_version(run: RunDir) -> int:
    """Return the newest version with weights; -1 if there are none."""
    return max(map(step_of, step_directories(run.sent_weights)), default=-1)


def drop_before(directory: Path, step: int) -> None:
    """Delete the files and directories `step_N` of earlier steps."""
    for path in directory.glob("step_*"):
        if int(path.stem.removeprefix("step_")) < step:
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
