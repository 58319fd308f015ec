"""A run on a Ray cluster, as a benchmark watches it from outside."""

import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness.runs import flags
from slimrl.monitor.sinks import read_metrics


class ClusterRun:
    """One start of the run as a process, and what has happened to it. Its output is added to `log`, which is beside the
    run's directory if nothing is said; `inside` puts its command into a namespace."""

    def __init__(
        self,
        output_dir: Path,
        settings: Mapping[str, Any],
        inside: Callable[[Sequence[str]], list[str]] = list,
        words: Sequence[str] = (),
        log: Path | None = None,
    ) -> None:
        self.output_dir, self._log = output_dir, log or output_dir.with_name(f"{output_dir.name}.log")
        self.events: list[dict[str, Any]] = []
        self._from = self._log.stat().st_size if self._log.exists() else 0
        command = [sys.executable, "-m", "slimrl", "rl", *words, *flags({**settings, "output_dir": output_dir})]
        with self._log.open("ab") as output:
            self.process = subprocess.Popen(inside(command), stdout=output, stderr=output)

    @property
    def said(self) -> str:
        """What this start of the run has said so far."""
        return self._log.read_bytes()[self._from :].decode("utf-8", "replace")

    def where(self, name: str) -> str:
        """The address of the node where a part was started last."""
        return self._started(name)[1]

    def pid(self, name: str) -> int:
        """The id of a part's process; 0 before it has started."""
        return int(self._started(name)[0])

    def stop(self) -> None:
        """Interrupt the run, and wait until it has ended."""
        self.process.send_signal(signal.SIGINT)
        self.process.wait(120)

    def kill(self) -> None:
        """Kill `rl` itself."""
        self.process.kill()
        self.process.wait()

    def num_steps(self) -> int:
        """The steps that were trained so far."""
        path = self.output_dir / "metrics.jsonl"
        return len({step for step, metrics in read_metrics(path) if "time/step_s" in metrics}) if path.exists() else 0

    def await_that(self, is_so: Callable[[], bool], seconds: float = 1800.0) -> float:
        """Wait for something, and give the seconds that it took. The script exits if the run ends before."""
        began = time.monotonic()
        while not is_so():
            if self.process.poll() is not None or time.monotonic() - began > seconds:
                raise SystemExit(f"the run has ended, or takes too long:\n{self.said[-4000:]}")
            time.sleep(0.2)
        return round(time.monotonic() - began, 1)

    def note(self, what: str, **more: Any) -> None:
        """Keep and print something that has happened."""
        event = {"what": what, "at_step": self.num_steps(), **more}
        print(event, flush=True)
        self.events.append(event)

    def _started(self, name: str) -> tuple[str, str]:
        found = re.findall(rf"^{name} is process (\d+) on ([\d.]+)$", self.said, re.MULTILINE)
        return found[-1] if found else ("0", "")
