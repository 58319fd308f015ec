import dataclasses
import json
import math
import random
import time

import pytest

from packages.view.tests.made import line_of, record_of
from slimrl.io.checksums import add_digest
from slimrl.monitor.rollouts import rollout_to_json
from slimrl_view.lines import encodable, read_line

TRICKS = [
    '", "token_ids": [1, 2',
    '], "loss_mask": [0, 1], "logprobs": [',
    "\\",
    '\\", "versions": [',
    "\u2028\x00\ud800",
]

# The numbers of a rollout that JSON can spell, and a float, a whole number or the index cannot hold.
TOO_LARGE = [
    {"reward": 10**400},
    {"draw": math.inf},
    {"draw": 2**63},
    {"draw": -(2**63) - 1},
    {"versions": [-1, -1, 2**63, 2**63, 2**64]},
    {"advantages": [10**400]},
    {"metrics": {"x": 10**400}},
]


def test_a_line_says_what_the_page_lists():
    line = read_line(line_of(record_of("train/a", "So <tool>find(1)</tool> and <tool>find(2)</tool>", 0.75, -0.5)))
    assert (line["task"], line["reward"], line["advantage"], line["drop"], line["stop"]) == (
        "train/a",
        0.75,
        -0.5,
        "",
        "done",
    )
    assert (line["turns"], line["tokens"], line["tool_calls"], line["version"]) == (1, 3, 2, 4)
    assert json.loads(line["metrics"]) == {"exact": 0.0, "turns": 1.0}
    assert line["text"] == "<user>a question<assistant>so <tool>find(1)</tool> and <tool>find(2)</tool>"


def test_the_prompt_ends_before_the_first_reply():
    messages = [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "q" * 200},
        {"role": "assistant", "content": "a"},
        {"role": "user", "content": "found"},
        {"role": "assistant", "content": "b"},
    ]
    for given, prompt in ((messages, "q" * 160), (messages[:1], "be brief"), (messages[2:], ""), ([], "")):
        line = read_line(line_of(record_of("train/a", messages=tuple(given))))
        assert line["prompt"] == prompt


@pytest.mark.parametrize("reply", ["<tool>" * 16_000, "<tool>" * 16_000 + "</code>", "<code></tool>" * 8_000])
def test_calls_without_an_end_are_counted_in_linear_time(reply):
    began = time.thread_time()
    assert read_line(line_of(record_of("train/a", reply)))["tool_calls"] == 0
    assert time.thread_time() - began < 2  # 0.05; 27 where it is quadratic


def test_a_call_within_another_one_is_not_counted():
    reply = "<tool_call><tool>find(1)</tool></tool_call> <code>2</code>"
    assert read_line(line_of(record_of("train/a", reply)))["tool_calls"] == 2


@pytest.mark.parametrize("reply", TRICKS)
def test_texts_that_look_like_the_end_of_a_line_are_texts(reply):
    record = record_of(f"train/{reply}", reply, metrics={reply: 1.0})
    line = read_line(line_of(record))
    assert (line["task"], line["excerpt"], line["tokens"]) == (f"train/{encodable(reply)}", encodable(reply), 3)
    assert line == read_line(json.dumps(rollout_to_json(record), indent=1).encode())


def test_the_quick_way_counts_as_the_whole_one():
    rng = random.Random(0)
    for _ in range(200):
        num = rng.randrange(2, 30)
        mask = (False, *(rng.random() < 0.5 for _ in range(num - 1)))
        turns = sum(b and not a for a, b in zip((False, *mask), mask, strict=False))
        record = record_of(
            "t",
            token_ids_T=tuple(rng.randrange(9) for _ in mask),
            loss_mask_T=mask,
            logprobs_T=(0.0,) * num,
            versions_T=tuple(rng.randrange(12) if sampled else -1 for sampled in mask),
            turn_rewards=(0.0,) * turns,
        )
        quick = read_line(line_of(record))
        assert quick == read_line(json.dumps(rollout_to_json(record), indent=1).encode())
        assert (quick["turns"], quick["tokens"]) == (turns, sum(mask))


def test_what_is_missing_is_none():
    line = read_line(line_of(record_of("t", failure="timeout", metrics={"score": float("nan")})))
    assert (line["reward"], line["drop"], line["stop"], line["metrics"]) == (None, "timeout", "done", "{}")


def test_a_rollout_with_an_advantage_that_is_not_0_in_one_turn_has_a_signal():
    content = rollout_to_json(record_of("t")) | {"advantages": [0.5, -0.5]}
    del content["has_signal"]
    line = read_line(json.dumps(content).encode())
    assert (line["advantage"], line["flat"]) == (0.0, False)
    assert read_line(line_of(record_of("t")))["flat"]


def test_what_the_run_has_recorded_of_the_signal_counts_more_than_the_advantages():
    trained = dataclasses.replace(record_of("t", advantage=0.0), has_signal=True)  # as with a value head
    assert not read_line(line_of(trained))["flat"]
    assert read_line(line_of(dataclasses.replace(trained, has_signal=False)))["flat"]
    failed = dataclasses.replace(trained, advantages=(), has_signal=False)
    assert not read_line(line_of(failed))["flat"]  # it was dropped for another reason


def test_in_a_file_from_before_signals_were_recorded_the_advantages_count():
    for advantage in (0.0, 0.5):
        content = rollout_to_json(record_of("t", advantage=advantage))
        del content["has_signal"]
        assert read_line(json.dumps(content).encode())["flat"] == (advantage == 0.0)


@pytest.mark.parametrize("change", TOO_LARGE)
def test_a_line_with_a_number_that_is_too_large_is_refused(change):
    content = rollout_to_json(record_of("t")) | change
    for indent in (None, 1):  # read in the quick way, and as a whole
        with pytest.raises(ValueError, match="is no rollout"):
            read_line(json.dumps(content, indent=indent).encode())


@pytest.mark.parametrize(
    "line",
    [b"", b"{}", b"[]", b"null", b'{"task_id": "a"}', b"\xff\xfe", b"[" * 100_000, b'{"task_id": 1, "messages": 5}'],
)
def test_what_is_no_rollout_is_refused(line):
    with pytest.raises(ValueError, match="is no rollout"):
        read_line(line)


def test_a_damaged_line_is_refused():
    line = line_of(record_of("t", "twenty words"))
    with pytest.raises(ValueError, match="damaged"):
        read_line(line.replace(b"twenty", b"thirty"))
    assert read_line(
        add_digest(b'{"task_id": "t", "reward": 1, "messages": [], "loss_mask": [0, 1], "versions": [-1, 0]}')
    )
