"""The check of the components: it passes here, and says so only where all of them do."""

import runpy
import sys
from pathlib import Path

import pytest

from slimrl.errors import UserError
from slimrl_envs.components import CHECKS, ComponentError, run_checks
from slimrl_envs.matching_game.rules import questions
from slimrl_envs.matching_game.rules.shy_partner import ShyPartner

SCRIPT = str(Path(__file__).parents[4] / "scripts" / "test_components.py")
PASSED = "ALL TESTS PASSED!"


@pytest.mark.slow
def test_all_components_pass(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", [SCRIPT])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(SCRIPT, run_name="__main__")
    *checks, last = capsys.readouterr().out.splitlines()
    assert (ended.value.code, last) == (0, PASSED)
    assert len(checks) == len(CHECKS) and all(line.startswith("ok ") for line in checks)


@pytest.mark.parametrize("error", [ComponentError("expected that it works"), UserError("no room")])
def test_one_that_fails_is_named(error: Exception) -> None:
    def fail() -> str:
        raise error

    said: list[str] = []
    assert run_checks({"first": lambda: "fine", "second": fail}, said.append) == 1
    assert said == ["ok      first: fine", f"FAILED  second: {error}", "1 of 2 failed"]


@pytest.mark.parametrize(
    ("place", "broken", "name"),
    [
        ((ShyPartner, "reply"), lambda self, heard: "[message] Ava for BLEU: 3.", "partner"),
        ((questions, "is_question"), lambda sentence: True, "questions"),
    ],
)
def test_a_component_that_is_broken_does_not_pass(
    place: tuple[object, str], broken: object, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(*place, broken)
    said: list[str] = []
    assert run_checks({name: CHECKS[name]}, said.append) == 1
    assert said[0].startswith(f"FAILED  {name}: expected that") and PASSED not in said
