"""Plans of whole runs: which process holds what, what does not fit, what would help, and what the time goes to."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from slimrl.config.reading.load import load
from slimrl.config.run import RLConfig, SFTConfig
from slimrl_tools.plan.devices import Device, Machine, find_machines
from slimrl_tools.plan.guesses import expect_workload, from_assumption
from slimrl_tools.plan.plan import Plan, Planner, make_planner
from slimrl_tools.plan.report import full_report, proposals, two_lines, verdict
from slimrl_tools.plan.timing import Speeds, times_of
from slimrl_tools.plan.workload import Workload, from_earlier_run, sample_of

BASE = 0.8e9
LARGE = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "tie_word_embeddings": False,
}


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a model of 8 billion weights, of which there is nothing but the config."""
    directory = tmp_path_factory.mktemp("large")
    (directory / "config.json").write_text(json.dumps(LARGE))
    return directory


def settings(model: Path | str, *flags: str) -> RLConfig:
    fixed = ["--model.name", str(model), "--model.dtype", "bfloat16", "--orchestrator.env", '[{id="reverse-text"}]']
    return load(RLConfig, [*fixed, *flags], {}).config


def planner(config: RLConfig | SFTConfig) -> Planner:
    return make_planner(config, BASE)


def cpu(gigabytes: float) -> Machine:
    return Machine("a CPU", Device("CPU", "cpu", gigabytes * 1e9, 2e10, 1e12, 2e11), 0, gigabytes * 1e9, 1e12)


def on(config: RLConfig | SFTConfig, machine: str) -> Plan:
    return planner(config).on(find_machines(machine)[0])


def part(plan: Plan, name: str) -> float:
    return sum(
        part.bytes for place in plan.places for one in place.processes for part in one.parts if name in part.name
    )


@pytest.mark.slow
def test_a_model_of_8_billion_weights_takes_12_bytes_a_weight(large: Path) -> None:
    plan = on(settings(large), "h200x1")
    assert plan.demand.shape.weights == 8_030_261_248
    assert part(plan, "weights") == 2 * (2 * 8_030_261_248)  # the weights, and the halves of their masters
    assert part(plan, "moments") == 8 * 8_030_261_248
    assert not plan.cannot_fit


@pytest.mark.slow
def test_what_cannot_fit_is_told_with_what_would(large: Path) -> None:
    made = planner(settings(large))
    plan = made.on(find_machines("a100x1")[0])
    assert plan.cannot_fit
    found = {tuple(one.settings): one for one in proposals(made, plan)}
    lora = found[("model.lora.rank",)]
    assert lora.saves > 70e9  # the masters and moments of 8 billion weights
    assert lora.fits
    # Saving is what takes most, so nothing that training alone needs would help.
    assert ("trainer.activation_checkpointing",) not in found
    assert "saves" in lora.text
    assert "docs/lora.md" in lora.text
    assert verdict(plan).startswith("It does not fit")


@pytest.mark.slow
def test_proposals_are_put_together_where_none_suffices(large: Path) -> None:
    made = planner(settings(large, "--seq_len", "8192", "--inference.max_slots", "128"))
    plan = made.on(find_machines("rtx4090x1")[0])
    last = proposals(made, plan)[-1]
    assert last.fits == (last.price == "all together")
    if last.fits:
        assert len(last.settings) > 1


@pytest.mark.slow
def test_each_change_saves_what_the_new_plan_lacks(large: Path) -> None:
    found = [
        on(settings(large, "--model.lora.rank", "16", *more), "a100x1")
        for more in ((), ("--inference.max_slots", "32"))
    ]
    saved = part(found[0], "KV cache") - part(found[1], "KV cache")
    assert saved == 2 * 2 * 32 * 32 * 1024 * 1024  # 2 b L slots C K


@pytest.mark.slow
def test_on_several_gpus_ranks_share_weights_and_the_sampler_has_its_own(large: Path) -> None:
    one, four = on(settings(large), "h100x2"), on(settings(large), "h100x5")
    trainers = [p for place in four.places for p in place.processes if p.name.startswith("trainer, rank")]
    assert len(trainers) == 4
    assert {p.device for p in trainers} == {f"cuda:{gpu}" for gpu in range(1, 5)}
    shares = [sum(p.bytes for p in process.parts if p.name == "moments of AdamW") for process in trainers]
    assert shares == [2 * 8_030_261_248] * 4
    assert part(one, "moments") == 8 * 8_030_261_248
    assert {place.device for place in one.places} == {"cuda:0", "cuda:1", "cpu"}
    assert four.times.step["update"] < one.times.step["update"]
    assert "cuda:4" in "\n".join(full_report(four, []))


@pytest.mark.nightly
def test_a_teacher_and_a_reference_are_counted(large: Path) -> None:
    plain = on(settings(large), "h200x1")
    taught = on(settings(large, "--teacher.type", "model", "--trainer.loss.kl_beta", "0.1"), "h200x1")
    assert part(taught, "reference") == 2 * 8_030_261_248  # one copy serves both
    assert taught.times.step["forward and backward"] > plain.times.step["forward and backward"]
    assert "the teacher's scores" in taught.times.step
    other = settings("smollm2-135m", "--teacher.type", "model", "--teacher.name", str(large))
    assert part(on(other, "h200x1"), "teacher") > 16e9


