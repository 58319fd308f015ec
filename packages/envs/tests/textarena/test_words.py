"""textarena: games with word lists, from lists that the test makes; and without them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

WORDS = ["apple", "bread", "chair", "crane", "plant", "river", "stone", "table"]
PLAY = """
import asyncio
from slimrl.environments.find import load_taskset
from packages.envs.tests.textarena.playing import play
taskset = load_taskset("textarena:Wordle-v0", {})
for task in taskset.tasks("train")[:5]:
    messages = taskset.scripts["expert"](task, 0)
    replies = [message["content"] for message in messages if message["role"] == "assistant"]
    print("reward", asyncio.run(play(taskset.environment(task), replies))[1][-1].reward)
"""


def run(code: str, data: Path) -> str:
    """What a process prints that looks for word lists in this folder alone."""
    env = {**os.environ, "NLTK_DATA": str(data), "HOME": str(data)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, timeout=300)
    return done.stdout + done.stderr


def write_lists(data: Path) -> None:
    """The files of nltk with a few words, all of them nouns."""
    (data / "corpora/words").mkdir(parents=True)
    for name in ("en", "en-basic"):
        (data / "corpora/words" / name).write_text("\n".join(WORDS))
    tagger = data / "taggers/averaged_perceptron_tagger_eng"
    tagger.mkdir(parents=True)
    for name, held in (("weights", {}), ("tagdict", dict.fromkeys([*WORDS, "test"], "NN")), ("classes", ["NN"])):
        (tagger / f"averaged_perceptron_tagger_eng.{name}.json").write_text(json.dumps(held))


@pytest.mark.nightly
def test_the_expert_of_wordle_finds_the_words(tmp_path):
    write_lists(tmp_path)
    assert run(PLAY, tmp_path).count("reward 1.0") == 5


def test_missing_word_lists_are_named_and_not_loaded(tmp_path):
    said = run(PLAY, tmp_path)
    assert "UserError" in said and "python -m nltk.downloader words" in said
    assert list(tmp_path.iterdir()) == []
