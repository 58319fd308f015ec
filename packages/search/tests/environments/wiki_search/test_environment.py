"""Searching the made-up encyclopedia: tools, mistakes, answers, and an expert that really uses the tools."""

import asyncio
import json
from pathlib import Path

import pytest

from packages.search.tests.environments.wiki_search.conftest import Made
from slimrl.environments.find import load_taskset
from slimrl.errors import RolloutError, UserError
from slimrl.types import Task, Turn
from slimrl_search.retrieval.pages import Question
from slimrl_search.wiki_search.environment import WikiSearch, split_of
from tests.io.replying import completion, server
from tests.rollout.scripted import CHAT, TOKENIZER


def replies_of(taskset: WikiSearch, task: Task) -> list[str]:
    return [message["content"] for message in taskset.scripts["expert"](task, 0) if message["role"] == "assistant"]


def play(taskset: WikiSearch, task: Task, replies: list[str]) -> list[Turn]:
    async def turns() -> list[Turn]:
        episode = taskset.environment(task)
        await episode.start()
        return [await episode.step(reply) for reply in replies]

    return asyncio.run(turns())


def said(turn: Turn) -> str:
    (message,) = turn.messages
    return message["content"]


@pytest.mark.parametrize("hops", [1, 2])
def test_the_expert_is_right_and_finds_every_page_by_searching(made: Made, hops: int):
    taskset = made(hops=hops)
    for task in [*taskset.tasks("train")[:10], *taskset.tasks("test")]:
        replies = replies_of(taskset, task)
        assert len(replies) == 3 * hops + 1 and replies[0].startswith("<tool>search_pages(")
        *turns, last = play(taskset, task, replies)
        assert (last.done, last.reward) == (True, 1.0) and not any(turn.done for turn in turns)
        assert last.metrics["tool_calls"] == 3 * hops and last.metrics["invalid_calls"] == 0
        assert last.metrics["right_page"] == 1.0 and last.metrics["right_page_first"] == float(hops == 1)
        assert task.data["answer"] in said(turns[-1])  # what it answers, it has read


def test_the_splits_share_no_question_and_stay_the_same(made: Made):
    splits = [{task.data["question"] for task in made().tasks(split)} for split in ("train", "test")]
    assert [len(split) for split in splits] == [80, 10] and not splits[0] & splits[1]
    assert made().tasks("train") == made().tasks("train")
    assert json.loads(json.dumps(made().tasks("test")[0].data)) == made().tasks("test")[0].data
    shares = [split_of(Question(f"Who is {number}?", "x", "")) for number in range(2000)]
    assert 0.77 < shares.count("train") / 2000 < 0.83 and 0.08 < shares.count("validation") / 2000 < 0.12
    assert split_of(Question("Who?", "x", "", split="test")) == "test"


def test_too_many_questions_are_refused(made: Made):
    with pytest.raises(UserError, match=r"100 pages give only .* ask for fewer"):
        made(num_train=5000).tasks("train")


MISTAKES = (
    ("I do not know.", "neither a call in <tool> tags nor an answer in <answer> tags"),
    ("", "neither a call"),
    ("<think><answer>x</answer></think>", "neither a call"),
    ("<think>perhaps <answer>x</answer>", "neither a call"),
    ("<think>a</think> so <think><answer>x</answer>", "neither a call"),
    ("<tool>search_pages(</tool>", "this is no call"),
    ("<tool>search('x')</tool>", "there is no tool `search`. Did you mean `search_pages`?"),
    ('<tool>search_pages("")</tool>', "the query is empty"),
    ('<tool>view_sections("nobody")</tool>', "there is no page `nobody`. Did you mean `"),
    ('<tool>read_section("nobody:life")</tool>', "there is no page `nobody`. Did you mean `"),
    ('<tool>read_section("nobody")</tool>', "is no section id, which is `page_id:section`"),
    ('<tool>read_section("")</tool>', "is no section id"),
    ('<tool>read_section(":")</tool>', "there is no page ``. Did you mean `"),
)


def test_a_mistake_is_told_and_the_episode_goes_on(made: Made):
    taskset = made()
    task = taskset.tasks("test")[0]
    turns = play(taskset, task, [*(reply for reply, _ in MISTAKES), *replies_of(taskset, task)])
    for turn, (reply, text) in zip(turns, MISTAKES, strict=False):
        assert not turn.done and said(turn).startswith("<result>\nError: ") and text in said(turn), reply
    assert turns[-1].reward == 1.0 and turns[-1].metrics["invalid_calls"] == len(MISTAKES)


