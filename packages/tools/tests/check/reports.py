"""Reports of `slimrl check`, for the environments of the core and of the plug-ins."""

import json
from importlib.metadata import distribution

import pytest

from slimrl.cli import run
from slimrl.plugins import ENVIRONMENTS
from slimrl_tools.findings import Finding, Level


def problems(findings: list[Finding]) -> set[str]:
    return {one.subject for one in findings if one.level is Level.PROBLEM}


def run_json(argv: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, list[Finding]]:
    status = run(["check", *argv, "--json"])
    (report,) = json.loads(capsys.readouterr().out)
    return status, [Finding(**{**one, "level": Level(one["level"])}) for one in report["findings"]]


def environments_of(name: str) -> set[str]:
    """The ids of the environments that an installed distribution has; not the schemes, as `textarena:`."""
    entries = [one for one in distribution(name).entry_points if one.group == ENVIRONMENTS]
    return {one.name for one in entries if not one.name.endswith(":")}
