"""The same search in tags, in the template's own form, and by programs: every test here holds for all three."""

import ast
import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from packages.search.tests.environments.wiki_search.conftest import Made, read, replies_of, turns
from slimrl.models.chat.template import ChatFormat
from slimrl.rollout.episode import EpisodeSpec, run_episode
from slimrl.types import Rollout, SamplingParams, Task
from slimrl_search.wiki_search.environment import WikiSearch
from slimrl_search.wiki_search.scripts import rows_in
from tests.models.chat.templates import templated_tokenizer
from tests.rollout.scripted import ScriptedClient, make_context

FORMATS = ("tags", "native", "code")
TOKENIZER = templated_tokenizer("tools")
CHAT = ChatFormat(TOKENIZER)
NAMES = {"search_pages": "query", "view_sections": "page_id", "read_section": "section_id"}


@pytest.fixture(params=FORMATS)
def way(request: pytest.FixtureRequest) -> str:
    """The name of a format; skips programs where they cannot be isolated."""
    if request.param == "code":
        request.getfixturevalue("isolated")
    return str(request.param)


def call(way: str, tool: str, argument: str) -> str:
    """A call as a policy may write it, which need not be as the expert does."""
    match way:
        case "tags":
            return f"<tool>{tool}({argument!r})</tool>"
        case "native":
            wanted = {"name": tool, "arguments": {NAMES.get(tool, "x"): argument}}
            return f"I look.\n<tool_call>{json.dumps(wanted)}</tool_call>"
        case _:
            return f"<code>```python\nfound = {tool}({argument!r})\nprint(found)\n```</code>"


def episode(taskset: WikiSearch, task: Task, replies: list[str], **limits: Any) -> Rollout:
    """A policy that says the replies, in the loop that trains."""
    end = [TOKENIZER.eos_token_id]
    client = ScriptedClient([TOKENIZER.encode(reply, add_special_tokens=False) + end for reply in replies])
    context = make_context(client, CHAT, **{"seq_len": 100_000, **limits})
    spec = EpisodeSpec(taskset, task, SamplingParams(max_tokens=10_000))
    return asyncio.run(run_episode(spec, context))


def test_the_expert_solves_questions_in_the_loop(made: Made, way: str):
    taskset = made(format=way)
    for task in taskset.tasks("train")[: 3 if way == "code" else 20]:  # a program takes a tenth of a second
        conversation = taskset.scripts["expert"](task, 0)
        replies = [message["content"] for message in conversation if message["role"] == "assistant"]
        rollout = episode(taskset, task, replies)
        assert (rollout.reward, rollout.failure) == (1.0, ""), rollout.failure_detail
        assert task.data["answer"] in rollout.messages[-2]["content"]  # what it answers, it has read
        assert [message["content"] for message in rollout.messages] == [m["content"] for m in conversation]
        assert {name: value for name, value in rollout.metrics.items() if value} == {
            **dict.fromkeys(("correct", "searches", "right_page_first", "right_page", "right_section"), 1.0),
            **{"tool_calls": 3.0, "turns": 4.0},
            **({"tool_form_hermes": 1.0} if way == "native" else {}),
        }
        token_ids, mask = CHAT.encode_conversation(conversation)  # what the warm-up learns is what the loop plays
        assert (tuple(token_ids), tuple(mask)) == (rollout.token_ids_T, rollout.loss_mask_T)
        recorded = json.loads(json.dumps(rollout.messages))
        assert CHAT.encode_conversation(recorded) == (token_ids, mask)


WRONG_CALLS = (
    ("search_pages", "", "the query is empty"),
    ("search_pages", " \n", "the query is empty"),
    ("view_sections", "nobody", "there is no page `nobody`. Did you mean `"),
    ("view_sections", "", "there is no page ``. Did you mean `"),
    ("read_section", "nobody:life", "there is no page `nobody`. Did you mean `"),
    ("read_section", "nobody", "is no section id, which is `page_id:section`"),
    ("read_section", ":", "there is no page ``. Did you mean `"),
    ("read_section", "", "is no section id"),
    ("read_section", "\u05e9\U0001f98a:\x00", "there is no page"),
    *((tool, 1001 * ":", "has 1001 characters; 1000 are allowed") for tool in NAMES),
)


