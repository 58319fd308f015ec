"""The `doctor` command: examines this machine, and reports slimrl's choices, the reasons, and remedies for faults.

The probes run one after the other, each in its own thread with a time limit. Any exception becomes a finding. The
modules of the probes are also imported in these threads, so a broken PyTorch becomes a finding, too. Nothing is
downloaded or changed, except that kernels are compiled into the cache, as in a run.
"""

import argparse
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from slimrl.errors import UserError, describe
from slimrl.io.loop_thread import start_in_daemon
from slimrl.monitor.console import RunConsole
from slimrl.plugins import call
from slimrl_tools.findings import Finding, Level, findings_table, has_problem, summary

ABOUT = """\
Looks at this machine: versions, device and number format with their measured speed, kernels, GPUs, memory, disk and
the packaged model. For each it prints the choice of slimrl and the reason, and behind an arrow the repair or an
alternative. Nothing is downloaded; the kernels are compiled if they are not yet.

ok       as it should be
note     it works, and could be better, or one feature is not here
problem  something is broken

The exit status is 1 if something that every run needs is broken, and 0 otherwise.
"""


def run_doctor(argv: Sequence[str]) -> int:
    """Run the `doctor` command. Returns 1 if the core has a problem, and 0 otherwise. Raises SystemExit for --help and
    for wrong arguments."""
    raw = argparse.RawDescriptionHelpFormatter
    argparse.ArgumentParser(prog="slimrl doctor", description=ABOUT, formatter_class=raw).parse_args(argv)
    began, console = time.monotonic(), RunConsole()
    console.note("looking at this machine ...")
    findings, is_well = look(PROBES)
    console.show(findings_table("this machine", findings, console.is_live))
    core = "" if is_well else " Something that every run needs is broken."
    console.note(f"{summary(findings)}; {time.monotonic() - began:.1f} s.{core}")
    return int(not is_well)


@dataclass(frozen=True, slots=True)
class Probe:
    """A probe of one subject. `look` returns the findings, and `limit_s` is its time limit in seconds. If `is_core` is
    True, every run needs the subject, so a problem sets the exit status to 1."""

    subject: str
    look: Callable[[], Iterable[Finding]]
    limit_s: float = 15.0
    is_core: bool = False


PROBES = (
    Probe("software", partial(call, "slimrl_tools.doctor.machine:software"), is_core=True),
    Probe("device", partial(call, "slimrl_tools.doctor.devices:compute"), 60.0, is_core=True),
    Probe("kernels", partial(call, "slimrl_tools.doctor.devices:kernels"), 300.0),
    Probe("GPU", partial(call, "slimrl_tools.doctor.devices:gpu"), 60.0),
    Probe("memory", partial(call, "slimrl_tools.doctor.machine:memory")),
    Probe("storage", partial(call, "slimrl_tools.doctor.machine:storage"), is_core=True),
    Probe("model", partial(call, "slimrl_tools.doctor.machine:model")),
)


def look(probes: Sequence[Probe]) -> tuple[list[Finding], bool]:
    """Return all findings, in the order of the probes, and True if the core has no problem."""
    found, is_well = list[Finding](), True
    for probe in probes:
        findings = _findings_of(probe)
        is_well &= not (probe.is_core and has_problem(findings))
        found += findings
    return found, is_well


def _findings_of(probe: Probe) -> list[Finding]:
    """Return the findings of a probe. If the probe hangs, its thread is abandoned after the time limit."""
    result = start_in_daemon(lambda: list(probe.look()), f"probe {probe.subject}")
    try:
        return result.result(probe.limit_s)
    except UserError as error:
        return [Finding(probe.subject, Level.PROBLEM, str(error))]
    except (Exception, SystemExit) as error:  # anything broken here, such as an installed package, is a finding
        if result.done():
            text, remedy = f"it could not be looked at: {describe(error)}", "Mend or install again what is named."
            return [Finding(probe.subject, Level.PROBLEM, text, remedy)]
        text = f"it could not be looked at within {probe.limit_s:g} s"
        remedy = "Run `slimrl doctor` again; if it comes back, something here hangs."
        return [Finding(probe.subject, Level.PROBLEM if probe.is_core else Level.NOTE, text, remedy)]
