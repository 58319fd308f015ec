"""The probes, and how they are made: each in a thread, within a time limit, and whatever one raises is its finding.

Their modules are imported in these threads too: a broken PyTorch is a finding like any other.
"""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib import import_module

from slimrl.errors import UserError, describe
from slimrl.monitor.findings import Finding, Level

PACKAGE = "slimrl.doctor"


@dataclass(frozen=True, slots=True)
class Probe:
    """A look at one subject: the module of this package that has its `probe`, and the limit of its time.

    A problem of one that `is_core` is one of slimrl's core. One that is `alone` measures, and no other is made then.
    """

    subject: str
    module: str
    limit_s: float = 15.0
    is_core: bool = False
    alone: bool = False


PROBES = (
    Probe("software", "software", is_core=True),
    Probe("device", "compute", 60.0, is_core=True, alone=True),
    Probe("CPU", "cpu"),
    Probe("kernels", "kernels", 300.0, alone=True),
    Probe("GPU", "gpu", 60.0, alone=True),
    Probe("memory", "memory"),
    Probe("storage", "storage", is_core=True),
    Probe("model", "model"),
    Probe("hub", "hub", 8.0),  # a name server may take its time
    Probe("judge", "judge"),
    Probe("isolation", "isolation"),
    Probe("container", "container", 30.0),
    Probe("search", "search"),
)


@dataclass(slots=True)
class Looked:
    """A probe that is being made, in a thread of its own."""

    probe: Probe
    found: list[Finding] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)
    thread: threading.Thread = field(init=False)

    def __post_init__(self) -> None:
        # A daemon, as nothing can end a thread that hangs, and the program must.
        self.thread = threading.Thread(target=self._look, name=f"probe {self.probe.subject}", daemon=True)
        self.thread.start()

    def wait(self) -> list[Finding]:
        """What was found, or that the time ran out."""
        self.thread.join(max(0.0, self.began + self.probe.limit_s - time.monotonic()))
        if self.thread.is_alive():
            text = f"it could not be looked at within {self.probe.limit_s:g} s"
            remedy = "Run `slimrl doctor` again; if it comes back, something here hangs."
            return [Finding(self.probe.subject, Level.PROBLEM if self.probe.is_core else Level.NOTE, text, remedy)]
        return self.found

    def _look(self) -> None:
        try:
            look: Callable[[], Sequence[Finding]] = import_module(f"{PACKAGE}.{self.probe.module}").probe
            self.found = list(look())
        except UserError as error:
            self.found = [Finding(self.probe.subject, Level.PROBLEM, str(error))]
        except BaseException as error:  # whatever is broken here, such as an installed package, is a finding
            text = f"it could not be looked at: {describe(error)}"
            self.found = [Finding(self.probe.subject, Level.PROBLEM, text, "Mend or install again what is named.")]


def look(probes: Sequence[Probe], advance: Callable[[], None]) -> tuple[list[Finding], bool]:
    """All that was found, in the order of the probes, and whether the core is well. `advance` is called after each."""
    found: dict[Probe, list[Finding]] = {}
    together = [Looked(probe) for probe in probes if not probe.alone]
    for one in together:
        found[one.probe] = one.wait()
        advance()
    for probe in probes:
        if probe.alone:
            found[probe] = Looked(probe).wait()
            advance()
    is_well = not any(
        one.level is Level.PROBLEM for probe, findings in found.items() if probe.is_core for one in findings
    )
    return [one for probe in probes for one in found[probe]], is_well
