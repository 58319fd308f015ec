"""Tools of the user's own, called by programs."""

from pathlib import Path

from tests.environments.dataset.test_tools import agent, expert_calls, said


def test_programs_call_typed_tools(tmp_path: Path) -> None:
    taskset = agent(tmp_path, "add", "join", "breaks", format="code", sandbox={"isolation": "none"})
    text = said(taskset, "<code>\nprint(add(2, b=3), join(['x', 'y'], way='up'))\n</code>")[1]
    assert "5 x-y" in text
    assert "must be an integer" in said(taskset, "<code>add('2')</code>")[1]
    assert "KeyError" in said(taskset, "<code>breaks('x')</code>")[1]


def test_an_expert_makes_the_calls_of_a_column(tmp_path: Path) -> None:
    expert_calls(tmp_path, "code", sandbox={"isolation": "none"})
