"""The command line of this plug-in."""

from pathlib import Path

import pytest

from slimrl import cli

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("part", ["inference", "orchestrator", "trainer"])
def test_a_part_of_a_run_reads_the_file_of_the_run(
    part: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    assert cli.run([part, "@", "examples/reverse_text/rl.toml", "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("# slimrl ") and "[orchestrator]" in out
    assert cli.run([part, "@", "examples/reverse_text/rl.toml", "--eval.num_example", "3"]) == 2
    assert "eval.num_examples" in capsys.readouterr().err
