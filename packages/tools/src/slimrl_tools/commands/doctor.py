"""The `doctor` command: examines this machine, and reports the parts that slimrl will use, reasons and remedies."""

import argparse
import sys
import time
from collections.abc import Sequence

from slimrl.monitor.console import RunConsole
from slimrl.monitor.findings import findings_json, findings_table, print_json, summary
from slimrl_tools.doctor.probes import all_probes, look

ABOUT = """\
Looks at this machine: versions, device and number format with their measured speed, compiler and kernels, GPUs, memory,
disk, the packaged model, the Hub, a judge, isolation, containers and search. For each it says what slimrl will use and
why, and behind an arrow what to do or what there is besides. Nothing is downloaded, and nothing is started but small
probes; the kernels are compiled if they are not yet.

ok       as it should be
note     it works, and could be better, or one feature is not here
problem  something is broken

The exit status is 1 if something that every run needs is broken, and 0 otherwise.
"""


def run_doctor(argv: Sequence[str]) -> int:
    """Run the `doctor` command. For --help and mistakes, argparse raises SystemExit."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="slimrl doctor", description=ABOUT, formatter_class=raw)
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")
    as_json = parser.parse_args(argv).json
    began = time.monotonic()
    console = RunConsole(sys.stderr if as_json else None)
    probes = all_probes()
    with console.progress("looking at this machine", len(probes)) as bar:
        findings, is_well = look(probes, bar.advance)
    seconds = time.monotonic() - began
    if as_json:
        print_json({"is_well": is_well, "seconds": seconds, "findings": findings_json(findings)})
    else:
        console.show(findings_table("this machine", findings, console.is_live))
        core = "" if is_well else " Something that every run needs is broken."
        console.note(f"{summary(findings)}; {seconds:.1f} s.{core}")
    return int(not is_well)