def test_a_wrong_section_is_told_the_nearest(made: Made):
    taskset = made()
    task = next(task for task in taskset.tasks("train") if task.data["section"] == "Early life")
    (turn,) = play(taskset, task, [f'<tool>read_section("{task.data["page_id"]}:early_live")</tool>'])
    assert f"Did you mean `{task.data['page_id']}:early_life`?" in said(turn)


def test_only_the_right_answer_is_rewarded(made: Made):
    taskset = made()
    task = taskset.tasks("test")[0]
    answer = task.data["answer"]

    def reward(reply: str) -> float:
        (turn,) = play(taskset, task, [reply])
        assert turn.done
        return turn.reward

    assert reward(f"<answer>{answer}</answer>") == 1.0
    assert reward(f"<think>hm</think> so <answer>\n{answer}.\n</answer> and more") == 1.0
    assert reward("<answer>no idea</answer>") == reward("<answer></answer>") == 0.0
    assert reward(f"<answer>{answer} or {answer}9 or 1 or 2</answer>") == 0.0
    assert reward(f"<answer>no idea</answer><answer>{answer}</answer>") == 0.0  # the first counts


def test_a_call_before_the_answer_comes_first(made: Made):
    taskset = made()
    task = taskset.tasks("test")[0]
    (turn,) = play(taskset, task, [f'<tool>search_pages("x")</tool><answer>{task.data["answer"]}</answer>'])
    assert not turn.done and "page_id" in said(turn)


def test_long_results_are_cut(made: Made):
    taskset = made(max_tool_tokens=60)
    task = taskset.tasks("test")[0]
    (turn,) = play(taskset, task, [f'<tool>read_section("{task.data["page_id"]}:full")</tool>'])
    (message,) = CHAT.cut_excerpts(turn.messages)
    result = message["content"].removeprefix("<result>\n").partition("\n[")[0]
    assert 30 < len(TOKENIZER.encode(result)) <= 60 and message["content"].endswith("were left out]\n</result>")
    for name in ("max_tool_tokens", "num_results"):
        with pytest.raises(UserError, match=f"`{name}` must be 1 or more"):
            made(**{name: 0})


def test_settings_are_checked_before_anything_is_built(tmp_path: Path):
    with pytest.raises(UserError, match="`num_results` must be 1 or more, not 0"):
        load_taskset("wiki-search", {"num_results": 0, "data_dir": str(tmp_path / "data")})
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
        *_, last = play(taskset, task, [*replies_of(taskset, task)[:-1], f"<answer>{answer}</answer>"])
        assert last.reward == 1.0 and last.metrics["right_page"] == 1.0 and last.metrics["invalid_calls"] == 0
    (turn,) = play(taskset, task, ['<tool>read_section("empty:full")</tool>'])
    assert said(turn) == "<result>\n\n</result>"
    pages.write_text("\n".join(map(json.dumps, rows[:2])))
    with pytest.raises(UserError, match=r"was made from .*pages\.jsonl, 1 files, \d+ bytes.*which builds it anew"):
        made(corpus=str(pages), questions=str(questions))
    with pytest.raises(UserError, match="`questions` belong to"):
        made(questions=str(questions))
    with pytest.raises(UserError, match="`questions` belong to"):
        made(corpus=str(pages))
    with pytest.raises(UserError, match="`hops` must be 1 or 2"):
        made(hops=3)


def test_a_judge_by_a_language_model_decides_or_the_rollout_is_dropped(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("SLIMRL_CACHE", str(tmp_path / "cache"))
    replies = iter(["no", "no", "Yes.", "perhaps", "perhaps"])  # the first is to whether it is there at all
    with server(lambda asked: completion(next(replies))) as (url, asked):
        taskset = made(judge={"base_url": url, "model": "judge", "max_tries": 2})
        task = taskset.tasks("test")[0]
        assert [play(taskset, task, [f"<answer>{text}</answer>"])[-1].reward for text in ("x", "y", "x")] == [0, 1, 0]
        with pytest.raises(RolloutError, match="judge_verdict"):
            play(taskset, task, ["<answer>z</answer>"])
        assert len(asked) == 5 and task.data["question"] in asked[1].body["messages"][0]["content"]
    for judge, said in (({"model": "x"}, "a judge needs `base_url`"), ({"base_url": url, "modle": "x"}, "`model`")):
        with pytest.raises(UserError, match=said):
            made(judge=judge)


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
