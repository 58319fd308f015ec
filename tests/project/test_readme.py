"""What the README shows a newcomer must work as it stands there."""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def test_the_two_commands_are_there_and_continuous_integration_runs_the_second() -> None:
    setup = "python3 -m venv .venv && . .venv/bin/activate && pip install uv"
    assert f"\n{setup} && uv run rl @ examples/reverse_text/rl.toml\n" in README
    assert f"\n{setup} && uv run --group test pytest\n" in README
    lines = (ROOT / ".ci" / "run").read_text().splitlines()
    assert setup in lines and "check uv run --group test pytest" in lines


def test_a_fresh_machine_runs_the_second_command_for_the_tests_of_the_core() -> None:
    script = (ROOT / ".ci" / "fresh_machine").read_text()
    (expression,) = re.findall(r"^commands=.*sed -n '(.+?)'", script, re.MULTILINE)
    found = subprocess.run(["sed", "-n", expression, ROOT / "README.md"], capture_output=True, text=True, check=True)
    setup = "python3 -m venv .venv && . .venv/bin/activate && pip install uv"
    assert found.stdout == f"{setup} && uv run --no-default-groups --group test pytest tests\n"


def test_nothing_on_the_first_screen_is_longer_than_three_lines() -> None:
    first_screen = README[: README.index("## What you see")]
    paragraphs = [part for part in first_screen.split("\n\n") if not part.startswith("|")]
    assert [part for part in paragraphs if len(part.strip().splitlines()) > 3] == []
    assert "**What was not run**" in first_screen
