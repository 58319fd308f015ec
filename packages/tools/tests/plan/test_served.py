"""The memory of judges, partners and teachers that other programs serve on this machine."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from packages.tools.tests.plan.test_plan import cpu, planner, settings
from slimrl_tools.plan.devices import Device, Machine, find_machines
from slimrl_tools.plan.plan import Plan
from slimrl_tools.plan.report import explain_refusal, full_report, proposals, verdict
from slimrl_tools.plan.served import RUNTIME, served_models, size_by_name

pytestmark = pytest.mark.slow

NOBODY = "http://127.0.0.1:9/v1"  # the port of a service that no machine of today runs
MODEL = "smollm2-135m"


def judged(*flags: str, **judge: Any) -> Any:
    """Settings of wiki-search with a judge."""
    return asked("wiki-search", {"judge": judge}, *flags)


def asked(env: str, args: Mapping[str, Any], *flags: str) -> Any:
    words = ["--orchestrator.env", f'[{{id="{env}", args={{{_toml(args)}}}}}]']
    return settings(MODEL, *words, *flags)


def _toml(table: Mapping[str, Any]) -> str:
    def value(one: Any) -> str:
        return f"{{{_toml(one)}}}" if isinstance(one, Mapping) else json.dumps(one)

    return ", ".join(f"{key} = {value(one)}" for key, one in table.items())


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


@pytest.mark.slow
def test_a_judge_on_this_machine_takes_main_memory() -> None:
    plan = planner(judged(base_url=NOBODY, model="qwen2.5:7b")).on(cpu(64))
    assert of_judge(plan) == pytest.approx(size_by_name("qwen2.5:7b") + RUNTIME)
    without = planner(asked("wiki-search", {})).on(cpu(64))
    # The assumption about rollouts is the same, so that nothing else differs.
    assert plan.places[0].expected - without.places[0].expected == pytest.approx(of_judge(plan))
    assert plan.peak_gb == without.peak_gb  # what the trainer's own process takes
    report = "\n".join(full_report(plan, []))
    assert f"judge qwen2.5:7b at {NOBODY}" in report
    assert "judge: weights, by its name" in report


@pytest.mark.slow
def test_a_run_that_fits_without_its_judge_is_refused_with_it() -> None:
    machine = cpu(8)
    assert not planner(asked("wiki-search", {})).on(machine).cannot_fit
    made = planner(judged(base_url=NOBODY, model="qwen2.5:14b"))
    plan = made.on(machine)
    assert plan.cannot_fit
    assert "does not fit" in verdict(plan)
    assert "judge: weights, by its name 8.49 GB" in explain_refusal(plan, proposals(made, plan))


@pytest.mark.parametrize(
    "judge",
    [{"base_url": "http://192.0.2.1/v1", "model": "qwen2.5:7b"}, {"base_url": "nowhere", "model": "a-7b"},
     {"min_f1": 0.9}],
)  # fmt: skip
def test_a_judge_elsewhere_and_settings_that_are_no_server_take_nothing(judge: dict[str, Any]) -> None:
    assert not served_models(judged(**judge))


def test_a_judge_of_unknown_size_is_listed_and_not_counted() -> None:
    plan = planner(judged(base_url=NOBODY, model="my-judge")).on(cpu(64))
    assert of_judge(plan) == 0
    assert f"judge my-judge at {NOBODY}: its size is not known, and not counted" in "\n".join(full_report(plan, []))


def test_partner_and_teacher_count_once_each() -> None:
    partner = asked("matching-game", {"partner": "llm", "llm": {"base_url": NOBODY, "model": "qwen2.5:3b"}})
    assert [(one.role, one.name) for one in served_models(partner)] == [("partner", "qwen2.5:3b")]
    args = {"judge": {"base_url": NOBODY, "model": "qwen2.5:7b"}}
    two = [f'{{id="wiki-search", name="{name}", args={{{_toml(args)}}}}}' for name in ("a", "b")]
    both = settings(MODEL, "--orchestrator.env", f"[{', '.join(two)}]")
    assert len(served_models(both)) == 1
    flags = ["--teacher.type", "server", "--teacher.base_url", NOBODY, "--teacher.model", "Qwen/Qwen3-1.7B"]
    assert [one.role for one in served_models(settings(MODEL, *flags))] == ["teacher"]


@pytest.mark.slow
def test_a_judge_that_sleeps_makes_room_on_its_gpu() -> None:
    awake, asleep = (
        planner(
            judged("--trainer.micro_batch_tokens", "8192", base_url=NOBODY, model="Qwen/Qwen3-4B", sleeps=sleeps)
        ).on(find_machines("rtx3090x1")[0])
        for sleeps in (False, True)
    )
    gpu = {name: next(place for place in plan.places if place.device != "cpu") for name, plan in
           (("awake", awake), ("asleep", asleep))}  # fmt: skip
    policy = next(one for one in gpu["asleep"].processes if one.name == "one process")
    judge = size_by_name("Qwen/Qwen3-4B") + RUNTIME
    assert gpu["awake"].least == pytest.approx(policy.least + judge)
    assert gpu["asleep"].least == pytest.approx(max(policy.least, policy.base + policy.bytes_in("sampling") + judge))
    assert gpu["asleep"].least < gpu["awake"].least
    assert of_judge(asleep) == pytest.approx(size_by_name("Qwen/Qwen3-4B"))  # its weights wait in main memory


def test_the_judge_is_on_the_gpu_of_a_machine_whose_policy_is_on_the_cpu() -> None:
    gpu = Device("G", "cuda", 8e9, 5e11, 5e13, 1e13)
    machine = Machine("both", Device("CPU", "cpu", 32e9, 2e10, 1e12, 2e11), 1, 32e9, 1e12, "", (gpu,))
    plan = planner(judged("--model.device", "cpu", base_url=NOBODY, model="Qwen/Qwen3-4B")).on(machine)
    assert plan.cannot_fit  # 8.5 GB on a GPU of 8
    assert of_judge(plan, "cuda:0") == pytest.approx(8.5e9)
