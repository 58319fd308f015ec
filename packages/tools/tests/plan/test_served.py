"""The memory of judges, partners and teachers that other programs serve on this machine."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from packages.tools.tests.plan.made import MODEL, cpu, planner, settings
from slimrl_tools.plan.devices import Device, Machine, find_machines
from slimrl_tools.plan.plan import Plan
from slimrl_tools.plan.report import explain_refusal, full_report, proposals, verdict
from slimrl_tools.plan.served import RUNTIME, served_processes, size_by_name

pytestmark = pytest.mark.slow

NOBODY = "http://127.0.0.1:9/v1"  # the port of a service that no machine of today runs


def asked(env: str, *more: Mapping[str, Any], flags: tuple[str, ...] = ()) -> Any:
    """Settings of environments with these arguments."""
    envs = [{"id": env, "name": f"env{number}", "args": args} for number, args in enumerate(more)]
    return settings(MODEL, "--orchestrator.env", json.dumps(envs), *flags)


def judged(*flags: str, **judge: Any) -> Any:
    """Settings of wiki-search with a judge."""
    return asked("wiki-search", {"judge": judge} if judge else {}, flags=flags)


def of_judge(plan: Plan, device: str = "cpu") -> float:
    """The bytes on a device of all that is no part of the run itself."""
    found = (one for place in plan.places if place.device == device for one in place.processes)
    return sum(one.tensors for one in found if one.name.split()[0] in ("judge", "partner", "teacher"))


@pytest.mark.parametrize(
    ("name", "gigabytes"),
    [
        ("qwen2.5:7b", 7 * 4.85 / 8),
        ("qwen2.5:7b-instruct-q8_0", 7 * 8.5 / 8),
        ("qwen2.5:0.5b", 0.5 * 4.85 / 8),
        ("Qwen/Qwen2.5-7B-Instruct", 14.0),
        ("Qwen/Qwen2.5-7B-Instruct-AWQ", 7 * 4.5 / 8),
        ("bartowski/Qwen2.5-7B-Instruct-GGUF", 7 * 4.85 / 8),
        ("HuggingFaceTB/SmolLM2-135M-Instruct", 0.27),
        ("mistralai/Mixtral-8x7B-v0.1", 112.0),
        ("Qwen/Qwen3-30B-A3B", 60.0),
        ("qwen2.5:7b-instruct-fp16", 14.0),
        ("bartowski/Qwen2.5-7B-Instruct-GGUF:F16", 14.0),
        ("openai/gpt-oss-20b", 20 * 4.25 / 8),
        ("gpt-4.1", 0.0),
        ("gemma3n:e4b", 0.0),
        ("llama3", 0.0),
        ("", 0.0),
        ("x" * 5000 + ".gguf", 0.0),
        ("7b\0.gguf", 7 * 4.85 / 8),
    ],
)
def test_a_name_tells_the_size(name: str, gigabytes: float) -> None:
    assert size_by_name(name) == pytest.approx(1e9 * gigabytes)


def test_a_gguf_file_has_its_size(tmp_path: Path) -> None:
    (tmp_path / "a-7b.gguf").write_bytes(b"x" * 1234)
    assert size_by_name(str(tmp_path / "a-7b.gguf")) == 1234


def test_a_judge_on_this_machine_takes_main_memory_and_may_leave_too_little() -> None:
    made = planner(judged(base_url=NOBODY, model="qwen2.5:14b"))
    plan, without = made.on(cpu(64)), planner(judged()).on(cpu(64))
    assert of_judge(plan) == pytest.approx(size_by_name("qwen2.5:14b") + RUNTIME)
    # The assumption about rollouts is the same, so that nothing else differs.
    assert plan.places[0].expected - without.places[0].expected == pytest.approx(of_judge(plan))
    assert plan.peak_gb == without.peak_gb  # what the trainer's own process takes
    assert f"judge qwen2.5:14b at {NOBODY}" in "\n".join(full_report(plan, []))
    assert not planner(judged()).on(cpu(8)).cannot_fit
    tight = made.on(cpu(8))
    assert tight.cannot_fit
    assert "does not fit" in verdict(tight)
    assert "judge: weights, by its name 8.49 GB" in explain_refusal(tight, proposals(made, tight))


SMALL = {"base_url": NOBODY, "model": "qwen2.5:3b"}


@pytest.mark.parametrize(
    ("config", "names"),
    [
        (judged(base_url="http://192.0.2.1/v1", model="qwen2.5:7b"), []),
        (judged(base_url="nowhere", model="a-7b"), []),
        (judged(base_url=NOBODY, model="mine"), [f"judge mine at {NOBODY}: its size is not known, and not counted"]),
        (asked("matching-game", {"partner": "llm", "llm": SMALL}), [f"partner qwen2.5:3b at {NOBODY}"]),
        (asked("wiki-search", {"judge": SMALL}, {"judge": SMALL}), [f"judge qwen2.5:3b at {NOBODY}"]),
        (
            settings(MODEL, "--teacher.type", "server", "--teacher.base_url", NOBODY, "--teacher.model", "Q/Q3-1.7B"),
            [f"teacher Q/Q3-1.7B at {NOBODY}"],
        ),
    ],
)
def test_each_model_that_is_served_here_counts_once(config: Any, names: list[str]) -> None:
    found = served_processes(config, "cpu")
    assert [one.name for one in found] == names
    assert all(one.tensors for one in found if "not known" not in one.name)


def test_a_judge_that_sleeps_makes_room_on_its_gpu() -> None:
    flags = "--trainer.micro_batch_tokens", "8192"
    awake, asleep = (
        planner(judged(*flags, base_url=NOBODY, model="Qwen/Qwen3-4B", sleeps=sleeps)).on(find_machines("rtx3090")[0])
        for sleeps in (False, True)
    )
    busy, free = (next(place for place in plan.places if place.device != "cpu") for plan in (awake, asleep))
    policy = next(one for one in free.processes if one.name == "one process")
    judge = size_by_name("Qwen/Qwen3-4B") + RUNTIME
    assert busy.least == pytest.approx(policy.least + judge)
    assert free.least == pytest.approx(max(policy.least, policy.base + policy.bytes_in("sampling") + judge))
    assert free.least < busy.least
    assert of_judge(asleep) == pytest.approx(size_by_name("Qwen/Qwen3-4B"))  # its weights wait in main memory


def test_the_judge_is_on_the_gpu_of_a_machine_whose_policy_is_on_the_cpu() -> None:
    gpu = Device("G", "cuda", 8e9, 5e11, 5e13, 1e13)
    machine = Machine("both", Device("CPU", "cpu", 32e9, 2e10, 1e12, 2e11), 1, 32e9, 1e12, "", (gpu,))
    plan = planner(judged("--model.device", "cpu", base_url=NOBODY, model="Qwen/Qwen3-4B")).on(machine)
    assert plan.cannot_fit  # 8.5 GB on a GPU of 8
    assert of_judge(plan, "cuda:0") == pytest.approx(8.5e9)
