"""The tokens and masks of supervised rows beside those of TRL's `SFTTrainer`, for every shape of the tests.

    python -m benchmarks.checks.sft_masks_vs_trl --trl-python ~/trl-env/bin/python

TRL is given each row as it is, without its empty columns, and then what slimrl reads of it, for rows that TRL cannot
take or takes otherwise. Conversations are compared with `assistant_only_loss`, under a chat template that TRL ships,
prompts and completions with the default `completion_only_loss`. Writes `benchmarks/results/sft_masks_vs_trl.json`.
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.harness.measure import (
    RESULTS,
    Side,
    machine_facts,
    markdown_table,
    run_side,
    side_command,
    write_result,
)
from slimrl.launch.supervised import encode_row
from slimrl.models.chat.template import ChatFormat
from slimrl.trainer.sft.rows import read_row
from tests.tiny import tiny_tokenizer
from tests.trainer.sft_shapes import CHATS, TOOLS

TEMPLATE = "qwen2_5"
HEAD = ("row", "TRL, given the row", "TRL, given what slimrl reads of it", "trained tokens")
SAME = "the same"
BREAKS = "the same, and line breaks around replies"  # which TRL's template marks as parts of the replies
# The three keys of our messages that say to the chat format what a template is not to write.
OURS = ("tools", "excerpt", "weight")


def shapes() -> dict[str, dict[str, Any]]:
    """The rows by their names."""
    return {name: row for name, (row, _) in (CHATS | TOOLS).items()}


def as_read(row: dict[str, Any]) -> dict[str, Any]:
    """What slimrl reads of a row, in the form that TRL's documentation asks for."""
    read = read_row(row, "row")
    plain = [{key: value for key, value in message.items() if key not in OURS} for message in read.messages]
    tools = {"tools": json.dumps(read.messages[0]["tools"])} if "tools" in read.messages[0] else {}
    if "prompt" in row and "completion" in row:
        border = len(row["prompt"])
        return {"prompt": plain[:border], "completion": plain[border:], **tools}
    return {"messages": plain, **tools}


def ask_trl(python: str) -> dict[str, Any]:
    """TRL's answers to every row, as it is and as slimrl reads it."""
    cases = {f"row/{name}": {k: v for k, v in row.items() if v is not None} for name, row in shapes().items()}
    cases |= {f"read/{name}": as_read(row) for name, row in shapes().items()}
    with tempfile.TemporaryDirectory() as directory:
        tiny_tokenizer().save_pretrained(directory)
        asked = Path(directory) / "cases.json"
        asked.write_text(json.dumps(cases), encoding="utf-8")
        where = ["--cases", str(asked), "--tokenizer", directory, "--template", TEMPLATE]
        return run_side(Side("TRL", "int64", [*side_command(python, "trl_sft_masks"), *where]), threads=1)


def compare(python: str) -> dict[str, Any]:
    """For every row how TRL's tokens and mask differ from ours."""
    theirs = ask_trl(python)
    chat = ChatFormat(tiny_tokenizer(chat_template=theirs["template"]))
    found = {}
    for name, row in shapes().items():
        ids, mask = encode_row(read_row(row, name), chat)
        found[name] = {
            "row": difference(ids, mask, theirs["rows"][f"row/{name}"], chat),
            "read": difference(ids, mask, theirs["rows"][f"read/{name}"], chat),
            "tokens": len(ids),
            "trained": sum(mask),
        }
    return {"versions": theirs["versions"], "template": TEMPLATE, "rows": found}


def difference(ids: list[int], mask: list[bool], theirs: dict[str, Any], chat: ChatFormat) -> str:
    """How TRL's answer differs from ours, in words. Nothing predicts the first token, so its label says nothing."""
    if "error" in theirs:
        return str(theirs["error"])
    num = len(ids)
    if theirs["ids"][:num] != ids:
        at = next((n for n, (a, b) in enumerate(zip(ids, theirs["ids"], strict=False)) if a != b), len(theirs["ids"]))
        return (
            f"other tokens: {chat.full_text(theirs['ids'][at : at + 12])!r} for {chat.full_text(ids[at : at + 12])!r}"
        )
    if theirs["mask"][1:num] != mask[1:]:
        apart = [place for place in range(1, num) if theirs["mask"][place] != mask[place]]
        text = chat.full_text([ids[place] for place in apart])
        if not all(theirs["mask"][place] for place in apart):
            return f"not trained: {text!r}"
        return f"trained besides: {text!r}" if text.strip() else BREAKS
    if not (behind := theirs["ids"][num:]):
        return SAME
    return f"{SAME}, then {chat.full_text(behind)!r}, {'' if any(theirs['mask'][num:]) else 'not '}trained"


def table(found: dict[str, Any]) -> str:
    """A line for each row."""
    lines = [
        (name, one["row"], one["read"], f"{one['trained']} of {one['tokens']}") for name, one in found["rows"].items()
    ]
    return markdown_table(HEAD, [tuple(cell.replace("|", "\\|") for cell in line) for line in lines])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trl-python", required=True, help="an interpreter that has TRL")
    parser.add_argument("--output", type=Path, default=RESULTS / "sft_masks_vs_trl.json")
    arguments = parser.parse_args()
    facts = machine_facts()
    found = compare(arguments.trl_python)
    print(table(found))
    write_result(arguments.output, facts, found, {arguments.trl_python: "TRL_ENVIRONMENT/bin/python"})


if __name__ == "__main__":
    main()