@pytest.mark.slow
def test_a_tools_error_is_text_and_the_episode_goes_on(made: Made, way: str):
    taskset = made(format=way)
    task = taskset.tasks("test")[0]
    wrong, right = [call(way, tool, argument) for tool, argument, _ in WRONG_CALLS], replies_of(taskset, task)
    for turn, (tool, argument, text) in zip(turns(taskset, task, wrong), WRONG_CALLS, strict=True):
        assert not turn.done and text in read(turn) and "Error" in read(turn), (tool, argument)
    rollout = episode(taskset, task, [*wrong, *right], max_turns=50)
    assert (rollout.reward, rollout.failure) == (1.0, "")
    num_wrong = float(len(wrong))
    assert (rollout.metrics["invalid_calls"], rollout.metrics["invalid_share"]) == (
        num_wrong,
        num_wrong / (num_wrong + 3),
    )


def mistakes(way: str) -> list[tuple[str, str]]:
    """Replies that are neither a call nor an answer, and what is said to them."""
    common = [("I do not know.", "neither a"), ("", "neither a"), ("<answer>never closed", "neither a")]
    thoughts = (
        f"<think>{call(way, 'search_pages', 'x')}<answer>x</answer></think>",
        "<think>perhaps <answer>x</answer>",
    )
    thought = [(text, "neither a") for text in (*thoughts, "<think>a</think> so <think><answer>x</answer>")]
    unknown = [(call(way, "search", "x"), "search")]
    match way:
        case "tags":
            own = [
                ("<tool>search_pages(</tool>", "no call"),
                ('<tool>read_section("\\ud800:x")</tool>', "surrogate pair"),
            ]
        case "native":
            own = [
                ("<tool_call>nonsense</tool_call>", "no call"),
                ('<tool_call>{"name": "search_pages", "arguments": {"query": 7}}</tool_call>', "must be text"),
            ]
        case _:
            own = [
                ("<code>search_pages(</code>", "SyntaxError"),
                ("<code>search_pages(7)</code>", "must be text"),
                ("<code>while True: pass</code>", "longer than timeout_s"),
            ]
    return common + thought + unknown + own


@pytest.mark.slow
def test_a_mistake_in_calling_is_text_and_the_episode_goes_on(made: Made, way: str):
    taskset = made(format=way, **({"sandbox": {"wall_s": 1.5}} if way == "code" else {}))
    task = taskset.tasks("test")[0]
    right = replies_of(taskset, task)
    for reply, text in mistakes(way):
        rollout = episode(taskset, task, [reply, *right])
        assert (rollout.reward, rollout.failure, rollout.metrics["invalid_calls"]) == (1.0, "", 1.0), reply
        first = [message["role"] for message in rollout.messages].index("assistant")
        assert text in rollout.messages[first + 1]["content"], reply


def test_a_call_before_the_answer_comes_first_and_an_answer_before_a_call_ends_it(made: Made, way: str):
    taskset = made(format=way)
    task = taskset.tasks("test")[0]
    called, answered = call(way, "search_pages", "x"), f"<answer>{task.data['answer']}</answer>"
    (turn,) = turns(taskset, task, [called + answered])
    assert not turn.done and "page_id" in read(turn)
    (turn,) = turns(taskset, task, [answered + called])
    assert turn.done and turn.reward == 1.0 and turn.metrics["tool_calls"] == 0
    (turn,) = turns(taskset, task, [call(way, "search_pages", "<answer>x</answer>")])
    assert not turn.done


PAGES = {
    "2001:_a_space_odyssey": ("2001: A Space Odyssey", "# 2001: A Space Odyssey\nA film.\n## Plot: part 1\nAn ape."),
    "2001": ("2001", "# 2001\nA year."),
    "twice": ("Twice", "# Twice\n## History\nThe first.\n## History\nThe second.\n## History 2\nThe third."),
    "fence": ("Fence", "# Fence\n```\n# no heading\n```\n## After\nBehind the fence."),
    "empty": ("Empty", ""),
    "\u05e9\u05d5\u05e2\u05dc": ("\u05e9\u05d5\u05e2\u05dc", "# \u05e9\u05d5\u05e2\u05dc\n\u05d7\u05d9\u05d4."),
    'it\'s_a_"\\page"': ('It\'s a "\\page"\xa0\u200b', "# Quoted\nMarks."),
    "\U0001f98a\u200d\U0001f9ba": ('\U0001f98a\u200d\U0001f9ba fox\'s "den"', "no heading, one fox"),
    "huge": ("Huge", "# Huge\n" + "A sentence of it. " * 60_000),
}


def odd_pages(made: Made, directory: Path, way: str) -> tuple[WikiSearch, Task]:
    pages, questions = directory / "pages.jsonl", directory / "questions.jsonl"
    rows = [{"id": page_id, "title": title, "content": content} for page_id, (title, content) in PAGES.items()]
    pages.write_text("\n".join(map(json.dumps, rows)))
    questions.write_text(json.dumps({"question": "What?", "answer": "ape", "page_id": "2001", "split": "train"}))
    taskset = made(format=way, corpus=str(pages), questions=str(questions), num_results=20)
    return taskset, taskset.tasks("train")[0]


