"""Keys that columns add to objects are not learnt, and a null that is meant is."""

import json
from pathlib import Path
from typing import Any

import pytest

from slimrl.config.data import FileDataConfig
from slimrl.trainer.sft.columns import without_padding
from slimrl.trainer.sft.data import load_conversations

INTEGER, MAYBE = {"type": "integer"}, {"type": ["integer", "null"]}


def tool(name: str, required: list[str], **properties: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": required}
    return {"type": "function", "function": {"name": name, "parameters": schema}}


def calling(name: str, arguments: dict[str, Any]) -> list[dict[str, Any]]:
    call = {"id": "c", "type": "function", "function": {"name": name, "arguments": arguments}}
    return [{"role": "user", "content": "q"}, {"role": "assistant", "content": "", "tool_calls": [call]}]


def padded(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "messages": [{"tool_calls": None, **message} for message in row["messages"]]}


def arguments_of(row: dict[str, Any]) -> Any:
    return row["messages"][1]["tool_calls"][0]["function"]["arguments"]


WEATHER = tool("weather", ["city"], city={"type": "string"}, a=None, b=None)
ADD = tool("add", ["a", "b"], city=None, a=INTEGER, b=INTEGER)
CASES = {
    "padding": (WEATHER, {"city": "Oslo", "a": None, "b": None}, {"city": "Oslo"}),
    "a whole number": (ADD, {"city": None, "a": 1.0, "b": 2.5}, {"a": 1, "b": 2.5}),
    "may be null": (tool("f", [], a=MAYBE), {"a": None, "b": None}, {"a": None}),
    "one of": (tool("f", [], a={"anyOf": [INTEGER, {"type": "null"}]}), {"a": None}, {"a": None}),
    "nullable": (tool("f", [], a={"type": "integer", "nullable": True}), {"a": None}, {"a": None}),
    "enum": (tool("f", [], a={"enum": [1, None]}), {"a": None}, {"a": None}),
    "required": (tool("f", ["a"], a=INTEGER), {"a": None}, {"a": None}),
    "inner": (
        tool("f", [], where={"type": "object", "properties": {"x": MAYBE, "y": INTEGER}}),
        {"where": {"x": None, "y": None}},
        {"where": {"x": None}},
    ),
    "listed": (
        tool("f", [], all={"type": "array", "items": {"type": "object", "properties": {"x": INTEGER}}}),
        {"all": [{"x": 1.0, "y": None}]},
        {"all": [{"x": 1}]},
    ),
    "another function's": (tool("g", [], a=MAYBE), {"a": None, "b": 1}, {"b": 1}),
}


@pytest.mark.parametrize("is_columnar", [True, False], ids=["parquet", "jsonl"])
@pytest.mark.parametrize("as_text", [False, True], ids=["tools", "tools as JSON"])
@pytest.mark.parametrize("case", CASES)
def test_only_the_padding_of_columns_goes(case: str, as_text: bool, is_columnar: bool) -> None:
    described, given, wanted = CASES[case]
    called = "f" if case == "another function's" else described["function"]["name"]
    row = padded({"messages": calling(called, given), "tools": [described]})
    if as_text:
        row["tools"] = json.dumps(row["tools"])
    cleaned = without_padding(row, is_columnar)
    assert json.dumps(arguments_of(cleaned)) == json.dumps(wanted)  # 1 is not 1.0
    assert "tool_calls" not in cleaned["messages"][0]


def test_a_null_that_was_written_by_hand_stays() -> None:
    row = {"messages": calling("f", {"a": None}), "tools": [tool("f", [], a=INTEGER)]}
    assert without_padding(row, is_columnar=False) is row


@pytest.mark.parametrize(
    "row", ["no JSON", 3, None, [], {"messages": 3, "tools": "{"}, {"messages": [3], "tools": [3]}]
)
@pytest.mark.parametrize("is_columnar", [True, False])
def test_a_malformed_row_is_left_to_its_reader(row: Any, is_columnar: bool) -> None:
    assert without_padding(row, is_columnar) == row


def test_parquet_and_jsonl_from_columns_teach_the_same_calls(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    functions = [
        tool("weather", ["city"], city={"type": "string"}),
        tool("add", ["a"], a=INTEGER, b={"enum": [1, None]}),
    ]
    calls = [("weather", {"city": "Oslo"}), ("add", {"a": 2, "b": None}), ("add", {"a": 2, "b": 1})]
    texts = [{"messages": calling(*call), "tools": json.dumps(functions)} for call in calls]
    path = tmp_path / "rows.parquet"
    table = datasets.Dataset.from_list(texts)
    table.to_parquet(path)
    table.to_json(tmp_path / "rows.jsonl")
    for name in ("rows.parquet", "rows.jsonl"):
        config = FileDataConfig(path=str(tmp_path / name), val_path=str(tmp_path / name))
        read, _ = load_conversations(config, lambda _: None)
        found = [one.messages[1]["tool_calls"][0]["function"] for one in read]
        assert [(one["name"], one["arguments"]) for one in found] == [
            ("weather", {"city": "Oslo"}),
            ("add", {"a": 2, "b": None}),
            ("add", {"a": 2, "b": 1}),
        ]
