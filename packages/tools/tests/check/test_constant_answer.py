"""`slimrl check` shows the reward of the best constant answer to questions in a file."""

import json
import re

import pytest

from slimrl import cli
from tests.environments.dataset.files import write_rows
from tests.environments.dataset.test_constant import MOSTLY_2


@pytest.mark.nightly
def test_check_says_what_it_earns(tmp_path, capsys):
    path = write_rows(tmp_path / "rows.jsonl", MOSTLY_2)
    cli.run(["check", "--env", json.dumps([{"id": "dataset", "args": {"path": str(path)}}])])
    said = " ".join(capsys.readouterr().out.split())
    assert re.search(r"constant answer \| note \| the best one earns 0\.[67]\d* on average, the expert 1", said)
