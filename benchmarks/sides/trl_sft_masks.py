"""TRL's side of `sft_masks_vs_trl.py`: the token ids and labels that its `SFTTrainer` makes of rows.

Run by the interpreter of an environment that has TRL. The trainer's own preparation of data is called on a stand-in
that has only what it reads. The chat template is one that TRL ships, with and without its marks of the replies.
"""

import argparse
import json
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import trl
from datasets import Dataset, disable_progress_bars
from transformers import AutoTokenizer, PreTrainedTokenizerBase
from trl import SFTTrainer

TEMPLATES = Path(trl.__file__).parent / "chat_templates"


def prepare(row: dict[str, Any], tokenizer: PreTrainedTokenizerBase, training: str) -> dict[str, Any]:
    """The token ids of a row, and which of them are trained; or the error that TRL raises."""
    only_replies = "messages" in row or "conversations" in row
    trainer = SimpleNamespace(
        _tokenizer=tokenizer, chat_template=training if only_replies else None, completion_only_loss="prompt" in row
    )
    args = SimpleNamespace(
        assistant_only_loss=only_replies,
        dataset_num_proc=None,
        dataset_text_field="text",
        max_length=None,
        shuffle_dataset=False,
    )
    try:
        rows = SFTTrainer._prepare_dataset(trainer, Dataset.from_list([row]), tokenizer, args, False, None, "train")
    except Exception as error:  # whatever it is, it is the answer
        return {"error": f"{type(error).__name__}: {error}".split("\n")[0][:72]}
    return {"ids": rows[0]["input_ids"], "mask": [label != -100 for label in rows[0]["labels"]]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=Path, required=True, help="the rows by name, as JSON")
    parser.add_argument("--tokenizer", type=Path, required=True, help="the directory of a tokenizer")
    parser.add_argument("--template", required=True, help="the name of a chat template of TRL, as `qwen2_5`")
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    disable_progress_bars()
    tokenizer = AutoTokenizer.from_pretrained(arguments.tokenizer)
    tokenizer.chat_template = (TEMPLATES / f"{arguments.template}.jinja").read_text(encoding="utf-8")
    training = (TEMPLATES / f"{arguments.template}_training.jinja").read_text(encoding="utf-8")
    cases = json.loads(arguments.cases.read_text(encoding="utf-8"))
    answers = {
        "versions": {name: version(name) for name in ("trl", "transformers", "datasets")},
        "template": tokenizer.chat_template,
        "rows": {name: prepare(row, tokenizer, training) for name, row in cases.items()},
    }
    arguments.output.write_text(json.dumps(answers), encoding="utf-8")


if __name__ == "__main__":
    main()