@pytest.mark.slow
def test_odd_pages_behave(made: Made, tmp_path: Path, way: str):
    taskset, task = odd_pages(made, tmp_path, way)

    def told(tool: str, *arguments: str) -> list[str]:
        return [read(turn) for turn in turns(taskset, task, [call(way, tool, argument) for argument in arguments])]

    titles, copied = [title for title, _ in PAGES.values()], []
    begins = '"page_id": ' if way == "native" else "'page_id': "
    for (page_id, (title, _)), found in zip(PAGES.items(), told("search_pages", *titles), strict=True):
        assert {"page_id": page_id, "title": title} in rows_in(found)
        shown = [part.split(", ")[0] for part in found.split(begins)[1:]]
        literal = next(each for each in shown if ast.literal_eval(each) == page_id)
        copied.append(call(way, "view_sections", "PLACE").replace("'PLACE'", literal).replace('"PLACE"', literal))
    for turn in turns(taskset, task, copied):  # an id can be copied into a call as it is shown
        assert turn.metrics["invalid_calls"] == 0, read(turn)
    *viewed, fox = told("view_sections", *PAGES, "\U0001f98a")
    for page_id, text in zip(PAGES, viewed, strict=True):
        assert all(row["section_id"].startswith(f"{page_id}:") for row in rows_in(text))
    assert "no heading'" not in viewed[list(PAGES).index("fence")]
    assert "Did you mean" in fox
    texts = {
        "2001:_a_space_odyssey:plot:_part_1": "An ape.",
        "2001:2001": "A year.",
        "twice:history_3": "The second.",
        "twice:history_2": "The third.",  # a heading's own name goes first
        "fence:fence": "# no heading",
        "\u05e9\u05d5\u05e2\u05dc:\u05e9\u05d5\u05e2\u05dc": "\u05d7\u05d9\u05d4.",
        "\U0001f98a\u200d\U0001f9ba:full": "one fox",
    }
    *sections, empty = told("read_section", *texts, "empty:full")
    for section_id, text in zip(texts, sections, strict=True):
        assert texts[section_id] in text
    assert "Error" not in empty


@pytest.mark.slow
def test_what_a_tool_says_is_cut_at_tokens(made: Made, tmp_path: Path, way: str):
    taskset, task = odd_pages(made, tmp_path, way)
    rollout = episode(taskset, task, [call(way, "read_section", "huge:huge"), "<answer>ape</answer>"])
    assert (rollout.reward, rollout.metrics["turns"]) == (1.0, 2.0)
    said = rollout.messages[-2]["content"]
    assert "left out]" in said or "larger than 1 MiB" in said
    assert len(TOKENIZER.encode(said)) < 1000 + 100


@pytest.mark.slow
@pytest.mark.parametrize(("limits", "is_full"), [({"max_turns": 3}, False), ({"seq_len": 3000}, True)])
def test_an_unfinished_episode_earns_nothing_and_is_counted(
    made: Made, way: str, limits: dict[str, int], is_full: bool
):
    taskset = made(format=way)
    task = taskset.tasks("test")[0]
    rollout = episode(taskset, task, [call(way, "search_pages", "Ada")], **limits)
    assert (rollout.reward, rollout.failure) == (0.0, "")
    assert (rollout.metrics["unfinished"], rollout.metrics["context_full"]) == (1.0, float(is_full))
    assert rollout.metrics["correct"] == 0.0 and rollout.metrics["tool_calls"] == rollout.metrics["turns"]
    assert rollout.metrics["repeated_calls"] == rollout.metrics["turns"] - 1
    assert taskset.failure_kind(rollout) == ""


@pytest.mark.nightly
def test_somebody_who_calls_at_random_really_calls(made: Made, way: str):
    taskset = made(format=way)
    tools: set[str] = set()
    for task in taskset.tasks("train")[:6]:
        conversation = taskset.scripts["random"](task, 1)
        assert conversation == taskset.scripts["random"](task, 1)
        replies = [message["content"] for message in conversation if message["role"] == "assistant"]
        rollout = episode(taskset, task, replies)
        assert rollout.metrics["unfinished"] == 0.0 and rollout.metrics["tool_calls"] >= 1
        assert [message["content"] for message in rollout.messages] == [m["content"] for m in conversation]
        tools |= {tool for tool in NAMES for reply in replies if tool in reply}
    assert tools == set(NAMES)
