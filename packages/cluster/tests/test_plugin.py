"""The command line of this plug-in."""

import pytest

from slimrl import cli


@pytest.mark.parametrize("part", ["inference", "orchestrator", "trainer"])
def test_a_part_of_a_run_reads_the_file_of_the_run(part: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run([part, "@", "examples/reverse_text/rl.toml", "--dry-run"]) == 0
    assert "[orchestrator]" in capsys.readouterr().out
    assert cli.run([part, "@", "examples/reverse_text/rl.toml", "--eval.num_example", "3"]) == 2
    assert "eval.num_examples" in capsys.readouterr().err
