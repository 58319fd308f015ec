"""The tasksets of these tests are modules of their own, as verifiers finds tasksets."""

import sys
from pathlib import Path

import pytest

TASKSETS = Path(__file__).parent / "tasksets"


@pytest.fixture(autouse=True)
def tasksets_on_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(TASKSETS)
    monkeypatch.setenv("PYTHONPATH", ":".join(str(path) for path in [TASKSETS, *sys.path] if path))
