"""`slimrl doctor`, and how it makes its probes."""

import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

import pytest

from slimrl.cli import run
from slimrl.errors import UserError
from slimrl.plugins import call
from slimrl_tools.commands.doctor import PROBES, Probe, look
from slimrl_tools.findings import Finding, Level


def probes(**looks: Callable[[], Iterable[Finding]]) -> list[Probe]:
    return [Probe(name, one, limit_s=0.3) for name, one in looks.items()]


def good() -> list[Finding]:
    return [Finding("good", Level.OK, "it is")]


def broken() -> list[Finding]:
    raise OSError("libcudart.so.12: cannot open shared object file")


@pytest.mark.slow
def test_the_machine_is_looked_at() -> None:
    findings, _ = look(PROBES)
    levels = {one.subject: one.level for one in findings}
    own = {"slimrl", "Python", "packages", "extras", "device", "number format", "memory", "disk", "cache"}
    assert {*own, "packaged model"} <= levels.keys()
    assert levels["packages"] is Level.OK


def test_a_probe_that_fails_or_hangs_is_told_with_its_reason() -> None:
    def refused() -> list[Finding]:
        raise UserError("the address has a password in it.")

    def exits() -> list[Finding]:
        sys.exit(3)

    began = time.monotonic()
    looks = {"broken": broken, "refused": refused, "exits": exits, "gone": partial(call, "no_such_module:probe")}
    findings, is_well = look(probes(**looks, hangs=lambda: time.sleep(30), good=good))
    assert time.monotonic() - began < 20
    assert [one.level for one in findings] == [Level.PROBLEM] * 4 + [Level.NOTE, Level.OK]
    told = ("libcudart.so.12", "password", "3", "no_such_module", "within 0.3 s", "it is")
    assert all(text in one.found for text, one in zip(told, findings, strict=True))
    assert is_well  # none of them is of the core
    assert not look([replace(probes(broken=broken)[0], is_core=True)])[1]


def test_a_problem_of_the_core_gives_the_exit_status_and_cannot_command_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = [Finding("cache", Level.PROBLEM, "\x1b[2J[red]not\u202e writable", "Mend it.")]
    for is_core, status in ((True, 1), (False, 0)):
        probe = Probe("bad", lambda: bad, is_core=is_core)
        monkeypatch.setattr("slimrl_tools.commands.doctor.PROBES", [probe])
        assert run(["doctor"]) == status
        out = capsys.readouterr().out
        assert "cache" in out and "-> Mend it." in out and "1 problem" in out
        assert "\x1b" not in out and "\u202e" not in out and "[red]not" in out
        assert ("every run needs" in out) is is_core
