"""Where code cannot be isolated it does not run, and the error says what to do; unless that is asked for by name."""

import os
import struct
from pathlib import Path

import pytest

from packages.sandbox.tests.conftest import run_all
from slimrl.errors import UserError
from slimrl_sandbox import seccomp


def test_without_bubblewrap_nothing_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match=r"`bwrap`\) is not installed.*apt-get install bubblewrap"):
        run_all(["print(1)"])


@pytest.mark.parametrize(
    ("said", "remedy"),
    [
        ("bwrap: Unknown option --size", "version 0.8"),
        ("bwrap: Creating new namespace failed: Operation not permitted", "user.max_user_namespaces=.*seccomp profile"),
        ("", "without a word"),
    ],
)
def test_a_bubblewrap_that_fails_is_told_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, said: str, remedy: str
) -> None:
    fake = tmp_path / "bwrap"
    fake.write_text(f'#!/bin/sh\necho "{said}" >&2\nexit 1\n')
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match=remedy) as caught:
        run_all(["print(1)"])
    assert said in str(caught.value)
    assert "--unsafe-without-isolation" in str(caught.value)


def test_a_machine_whose_calls_are_unknown_is_refused() -> None:
    with pytest.raises(UserError, match="riscv64"):
        seccomp.program("riscv64")


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_every_jump_of_the_filter_stays_inside(machine: str) -> None:
    steps = list(struct.iter_unpack("=HBBI", seccomp.program(machine)))
    for i, (operation, if_true, if_false, _) in enumerate(steps):
        if operation & 0x07 == 0x05:
            assert i + 1 + max(if_true, if_false) < len(steps)
    assert steps[-1][0] == 0x06


def test_without_isolation_limits_and_time_outs_act() -> None:
    late, large, ended = run_all(
        ["while True: pass", "bytearray(2**30)", "print(shout('a'))"], isolation="none", timeout_s=0.5
    )
    assert "timeout_s = 0.5" in late.error
    assert "MemoryError" in large.error
    assert (ended.stdout, ended.error) == ("A\n", "")


def test_without_isolation_the_environment_is_scrubbed_and_files_live_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_KEY", "hidden")
    left, found = run_all(
        ["import os\nprint('SECRET_KEY' in os.environ)\nopen('a', 'w')", "open('a')\nimport os\nprint(os.getcwd())"],
        isolation="none",
        session_id="s",
    )
    assert left.stdout == "False\n"
    assert found.error == ""
    assert not os.path.exists(found.stdout.strip())
