"""`slimrl doctor`, and how it makes its probes."""

import json
import sys
import time
from importlib import import_module
from types import ModuleType

import pytest

from slimrl.cli import run
from slimrl.doctor.probes import PACKAGE, PROBES, Probe, look
from slimrl.errors import UserError
from slimrl.monitor.findings import Finding, Level


@pytest.fixture
def probes(monkeypatch: pytest.MonkeyPatch):
    """A function that makes probes of functions."""

    def make(**functions) -> list[Probe]:
        for name, function in functions.items():
            module = ModuleType(name)
            module.probe = function  # type: ignore[attr-defined]
            monkeypatch.setitem(sys.modules, f"{PACKAGE}.{name}", module)
        return [Probe(name, name, limit_s=0.3) for name in functions]

    return make


def good() -> list[Finding]:
    return [Finding("good", Level.OK, "it is")]


@pytest.mark.slow
def test_the_machine_is_looked_at(capsys: pytest.CaptureFixture[str]) -> None:
    status = run(["doctor", "--json"])
    told = json.loads(capsys.readouterr().out)
    assert status == int(not told["is_well"])
    subjects = [one["subject"] for one in told["findings"]]
    assert {"slimrl", "Python", "packages", "extras", "device", "number format", "memory", "disk", "cache"} <= {
        *subjects
    }
    assert {"judge", "hub", "container", "isolation", "packaged model"} <= {*subjects}
    (packages,) = [one for one in told["findings"] if one["subject"] == "packages"]
    assert packages["level"] == "ok"


def test_every_probe_is_a_module_that_has_one() -> None:
    for probe in PROBES:
        assert callable(import_module(f"{PACKAGE}.{probe.module}").probe)


def test_a_probe_that_raises_is_told_with_its_reason(probes) -> None:
    def broken() -> list[Finding]:
        raise OSError("libcudart.so.12: cannot open shared object file")

    def refused() -> list[Finding]:
        raise UserError("the address has a password in it.")

    def exits() -> list[Finding]:
        sys.exit(3)

    findings, is_well = look(probes(broken=broken, refused=refused, exits=exits, good=good), lambda: None)
    assert [one.level for one in findings] == [Level.PROBLEM] * 3 + [Level.OK]
    assert "libcudart.so.12" in findings[0].found and "password" in findings[1].found
    assert is_well  # none of them is of the core


def test_a_probe_that_cannot_be_imported_is_told() -> None:
    (found,), is_well = look([Probe("gone", "no_such_module", is_core=True)], lambda: None)
    assert found.level is Level.PROBLEM and "no_such_module" in found.found
    assert not is_well


def test_a_probe_that_hangs_is_left_behind(probes) -> None:
    began = time.monotonic()
    findings, is_well = look(probes(hangs=lambda: time.sleep(30), good=good), lambda: None)
    assert time.monotonic() - began < 5
    assert "within 0.3 s" in findings[0].found and findings[1].level is Level.OK
    assert is_well


def test_a_problem_of_the_core_gives_the_exit_status(
    probes, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = [Finding("cache", Level.PROBLEM, "it cannot be written to", "Mend it.")]
    (probe,) = probes(bad=lambda: bad)
    for is_core, status in ((True, 1), (False, 0)):
        monkeypatch.setattr("slimrl.commands.doctor.PROBES", (Probe("bad", probe.module, is_core=is_core),))
        assert run(["doctor"]) == status
        out = capsys.readouterr().out
        assert "cache" in out and "-> Mend it." in out and "1 problem" in out
        assert ("every run needs" in out) is is_core


def test_what_others_say_cannot_command_the_terminal(probes, monkeypatch, capsys) -> None:
    (probe,) = probes(odd=lambda: [Finding("judge", Level.NOTE, "\x1b[2J[red]hello\u202e")])
    monkeypatch.setattr("slimrl.commands.doctor.PROBES", (probe,))
    assert run(["doctor"]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out and "\u202e" not in out and "[red]hello" in out