@pytest.mark.slow
def test_processes_on_one_host_share_its_memory() -> None:
    apart = planner(settings("smollm2-135m", "--deployment.type", "processes", "--deployment.num_trainers", "2"))
    (place,) = apart.on(cpu(24)).places
    names = [one.name for one in place.processes]
    assert names == ["trainer, rank 0", "trainer, rank 1", "sampler", "orchestrator"]
    assert place.least > 4 * BASE


@pytest.mark.nightly
def test_a_sampler_keeps_what_adapters_are_merged_into(large: Path) -> None:
    apart = "--model.lora.rank", "8", "--model.dtype", "bfloat16", "--deployment.type", "processes"
    (place,) = planner(settings("smollm2-135m", *apart)).on(cpu(24)).places
    (sampler,) = (one for one in place.processes if one.name == "sampler")
    kept = [part.bytes for part in sampler.parts if part.name == "matrices under the adapter"]
    assert kept == [2 * 106_168_320]  # 30 layers of 3,538,944 weights
    gpus = on(settings(large, *apart[:2]), "h100x2")
    (host,) = (one for place in gpus.places for one in place.processes if one.name == "sampler, host")
    assert sum(part.bytes for part in host.parts) == 2 * 6_979_321_856
    vllm = on(settings(large, *apart[:2], "--inference.backend", "vllm"), "h100x2")
    assert not part(vllm, "matrices under the adapter")


@pytest.mark.slow
def test_memory_at_most_is_that_of_full_conversations() -> None:
    (place,) = planner(settings("smollm2-135m", "--seq_len", "128")).on(cpu(64)).places
    assert place.most > place.expected > place.least
    short = planner(settings("smollm2-135m", "--seq_len", "128")).on(cpu(place.expected / 1e9 + 0.3))
    assert short.fits
    assert "not if every conversation" in verdict(short)


@pytest.mark.slow
def test_sft_has_no_engine(large: Path) -> None:
    words = ["--model.name", str(large), "--data.type", "expert", "--data.env.id", "reverse-text"]
    plan = on(load(SFTConfig, words, {}).config, "h200x1")
    assert part(plan, "KV cache") == 0
    assert [*plan.times.step] == ["forward and backward", "update"]


def test_lengths_come_from_the_expert_and_then_from_the_rollouts_of_an_earlier_run(tmp_path: Path) -> None:
    config = settings("smollm2-135m", "--output_dir", str(tmp_path))
    workload = expect_workload(config)
    assert "expert" in workload.source
    assert workload.num == config.orchestrator.batch_size
    assert max(map(sum, workload.replies)) >= config.orchestrator.sampling.max_tokens
    assert from_earlier_run(tmp_path, 64) is None
    (tmp_path / "rollouts").mkdir()
    (tmp_path / "rollouts" / "step_000001.jsonl").write_text("no rollout\n")
    assert from_earlier_run(tmp_path, 64) is None


def test_lengths_of_an_environment_of_ones_own_are_assumed(tmp_path: Path) -> None:
    words = ["--orchestrator.env.0.id", "mine.py:Mine", "--orchestrator.max_turns", "3", "--seq_len", "512"]
    words += ["--output_dir", str(tmp_path)]  # where no earlier run says better
    config = settings("smollm2-135m").model_copy()
    changed = load(RLConfig, [*words, "--model.name", "smollm2-135m"], {}).config
    workload = expect_workload(changed)
    assert workload.source.startswith("assumed: a prompt of 128 tokens, 3 replies of 32")
    assert {len(lengths) for lengths in workload.replies} == {3}
    assert config.orchestrator.batch_size == workload.num


@pytest.mark.parametrize(("args", "replies"), [("{}", 1), ('{tools = [{python = "tools.py:add"}]}', 5)])
def test_questions_without_tools_are_answered_once(tmp_path: Path, args: str, replies: int) -> None:
    words = ["--orchestrator.env", f"[{{id = 'dataset', args = {args}}}]", "--seq_len", "1024"]
    words += ["--orchestrator.max_turns", "5", "--output_dir", str(tmp_path), "--model.name", "smollm2-135m"]
    workload = from_assumption(load(RLConfig, words, {}).config)
    assert {len(lengths) for lengths in workload.replies} == {replies}


@pytest.mark.slow
def test_times_add_up_by_hand() -> None:
    config = settings("smollm2-135m", "--max_steps", "10", "--eval.num_examples", "4", "--eval.temperatures", "[0.0]")
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


@pytest.mark.slow
def test_two_lines_say_memory_and_time() -> None:
    memory, time = two_lines(planner(settings("smollm2-135m")).on(cpu(24)))
    assert memory.startswith("plan: ") and "of main memory" in memory
    assert "a step" in time and "to the end" in time


@pytest.mark.slow
def test_a_cache_that_is_a_small_part_of_a_gpu_stays_while_the_model_trains() -> None:
    def phase(machine: str) -> str:
        parts = (one for place in on(settings("smollm2-135m", "--seq_len", "4096"), machine).places
                 for process in place.processes for one in process.parts)  # fmt: skip
        return next(one.phase for one in parts if one.name == "KV cache")

    assert (phase("h100x1"), phase("t4x1")) == ("always", "sampling")
