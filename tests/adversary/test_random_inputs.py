"""Random settings, rows, calls and GGUF headers (F14, F15): read, or refused in words, and nothing else.

`benchmarks/checks/fuzz_config.py` does the same for hours, with whole commands and models.
"""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks.harness.hostile_settings import VALUES, damage_bytes
from slimrl.config.reading.formats import TextError, flatten, read_json, read_toml, read_yaml
from slimrl.errors import UserError
from slimrl.models.gguf import convert
from slimrl.tools.base import ToolError
from slimrl.tools.formats import parse_call
from slimrl.trainer.sft.rows import read_row
from tests.models.gguf_files import write_gguf
from tests.tiny import tiny_module, tiny_tokenizer

MANY = settings(
    max_examples=25, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)
FORMATS: tuple[Callable[[str], Any], ...] = (read_toml, read_yaml, read_json)
PIECES = st.sampled_from(
    [*"[]{}=:,.#'\"&*!|>-?\n\t \\\0", "a", "0", "1e5", "<<", "'''", '"""', "[[a]]\n", "!!int ", "&x ", "*x", "\ud800"]
)
TEXTS = st.lists(PIECES, max_size=30).map("".join) | st.text(max_size=40)
ODD = [value for value in VALUES if len(str(value)) < 100]
ATOMS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(ODD)
DATA = st.recursive(ATOMS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner))
KEYS = st.sampled_from(
    ["messages", "role", "content", "tool_calls", "function", "name", "arguments", "tools", "weight", "prompt", "type"]
)
ROWS = st.recursive(
    ATOMS | st.sampled_from(["user", "assistant", "system", "tool"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


@MANY
@given(TEXTS)
def test_any_text_is_settings_or_none(text):
    for parse in FORMATS:
        try:
            tree, lines = parse(text)
            parts = dict(flatten(tree))
        except TextError:
            continue
        assert all(1 <= line <= text.count("\n") + 1 for line in lines.values())
        assert parts.keys() >= lines.keys() or "<<" in text  # a merged section may be replaced


@pytest.mark.slow
@MANY
@given(st.dictionaries(st.text(min_size=1, max_size=5), DATA, max_size=4))
def test_json_is_read_as_it_is(tree):
    text = json.dumps(tree)
    assert json.dumps(read_json(text)[0]) == text


@MANY
@given(ROWS | st.fixed_dictionaries({"messages": st.lists(ROWS, max_size=3)}))
def test_any_row_is_a_conversation_or_refused(row):
    try:
        read = read_row(row, "a.jsonl:1")
    except UserError:
        return
    assert all(isinstance(message["content"], str) for message in read.messages)


@MANY
@given(st.lists(st.sampled_from([*"()[]{},='\"\\*-\n\0 ", "f", "a=", "1", "9" * 50, "**x", "lambda:0"])).map("".join))
def test_any_text_is_a_call_or_none(text):
    for written in (text, f"f({text})", "f(" + "(" * 300 + text):
        try:
            name, positional, keywords = parse_call(written)
        except ToolError:
            continue
        assert name.isidentifier()
        assert isinstance(positional, list)
        assert isinstance(keywords, dict)


@pytest.mark.slow
def test_a_damaged_header_of_gguf_is_read_or_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLIMRL_CACHE", str(tmp_path / "cache"))
    whole = write_gguf(tmp_path / "a.gguf", tiny_module("llama"), tiny_tokenizer()).read_bytes()
    end, rng = whole.index(b"tokenizer.ggml.tokens"), random.Random(0)
    num_refused = 0
    for _ in range(60):
        (tmp_path / "a.gguf").write_bytes(damage_bytes(whole[:end], rng) + whole[end:])
        try:
            convert(tmp_path / "a.gguf")
        except UserError:
            num_refused += 1
    assert num_refused > 30
