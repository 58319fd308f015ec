"""Searching the made-up encyclopedia: tools, mistakes, answers, and an expert that really uses the tools."""

import json
from pathlib import Path

import pytest

from packages.search.tests.environments.wiki_search.conftest import Made, read, replies_of, turns
from slimrl.environments.find import load_taskset
from slimrl.errors import RolloutError, UserError
from slimrl_search.retrieval.pages import Question
from slimrl_search.wiki_search.environment import WikiSearch, split_of
from tests.io.replying import completion, server


def test_the_splits_share_no_question_and_stay_the_same(made: Made):
    splits = [{task.data["question"] for task in made().tasks(split)} for split in ("train", "test")]
    assert [len(split) for split in splits] == [80, 10] and not splits[0] & splits[1]
    assert made().tasks("train") == made().tasks("train")
    assert json.loads(json.dumps(made().tasks("test")[0].data)) == made().tasks("test")[0].data
    shares = [split_of(Question(f"Who is {number}?", "x", "")) for number in range(2000)]
    assert 0.77 < shares.count("train") / 2000 < 0.83 and 0.08 < shares.count("validation") / 2000 < 0.12
    assert split_of(Question("Who?", "x", "", split="test")) == "test"
    with pytest.raises(UserError, match=r"100 pages give only .* ask for fewer"):
        made(num_train=5000).tasks("train")


def test_only_the_right_answer_is_rewarded(made: Made):
    taskset = made()
    task = taskset.tasks("test")[0]
    answer = task.data["answer"]

    def reward(reply: str) -> float:
        (turn,) = turns(taskset, task, [reply])
        assert turn.done
        return turn.reward

    assert reward(f"<answer>{answer}</answer>") == 1.0
    assert reward(f"<think>hm</think> so <answer>\n{answer}.\n</answer> and more") == 1.0
    assert reward("<answer>no idea</answer>") == reward("<answer></answer>") == 0.0
    assert reward(f"<answer>{answer} or {answer}9 or 1 or 2</answer>") == 0.0
    assert reward(f"<answer>no idea</answer><answer>{answer}</answer>") == 0.0  # the first counts


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"num_results": 0}, "`num_results` cannot be 0: Input should be greater than 0"),
        ({"max_tool_tokens": 0}, "`max_tool_tokens` cannot be 0: Input should be greater than 0"),
        ({"questions": "q.jsonl"}, "`questions` belong to"),
        ({"corpus": "pages.jsonl"}, "`questions` belong to"),
        ({"judge": {"model": "x"}}, "a judge needs `base_url`"),
        ({"judge": {"base_url": "http://127.0.0.1:9/v1", "modle": "x"}}, "`model`"),
    ],
)
def test_settings_are_checked_before_anything_is_built(settings: dict[str, object], said: str, tmp_path: Path):
    with pytest.raises(UserError, match=said):
        load_taskset("wiki-search", {**settings, "data_dir": str(tmp_path / "data")})
    load_taskset("wiki-search", {"num_results": 1, "data_dir": str(tmp_path / "data")})
    assert not (tmp_path / "data").exists()


def test_a_corpus_of_ones_own(made: Made, tmp_path: Path):
    pages, questions = tmp_path / "pages.jsonl", tmp_path / "questions.jsonl"
    rows = [
        {
            "id": "2001:_a_space_odyssey",
            "title": "2001: A Space Odyssey",
            "content": "# 2001\nA film.\n## Plot\nAn ape.",
        },
        {"id": "fox", "title": "\u05e9\u05d5\u05e2\u05dc \U0001f98a", "content": "No heading here, but 7 foxes."},
        {"id": "empty", "title": "Empty", "content": ""},
    ]
    asked = [
        {"question": "Who is in 2001?", "answer": "ape", "page_id": rows[0]["id"], "section": "Plot", "split": "train"},
        {"question": "How many foxes?", "answer": "seven", "aliases": ["7"], "page_id": "fox", "split": "test"},
    ]
    pages.write_text("\n".join(map(json.dumps, rows)))
    questions.write_text("\n".join(map(json.dumps, asked)))
    taskset = made(corpus=str(pages), questions=str(questions))
    for split, answer in (("train", "An ape"), ("test", "7")):
        (task,) = taskset.tasks(split)  # type: ignore[arg-type]
        *_, last = turns(taskset, task, [*replies_of(taskset, task)[:-1], f"<answer>{answer}</answer>"])
        assert last.reward == 1.0 and last.metrics["right_page"] == 1.0 and last.metrics["invalid_calls"] == 0
    (turn,) = turns(taskset, task, ['<tool>read_section("empty:full")</tool>'])
    assert read(turn) == "<result>\n\n</result>"
    pages.write_text("\n".join(map(json.dumps, rows[:2])))
    with pytest.raises(UserError, match=r"was made from .*pages\.jsonl, 1 files, \d+ bytes.*which builds it anew"):
        made(corpus=str(pages), questions=str(questions))


def test_a_judge_by_a_language_model_decides_or_the_rollout_is_dropped(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("SLIMRL_CACHE", str(tmp_path / "cache"))
    replies = iter(["no", "no", "Yes.", "perhaps", "perhaps"])  # the first is to whether it is there at all
    with server(lambda asked: completion(next(replies))) as (url, asked):
        taskset = made(judge={"base_url": url, "model": "judge", "max_tries": 2})
        task = taskset.tasks("test")[0]
        assert [turns(taskset, task, [f"<answer>{text}</answer>"])[-1].reward for text in ("x", "y", "x")] == [0, 1, 0]
        with pytest.raises(RolloutError, match="judge_verdict"):
            turns(taskset, task, ["<answer>z</answer>"])
        assert len(asked) == 5 and task.data["question"] in asked[1].body["messages"][0]["content"]


@pytest.mark.slow
@pytest.mark.parametrize("answer", ["???", "...", "!!!", "$"])
def test_questions_that_no_answer_could_win_are_told_of_when_they_are_read(answer: str, tmp_path: Path):
    path = tmp_path / "questions.jsonl"
    row = {"question": "What did it say?", "answer": "nothing", "aliases": [answer], "split": "train"}
    path.write_text(json.dumps(row))
    with pytest.raises(UserError, match=r"has no word, so no reply can be right .* or name a model in `judge`"):
        WikiSearch(corpus="pages.jsonl", questions=str(path)).tasks("train")
    judge = {"base_url": "http://127.0.0.1:9/v1", "model": "m"}
    assert WikiSearch(corpus="pages.jsonl", questions=str(path), judge=judge).tasks("train")
