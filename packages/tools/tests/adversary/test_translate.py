"""`slimrl translate` with files that have secrets."""

from pathlib import Path

import pytest

from tests.adversary.test_inputs import LEAKS, SECRET, refusal, write_leak


@pytest.mark.slow
@pytest.mark.parametrize("leak", LEAKS)
def test_no_secret_is_said(leak: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_leak(leak, tmp_path / "a.json")
    assert SECRET not in refusal(["translate", str(tmp_path / "a.json")], capsys)
