import dataclasses

import numpy as np
import pytest

from packages.view.tests.made import indexed, record_of, write_step
from slimrl_view.detail import NO_TOKENIZER, OTHER_TEXT, read_rollout
from slimrl_view.queries import Missing
from tests.tiny import tiny_tokenizer

PROMPT = "<|im_start|>user\nsay 🙂<|im_end|>\n<|im_start|>assistant\n"


TURNS = (PROMPT, "no<|im_end|>", "\n<|im_start|>user\nagain<|im_end|>\n<|im_start|>assistant\n", "🙂<|im_end|>")


def two_turns(tokenizer):
    """A rollout of two turns, with real tokens."""
    encoded = [(token, turn % 2 == 1) for turn, text in enumerate(TURNS) for token in tokenizer.encode(text)]
    contents = zip(("user", "assistant") * 2, ("say 🙂", "no", "again", "🙂"), strict=True)
    record = record_of(
        "train/a",
        token_ids_T=tuple(token for token, _ in encoded),
        loss_mask_T=tuple(sampled for _, sampled in encoded),
        logprobs_T=tuple(-0.5 if sampled else 0.0 for _, sampled in encoded),
        versions_T=tuple(7 if sampled else -1 for _, sampled in encoded),
        turn_rewards=(0.0, 1.0),
        reward=1.0,
        messages=tuple({"role": role, "content": content} for role, content in contents),
    )
    return dataclasses.replace(record, advantages=(-0.25, 0.75), text="".join(TURNS))


@pytest.fixture
def run(tmp_path):
    tokenizer = tiny_tokenizer()
    tokenizer.save_pretrained(tmp_path / "tokenizer")
    write_step(tmp_path, 0, [record_of("train/z"), two_turns(tokenizer)])
    return indexed(tmp_path)


def read(run, key="train:0:1"):
    return read_rollout(run.directory.path, run.index.place(key))


def test_a_rollout_has_its_messages_and_what_is_known_of_each_token(run):
    found = read(run)
    tokens = found["tokens"]
    assert "".join(tokens["text"]) == found["text"]
    assert found["tokens_note"] == ""
    assert {len(column) for column in tokens.values() if column} == {len(tokens["ids"])}
    assert [turn >= 0 for turn in tokens["turn"]] == [bool(sampled) for sampled in tokens["mask"]]
    assert {*tokens["turn"]} == {-1, 0, 1}
    assert found["messages"][1]["content"] == "no"
    assert (found["turn_rewards"], found["advantages"]) == ([0.0, 1.0], [-0.25, 0.75])
    assert (tokens["advantage"], tokens["entropy"], tokens["log_ratio"]) == (None, None, None)
    assert (found["segments"][0]["kind"], found["segments"][0]["role"]) == ("prompt", "user")
    texts = ["".join(tokens["text"][s["begin"] : s["end"]]) for s in found["segments"] if s["kind"] == "reply"]
    assert texts == ["no<|im_end|>", "🙂<|im_end|>"]


def test_what_the_trainer_recorded_of_each_token_is_shown_with_it(run):
    mask = read(run)["tokens"]["mask"]
    num = sum(mask)
    arrays = {
        "rows": np.array([0, 1], dtype=np.int32),
        "lengths": np.array([3, num], dtype=np.int32),
        "entropy": np.arange(3 + num, dtype=np.float16),
        "log_ratio": np.full(3 + num, np.nan, dtype=np.float16),
        "advantage": np.full(3 + num, 0.5, dtype=np.float16),
    }
    np.savez(run.directory.path / "rollouts" / "step_000000.tokens.npz", **arrays)
    tokens = read(run)["tokens"]
    assert [value for value in tokens["entropy"] if value is not None] == [float(n) for n in range(3, 3 + num)]
    assert {value for value, sampled in zip(tokens["advantage"], mask, strict=True) if sampled} == {0.5}
    assert [value is None for value in tokens["log_ratio"]] == [not sampled for sampled in mask]


@pytest.mark.parametrize("content", [b"", b"no zip", b"PK\x03\x04 broken", None])
def test_damaged_values_and_those_of_another_number_of_tokens_are_left_out(run, content):
    path = run.directory.path / "rollouts" / "step_000000.tokens.npz"
    if content is None:
        np.savez(path, rows=np.array([1]), lengths=np.array([2]), entropy=np.zeros(2))
    else:
        path.write_bytes(content)
    assert read(run)["tokens"]["entropy"] is None


def test_a_note_says_what_is_not_known_of_the_tokens(run, tmp_path):
    found = read(run, "train:0:0")  # whose tokens are made up
    assert found["tokens_note"] == OTHER_TEXT
    assert "".join(found["tokens"]["text"]) == found["text"]
    (tmp_path / "tokenizer" / "tokenizer.json").unlink()
    found = read(run, "train:0:0")
    assert (found["tokens"], found["segments"], found["tokens_note"]) == (None, [], NO_TOKENIZER)
    assert found["messages"][0]["content"] == "a question"


def test_a_file_that_changed_after_it_was_indexed_is_not_misread(run):
    place = run.index.place("train:0:1")
    write_step(run.directory.path, 0, [record_of("train/new", "words " * 100)] * 3)
    with pytest.raises(Missing, match="has changed"):
        read_rollout(run.directory.path, place)
