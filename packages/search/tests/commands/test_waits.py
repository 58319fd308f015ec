"""`slimrl judge calibrate` waits for the server of its judge (docs/waits.md), and that stands still."""

from pathlib import Path

import pytest

from tests.commands.standing_still import WAYS
from tests.commands.waiting import standing_server, waiting

pytestmark = pytest.mark.nightly
ANSWER = '{"question": "When?", "response": "1874", "answer": "1874", "label": "yes"}\n'


@pytest.mark.parametrize("way", WAYS)
def test_a_server_that_stands_still(way: str, tmp_path: Path) -> None:
    answers, asked = tmp_path / "answers.jsonl", tmp_path / "asked"
    answers.write_text(ANSWER, encoding="utf-8")
    with standing_server(way, asked) as address:
        words = ["judge", "calibrate", str(answers), "--base-url", f"{address}/v1", "--model", "m"]
        with waiting(words, tmp_path) as command:
            command.until(asked.exists)
            command.ends(way)
