"""The probes, and how they are made: each in a thread, within a time limit, and whatever one raises is its finding.

Their modules are imported in these threads too: a broken PyTorch is a finding like any other.
"""

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

from slimrl.errors import UserError, describe
from slimrl.monitor.findings import Finding, Level
from slimrl.plugins import PROBES as PROBES_GROUP
from slimrl.plugins import call, load, names

Look = Callable[[], Iterable[Finding]]


@dataclass(frozen=True, slots=True)
class Probe:
    """A look at one subject: the function that returns the findings, and the limit of its time.

    A problem of one that `is_core` is one of slimrl's core. One that is `alone` measures, and no other is made then.
    """

    subject: str
    look: Look
    limit_s: float = 15.0
    is_core: bool = False
    alone: bool = False


def _own(place: str) -> Look:
    """Return a probe of this package by its place. Its module is imported when the probe is called."""
    return partial(call, f"slimrl_tools.doctor.{place}")


def _of_plugin(name: str) -> Iterable[Finding]:
    """Return the findings of an entry of `slimrl.probes`. Raises UserError if it cannot be loaded."""
    findings: Iterable[Finding] = load(PROBES_GROUP, name, "the probe")()
    return findings


PROBES = (
    Probe("software", _own("software:software"), is_core=True),
    Probe("device", _own("devices:compute"), 60.0, is_core=True, alone=True),
    Probe("CPU", _own("machine:cpu")),
    Probe("kernels", _own("devices:kernels"), 300.0, alone=True),
    Probe("GPU", _own("devices:gpu"), 60.0, alone=True),
    Probe("memory", _own("machine:memory")),
    Probe("storage", _own("machine:storage"), is_core=True),
    Probe("model", _own("machine:model")),
    Probe("hub", _own("machine:hub"), 8.0),  # a name server may take its time
)
PLUGIN_LIMIT_S = 30.0


def all_probes() -> list[Probe]:
    """The probes of this package, then those of plug-ins (`slimrl.probes`)."""
    return [*PROBES, *(Probe(name, partial(_of_plugin, name), PLUGIN_LIMIT_S) for name in names(PROBES_GROUP))]


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
            self.found = list(self.probe.look())
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
