"""Plans of whole runs: which process holds what, what does not fit, what would help, and what the time goes to."""

from dataclasses import replace
from pathlib import Path

import pytest

from packages.tools.tests.plan.made import BASE, MODEL, cpu, on, part, planner, settings
from slimrl_tools.plan.report import full_report, verdict
from slimrl_tools.plan.timing import Speeds, times_of
from slimrl_tools.plan.workload import Workload, sample_of

pytestmark = pytest.mark.slow


RANKS = ["trainer, rank 0", "trainer, rank 1"]
HOSTS = ["trainer, host", "sampler, host", "orchestrator"]
SMALL, W = MODEL, 8_030_261_248  # the weights of LARGE
LORA, APART = ("--model.lora.rank", "8"), ("--deployment.type", "processes")
TAUGHT = "--teacher.type", "model", "--trainer.loss.kl_beta", "0.1"
SLOTS = "--model.lora.rank", "16", "--inference.max_slots"
UNDER = "matrices under the adapter"


@pytest.mark.parametrize(
    ("model", "flags", "machine", "name", "num_bytes"),
    [
        ("large", (), "h200x1", "weights", 2 * (2 * W)),  # the weights, and the halves of their masters
        ("large", (), "h200x1", "moments", 8 * W),
        ("large", (), "h100x2", "moments", 8 * W),
        ("large", (), "h100x5", "moments", 8 * W),  # a quarter in each of four ranks
        ("large", TAUGHT, "h200x1", "reference", 2 * W),  # one copy serves both
        (SMALL, ("--teacher.type", "model", "--teacher.name", "large"), "h200x1", "teacher large", 2 * W),
        ("large", (*SLOTS, "64"), "a100x1", "KV cache", 2 * 2 * 32 * 65 * 1024 * 1024),  # 2 b L (slots + 1) C K
        ("large", (*SLOTS, "32"), "a100x1", "KV cache", 2 * 2 * 32 * 33 * 1024 * 1024),
        (SMALL, (*LORA, *APART), "", UNDER, 2 * 106_168_320),  # 30 layers of 3,538,944 weights
        ("large", LORA, "h100x2", UNDER, 2 * 6_979_321_856),
        ("large", (*LORA, "--inference.backend", "vllm"), "h100x2", UNDER, 0),
    ],
)
def test_parts_are_those_worked_out_by_hand(
    large: Path, model: str, flags: tuple[str, ...], machine: str, name: str, num_bytes: int
) -> None:
    words = [str(large) if word == "large" else word for word in (model, *flags)]
    plan = on(settings(*words), machine or cpu(24))
    assert part(plan, name.replace("large", str(large))) == num_bytes


@pytest.mark.parametrize(
    ("flags", "machine", "names"),
    [
        (("--deployment.num_trainers", "2", *APART), "", {"cpu": [*RANKS, "sampler", "orchestrator"]}),
        ((), "h100x2", {"cuda:1": ["trainer"], "cpu": HOSTS, "cuda:0": ["sampler"]}),
        ((), "h100x3", {"cuda:1": RANKS[:1], "cuda:2": RANKS[1:], "cpu": HOSTS, "cuda:0": ["sampler"]}),
        ((), "h100x1", {"cuda:0": ["one process"], "cpu": ["host"]}),
    ],
)
def test_processes_are_on_their_devices(flags: tuple[str, ...], machine: str, names: dict[str, list[str]]) -> None:
    plan = on(settings(SMALL, *flags), machine or cpu(24))
    assert {place.device: [one.name for one in place.processes] for place in plan.places} == names
    assert all(place.least > BASE * len(place.processes) for place in plan.places if place.device == "cpu")
    assert all(device in "\n".join(full_report(plan)) for device in names if device == "cuda:2")


def test_ranks_share_an_update_and_a_reference_costs_time(large: Path) -> None:
    one, four = (on(settings(large), machine) for machine in ("h100x2", "h100x5"))
    taught = on(settings(large, *TAUGHT), "h100x2")
    assert four.times.step["update"] < one.times.step["update"]
    assert taught.times.step["forward and backward"] > one.times.step["forward and backward"]
    assert "the teacher's scores" in taught.times.step


def test_memory_at_most_is_that_of_full_conversations() -> None:
    config = settings(MODEL, "--seq_len", "128")
    (place,) = on(config, cpu(64)).places
    assert place.most > place.expected > place.least
    short = on(config, cpu(place.expected / 1e9 + 0.3))
    assert short.fits
    assert "not if every conversation" in verdict(short)


def test_times_add_up_by_hand() -> None:
    config = settings(MODEL, "--max_steps", "10", "--eval.num_examples", "4", "--eval.temperatures", "[0.0]")
    # Two rollouts of 2 and 4 sampled tokens: four steps of the engine, of which two have both and two have one.
    samples = tuple(sample_of([n, *range(1, 4 + num)], [False] * 4 + [True] * num) for n, num in ((8, 2), (9, 4)))
    workload = Workload(samples, 2.0, "by hand", env_s=0.5)
    made = replace(planner(config), workload=workload)
    demand = made.on(cpu(64)).demand
    times = times_of(config, demand, workload, Speeds(1.0, 0.1, 0.01, 0.001, 3.0, "by hand"))
    assert workload.replies == [[2], [4]]
    assert times.step["decoding"] == pytest.approx(4 * 1.0 + 2 * 0.1 * (2 + 2 + 1 + 1))
    assert times.step["environments"] == 2.0
    assert times.step["prefill"] == pytest.approx((workload.row.tokens - 12) * 0.01)
    assert times.step["update"] == 3.0
    assert times.bottleneck == "decoding"
    assert times.run["10 steps"] == pytest.approx(10 * times.step_s)
    # Two evaluations of 4 episodes, which is one step's rollouts each.
    sampling = times.step["decoding"] + times.step["prefill"] + times.step["environments"]
    assert times.run["2 evaluations of 4 episodes"] == pytest.approx(2 * sampling)


def test_a_cache_that_is_a_small_part_of_a_gpu_stays_while_the_model_trains() -> None:
    def phase(machine: str) -> str:
        parts = (one for place in on(settings(MODEL, "--seq_len", "4096"), machine).places
                 for process in place.processes for one in process.parts)  # fmt: skip
        return next(one.phase for one in parts if one.name == "KV cache")

    assert (phase("h100x1"), phase("t4x1")) == ("always", "sampling")
