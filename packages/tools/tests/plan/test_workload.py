"""What rollouts are expected to be like: by an earlier run, a recorded one, or an assumption."""

import itertools
import json
from pathlib import Path

import pytest

from benchmarks.learning.outlines import outline_of
from packages.tools.tests.plan.made import MODEL, cpu, on, settings
from slimrl.config.reading.load import load
from slimrl.config.run import RLConfig, SFTConfig
from slimrl.io.run_dir import RunDir
from slimrl.monitor.rollouts import RolloutRecord, write_rollouts
from slimrl.types import Rollout, StopReason
from slimrl_tools.plan.timing import Speeds, times_of
from slimrl_tools.plan.workload import (
    Row,
    Workload,
    expect_workload,
    from_assumption,
    from_earlier_run,
    row_of,
    sample_of,
    samples_of,
)

EXAMPLES = Path(__file__).parents[4] / "examples"


def recipe(name: str, *flags: str) -> RLConfig:
    path = EXAMPLES / name / "rl.toml"
    return load(RLConfig, ["@", str(path), "--output_dir", "nowhere", *flags], {}).config


@pytest.mark.parametrize("name", ["reverse_text", "alphabet_sort", "wordle", "wiki_search", "matching_game"])
def test_recipes_are_planned_with_what_was_recorded_of_them(name: str) -> None:
    config = recipe(name)
    workload = expect_workload(config)
    by = "scripted episodes" if name == "matching_game" else "a recorded run"
    assert workload.source == f"lengths of {by} of {name}"
    assert workload.num == config.orchestrator.batch_size
    assert max(len(sample.token_ids_T) for sample in workload.samples) <= config.seq_len
    halved = expect_workload(recipe(name, "--orchestrator.batch_size", str(config.orchestrator.batch_size // 2)))
    assert halved.row.tokens == pytest.approx(workload.row.tokens / 2)


@pytest.mark.parametrize(
    ("name", "flag"),
    [
        ("reverse_text", "--orchestrator.sampling.max_tokens=40"),
        ("reverse_text", "--warmup.max_steps=0"),
        ("reverse_text", "--model.name=Qwen/Qwen3-0.6B"),
        ("reverse_text", "--seq_len=50"),  # which cuts the replies
        ("wordle", "--orchestrator.env.0.args.num_answers=50"),
    ],
)
def test_a_run_that_differs_in_what_decides_lengths_says_so(name: str, flag: str) -> None:
    config = recipe(name, *flag.split("="))
    workload = expect_workload(config)
    assert workload.source == f"lengths of a recorded run of {name}, whose settings differ"
    assert max(len(sample.token_ids_T) for sample in workload.samples) <= config.seq_len


def test_where_nothing_is_left_of_what_was_recorded_lengths_are_assumed() -> None:
    assert expect_workload(recipe("wordle", "--seq_len", "32")).source.startswith("assumed")  # which an opening fills


def test_demonstrations_of_a_recorded_environment_are_as_long_as_its_rollouts() -> None:
    words = ["--data.type", "expert", "--data.env.id", "reverse_text", "--seq_len", "48", "--batch_size", "6"]
    workload = expect_workload(load(SFTConfig, words, {}).config)
    assert workload.source == "lengths of a recorded run of reverse_text, whose settings differ"
    assert (workload.num, max(len(sample.token_ids_T) for sample in workload.samples)) == (6, 48)


TOOLS = [{"python": "tools.py:add"}]


@pytest.mark.parametrize(
    ("env", "turns", "replies"),
    [
        ({"id": "mine.py:Mine"}, 3, 3),
        ({"id": "dataset"}, 5, 1),  # questions without tools are answered once
        ({"id": "dataset", "args": {"tools": TOOLS}}, 5, 5),
    ],
)
def test_lengths_of_other_environments_are_assumed(
    tmp_path: Path, env: dict[str, object], turns: int, replies: int
) -> None:
    words = ["--orchestrator.env", json.dumps([env]), "--orchestrator.max_turns", str(turns), "--seq_len", "1024"]
    config = load(RLConfig, [*words, "--model.name", "smollm2-135m", "--output_dir", str(tmp_path)], {}).config
    workload = from_assumption(config)
    assert workload.source == f"assumed: a prompt of 256 tokens, {replies} replies of 32"
    assert {len(lengths) for lengths in workload.replies} == {replies}
    assert workload.num == config.orchestrator.batch_size
    if ":" in str(env["id"]):
        assert expect_workload(config).source == workload.source


def test_an_outline_gives_back_lengths_and_what_was_shared() -> None:
    # b begins like a, c like b: three prompts of which one is read once, and an observation that two have in common.
    a = sample_of([1, 2, 3, 4], [False, False, True, True])
    b = sample_of([1, 2, 5, 6, 7], [False, False, True, False, True])
    c = sample_of([1, 2, 5, 6, 8, 9], [False, False, True, False, True, True])
    outline = outline_of([a, b, c])
    assert outline == [[0, 0, 2, 2], [0, 2, 2, 1, 1, 1], [1, 4, 2, 1, 1, 2]]
    made = [*samples_of(outline)]
    assert [one.loss_mask_T for one in made] == [one.loss_mask_T for one in (a, b, c)]
    assert outline_of(made) == outline
    # 1 2 3, 5 6 behind 1 2, then 8: last tokens are only predicted. Each sees those before it and itself.
    assert row_of(made) == row_of([a, b, c]) == Row(6, 7, (1 + 2 + 3) + (3 + 4) + 5)


def test_rollouts_without_signal_are_sampled_and_not_trained_on(tmp_path: Path) -> None:
    def record(number: int, has_signal: bool) -> RolloutRecord:
        mask = (False, True, True)
        rollout = Rollout(
            task_id=str(number // 2), token_ids_T=(1, number, 3), loss_mask_T=mask, logprobs_T=(0.0, -1.0, -1.0),
            versions_T=(-1, 0, 0), reward=1.0, turn_rewards=(1.0,), messages=(), metrics={},
            stop_reason=StopReason.DONE,
        )  # fmt: skip
        return RolloutRecord(rollout, (0.0,), "", has_signal=has_signal)

    RunDir(tmp_path).rollouts_of(0).parent.mkdir()
    write_rollouts(RunDir(tmp_path).rollouts_of(0), [record(number, number >= 4) for number in range(12)])
    write_rollouts(tmp_path / "rollouts" / "step_000009_good.jsonl", [record(0, True)])
    damaged = RunDir(tmp_path).rollouts_of(1)  # a later file that is damaged is passed over
    damaged.write_text("no rollout\n")
    workload = from_earlier_run(tmp_path, 16)
    assert workload is not None
    assert len(workload.samples) == 8
    assert workload.num == 16
    assert workload.useless == pytest.approx(1 / 3)
    # 8 groups of 2, of which a third has no signal: 3 others in their place, one in place of one of these.
    assert workload.waves(2, 3) == [16, 6, 2]


@pytest.mark.parametrize("useless", [0.51, 0.75, 0.99, 1.0])
def test_waves_end_where_the_orchestrator_gives_up(useless: float) -> None:
    mask = [False, True]
    samples = tuple(sample_of([number, number + 1], mask) for number in range(64))
    waves = Workload(samples, 1.0, "by hand", useless=useless).waves(8, 3)
    assert waves[0] == 64
    assert 64 < sum(waves) <= 3 * 64
    assert all(a >= b for a, b in itertools.pairwise(waves))


def test_a_warm_up_has_rollouts_of_different_tasks() -> None:
    # Two groups of two, of which the second has the longer prompt.
    rows = [([1, 5], [2]), ([1, 5], [3]), ([6, 7, 8, 9], [2]), ([6, 7, 8, 9], [4])]
    samples = tuple(sample_of([*prompt, *reply], [False] * len(prompt) + [True]) for prompt, reply in rows)
    assert Workload(samples, 4.0, "by hand").distinct_row(8).tokens == 4 * (2 + 4)


@pytest.mark.slow
def test_each_turn_costs_a_prefill_and_each_wave_its_decoding() -> None:
    config = settings(MODEL, "--orchestrator.batch_size", "4", "--orchestrator.rollouts_per_example", "2")
    mask = [False, True, True, False, True]
    samples = tuple(sample_of([number, *range(10 * number, 10 * number + 4)], mask) for number in (1, 2, 3, 4))
    workload = Workload(samples, 1.0, "by hand", useless=0.5)
    assert workload.waves(2, 3) == [4, 2]
    demand = on(config, cpu(64)).demand
    times = times_of(config, demand, workload, Speeds(1.0, 0.1, 0.01, 0.5, 3.0, "by hand", head=0.2, attend=0.01))
    assert times.step["decoding"] == pytest.approx(3 * (1.0 + 0.4) + 3 * (1.0 + 0.2))
    # All turns end at the same token, so their observations come together: one pass in each wave.
    assert times.step["prefill"] == pytest.approx(2 * 1.0 + (1 + 0.5) * (16 - 12) * 0.01)
    assert workload.row == Row(16, 12, 4 * (1 + 2 + 3 + 4))  # the last token of each is only predicted
    assert times.step["forward and backward"] == pytest.approx(16 * 0.5 + 12 * 0.2 + 40 * 0.01)
