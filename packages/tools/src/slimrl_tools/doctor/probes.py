"""Runs the probes: each in a thread, within a time limit, and any exception becomes a finding.

Their modules are imported in these threads too: a broken PyTorch is a finding like any other.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from slimrl.errors import UserError, describe
from slimrl.io.loop_thread import start_in_daemon
from slimrl.monitor.findings import Finding, Level
from slimrl.plugins import PROBES as OF_PLUGINS
from slimrl.plugins import call, load, names

PLUGIN_LIMIT_S = 30.0


@dataclass(frozen=True, slots=True)
class Probe:
    """A probe of one subject: the function that returns the findings, and its time limit.

    A problem found by a probe that `is_core` is a problem of slimrl's core. A probe that is `alone` measures, so no
    other runs meanwhile.
    """

    subject: str
    look: Callable[[], Iterable[Finding]]
    limit_s: float = 15.0
    is_core: bool = False
    alone: bool = False


PROBES = (
    Probe("software", partial(call, "slimrl_tools.doctor.software:software"), is_core=True),
    Probe("device", partial(call, "slimrl_tools.doctor.devices:compute"), 60.0, is_core=True, alone=True),
    Probe("CPU", partial(call, "slimrl_tools.doctor.machine:cpu")),
    Probe("kernels", partial(call, "slimrl_tools.doctor.devices:kernels"), 300.0, alone=True),
    Probe("GPU", partial(call, "slimrl_tools.doctor.devices:gpu"), 60.0, alone=True),
    Probe("memory", partial(call, "slimrl_tools.doctor.machine:memory")),
    Probe("storage", partial(call, "slimrl_tools.doctor.machine:storage"), is_core=True),
    Probe("model", partial(call, "slimrl_tools.doctor.machine:model")),
    Probe("hub", partial(call, "slimrl_tools.doctor.machine:hub"), 8.0),  # a name server may take its time
)


def all_probes() -> list[Probe]:
    """Return the probes of this package, then those from plug-ins (`slimrl.probes`)."""
    return [*PROBES, *(Probe(name, partial(_look_of_plugin, name), PLUGIN_LIMIT_S) for name in names(OF_PLUGINS))]


def _look_of_plugin(name: str) -> Iterable[Finding]:
    findings: Iterable[Finding] = load(OF_PLUGINS, name, "the probe")()
    return findings


def look(probes: Sequence[Probe], advance: Callable[[], None]) -> tuple[list[Finding], bool]:
    """Return all findings, in the order of the probes, and True if the core has no problem. `advance` is called after
    each probe."""
    found: dict[Probe, list[Finding]] = {}
    together = [(probe, _start(probe)) for probe in probes if not probe.alone]
    for probe, wait in together:
        found[probe] = wait()
        advance()
    for probe in probes:
        if probe.alone:
            found[probe] = _start(probe)()
            advance()
    problems = {probe for probe, findings in found.items() for one in findings if one.level is Level.PROBLEM}
    return [one for probe in probes for one in found[probe]], not any(probe.is_core for probe in problems)


def _start(probe: Probe) -> Callable[[], list[Finding]]:
    """Start a probe in a thread, which nothing waits for if it hangs, and return a function that waits for it."""
    result = start_in_daemon(lambda: list(probe.look()), f"probe {probe.subject}")
    deadline = time.monotonic() + probe.limit_s

    def wait() -> list[Finding]:
        try:
            return result.result(max(0.0, deadline - time.monotonic()))
        except UserError as error:
            return [Finding(probe.subject, Level.PROBLEM, str(error))]
        except (Exception, SystemExit) as error:  # anything broken here, such as an installed package, is a finding
            if result.done():
                text, remedy = f"it could not be looked at: {describe(error)}", "Mend or install again what is named."
                return [Finding(probe.subject, Level.PROBLEM, text, remedy)]
            level = Level.PROBLEM if probe.is_core else Level.NOTE
            text = f"it could not be looked at within {probe.limit_s:g} s"
            remedy = "Run `slimrl doctor` again; if it comes back, something here hangs."
            return [Finding(probe.subject, level, text, remedy)]

    return wait
