"""The benchmarks' own arithmetic. Nothing is timed here."""

import json
import math
import re
from pathlib import Path

import pytest

from benchmarks.harness import generate_work, roofline, seeds, train_work
from benchmarks.harness.measure import RESULTS
from benchmarks.sides import ours_episodes
from benchmarks.speed import retrieval, scaling, train_step
from slimrl.types import Rollout

HOMES = ("home", "root", "Users")  # the directories of users


def test_results_have_no_place_of_the_machine_that_made_them() -> None:
    for path in RESULTS.rglob("*.json"):
        text = path.read_text(encoding="utf-8")
        assert "site-packages" not in text and not re.search(rf"/({'|'.join(HOMES)})/", text), path


def test_prefill_ends_when_the_last_sequence_has_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 1.0, 3.0, 7.0])
    monkeypatch.setattr(generate_work.time, "perf_counter", lambda: next(clock))
    watch = generate_work.Stopwatch(batch=2)
    watch.after_step(num_started=1, num_tokens=1)
    watch.after_step(num_started=2, num_tokens=3)
    watch.after_step(num_started=2, num_tokens=5)
    assert watch.timing() == generate_work.Timing(prefill_s=3.0, decode_s=4.0, decoded=2)


def test_needed_work_is_counted_by_hand() -> None:
    shape = roofline.ModelShape(params=110, head=10, tied=True, layers=2, attention_width=4, kv_width=2)
    work = roofline.decode_work(shape, batch=3, context=5, width=2)
    assert math.isclose(work.gflop * 1e9, 3 * (2 * 110 + 4 * 2 * 4 * 5))
    assert math.isclose(work.gigabytes * 1e9, 110 * 2 + 3 * (2 * 2 * 2 * 5 * 2))
    # 3 tokens behind 2 known ones attend to 3 + 4 + 5 keys, and the head runs once.
    work = roofline.prefill_work(shape, batch=1, prompt=3, width=2, known=2)
    assert math.isclose(work.gflop * 1e9, 2 * 100 * 3 + 2 * 10 + 4 * 2 * 4 * 12)
    assert roofline.Work(gflop=6.0, gigabytes=1.0).seconds(gflops=2.0, gb_per_s=10.0) == 3.0


def test_a_shared_prompt_is_counted_once() -> None:
    sequences = train_work.batch_of("group", 1000, train_work.GroupSize(rollouts=3, prompt=4, completion=3))
    # 4 of the prompt, 2 of each completion (the last predicts nothing); pairs: 10, and 4 + 1 and 4 + 2 for each.
    assert train_step.unique_work(sequences) == (4 + 3 * 2, 10 + 3 * 11)


def test_rollouts_tokens_are_counted_once_where_all_before_is_the_same() -> None:
    report = ours_episodes.GroupReport("")
    rollouts = [_rollout((1, 2, 3, 9), "..s."), _rollout((1, 2, 4, 9), "..s.")]
    ours_episodes.count_tokens(rollouts, report)
    assert (report.unique, report.unique_read, report.read, report.sampled) == ([6], [4], [6], [2])


def _rollout(token_ids: tuple[int, ...], kinds: str) -> Rollout:
    zeros = (0.0,) * len(token_ids)
    mask = tuple(kind == "s" for kind in kinds)
    return Rollout("t", token_ids, mask, zeros, (0,) * len(token_ids), reward=0.0, turn_rewards=(0.0,))


def test_proportional_cost_has_exponent_one() -> None:
    assert scaling.exponent([10, 20, 40], [0.5, 1.0, 2.0]) == 1.0


def test_sizes_that_were_not_run_lie_on_a_line_through_the_nearest_two() -> None:

    def size(pages: int, cost: float, latency: float) -> dict[str, object]:
        shown = dict.fromkeys(retrieval.BY_PAGE, cost) | dict.fromkeys(retrieval.BY_TENFOLD, latency)
        return {"pages": pages, "shown": shown}

    sizes = [size(1_000, 5.0, 1.0), size(10_000, 14.0, 2.0), size(100_000, 104.0, 3.0)]
    between, beyond = (retrieval.extrapolate(sizes, pages) for pages in (2_000, 1_000_000))
    assert between["from"] == [1_000, 10_000] and beyond["from"] == [10_000, 100_000]
    assert between["shown"]["opening s"] == 6.0 and beyond["shown"]["opening s"] == 1004.0
    assert between["shown"]["search p50 ms"] == 1.3 and beyond["shown"]["search p50 ms"] == 4.0


def test_the_outcome_of_a_run_says_whether_its_intervals_are_apart(tmp_path: Path) -> None:
    (tmp_path / "held_out").mkdir()
    for stage, mean in (("base", 0.0), ("start", 0.5), ("final", 0.7)):
        estimate = {"mean": mean, "low": mean - 0.1, "high": mean + 0.05}
        held_out = {"greedy": estimate, "sampled": estimate | {"low": mean - 0.16}}
        metrics = {"held_out/turns_greedy": 2.0 + mean, "held_out/turns_sampled": 3.0}
        (tmp_path / "held_out" / f"{stage}.json").write_text(json.dumps({"held_out": held_out, "metrics": metrics}))
    (tmp_path / "summary.json").write_text('{"duration_s": 90}')
    found = seeds.outcome(tmp_path, ["turns"])
    assert found["minutes"] == 1.5
    assert (found["greedy"]["intervals_apart"], found["sampled"]["intervals_apart"]) == (True, False)
    assert found["greedy"]["turns"] == [2.0, 2.5, 2.7]
