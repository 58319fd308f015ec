"""An environment that computes for ever in the run's own process is named, and Ctrl-C ends the run."""

import threading
import time

import pytest

from slimrl.rollout.held import hold_s, hold_thread, release_thread, report_held


def test_the_time_in_an_environments_code_is_measured_but_not_slimrls_own_waits() -> None:
    thread = threading.get_ident()
    assert hold_s(thread) == 0.0
    with hold_thread():
        time.sleep(0.02)
        assert hold_s(thread) >= 0.02
        with release_thread():
            assert hold_s(thread) == 0.0
        assert hold_s(thread) < 0.02
    assert hold_s(thread) == 0.0


@pytest.mark.slow
def test_a_thread_that_is_held_is_reported_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("slimrl.rollout.held.HELD_S", 0.0)
    with report_held(threading.get_ident()), hold_thread():
        time.sleep(1.3)
    (line,) = capsys.readouterr().err.splitlines()
    assert "held the run for 1 s (test_held.py:" in line and 'worker = "process"' in line
