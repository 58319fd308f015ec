import dataclasses
import json
import math
import time

import pytest

from packages.view.tests.made import line_of, record_of
from slimrl.io.checksums import add_digest
from slimrl.monitor.rollouts import rollout_to_json
from slimrl_view.lines import read_line

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
TRAINED = dataclasses.replace(record_of("t"), has_signal=True)  # with an advantage of 0, as with a value head


def read(record, **changes):
    return read_line(json.dumps(rollout_to_json(record) | changes).encode())


def test_a_line_has_what_the_page_lists():
    line = read_line(line_of(record_of("train/a", "So <tool>find(1)</tool> and <tool>find(2)</tool>", 0.75, -0.5)))
    wanted = {"task": "train/a", "reward": 0.75, "advantage": -0.5, "drop": "", "stop": "done", "turns": 1, "tokens": 3}
    wanted |= {"tool_calls": 2, "version": 4, "metrics": '{"exact": 0.0, "turns": 1.0}'}
    assert {name: line[name] for name in wanted} == wanted
    assert line["text"] == "<user>a question<assistant>so <tool>find(1)</tool> and <tool>find(2)</tool>"
    line = read(record_of("t", failure="timeout", metrics={"score": float("nan")}))
    assert (line["reward"], line["drop"], line["stop"], line["metrics"]) == (None, "timeout", "done", "{}")


@pytest.mark.parametrize(
    ("mask", "versions", "wanted"),
    [([0, 1, 1, 0, 1], [-1, 7, 8, -1, 6], (2, 3, 6)), ([1, 0, 0], [0, -1, -1], (1, 1, 0)), ([0], [-1], (0, 0, None))],
)
def test_turns_tokens_and_the_oldest_version_are_counted(mask, versions, wanted):
    line = read(record_of("t"), loss_mask=mask, versions=versions)
    assert (line["turns"], line["tokens"], line["version"]) == wanted


def test_the_prompt_ends_before_the_first_reply():
    texts = [("system", "be brief"), ("user", "q" * 200), ("assistant", "a"), ("user", "found"), ("assistant", "b")]
    messages = [{"role": role, "content": content} for role, content in texts]
    for given, prompt in ((messages, "q" * 160), (messages[:1], "be brief"), (messages[2:], ""), ([], "")):
        assert read(record_of("train/a"), messages=given)["prompt"] == prompt


@pytest.mark.parametrize(
    ("reply", "num"),
    [
        ("<tool>" * 16_000, 0),
        ("<tool>" * 16_000 + "</code>", 0),
        ("<code></tool>" * 8_000, 0),
        ("<tool_call><tool>find(1)</tool></tool_call> <code>2</code>", 2),
    ],
)
def test_calls_are_counted_in_linear_time(reply, num):
    began = time.thread_time()
    assert read(record_of("train/a", reply))["tool_calls"] == num
    assert time.thread_time() - began < 2  # 0.05; 27 where it is quadratic


@pytest.mark.parametrize(
    ("record", "changes", "flat"),
    [
        (record_of("t"), {}, True),
        (TRAINED, {}, False),
        (dataclasses.replace(TRAINED, has_signal=False), {}, True),
        (TRAINED, {"advantages": [], "has_signal": False}, False),  # dropped for another reason
    ],
)
def test_a_rollout_without_a_signal_is_one_by_what_the_run_has_recorded(record, changes, flat):
    assert read(record, **changes)["flat"] is flat


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
    whole = b'{"task_id": "t", "reward": 1, "messages": [], "loss_mask": [0, 1], "versions": [-1, 0]}'
    assert read_line(add_digest(whole))["task"] == "t"
