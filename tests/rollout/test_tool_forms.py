"""Episodes with tools: the policy writes calls in its family's form, the environment reads one form."""

import asyncio

import pytest

from slimrl.environments.find import load_taskset
from slimrl.errors import UserError
from slimrl.eval.baselines import make_script_policy, script_of
from slimrl.eval.evaluate import scores_of
from slimrl.models.chat.template import ChatFormat
from slimrl.orchestrator.step_metrics import rollout_metrics
from slimrl.rollout.episode import EpisodeSpec, run_episode
from slimrl.types import Rollout, SamplingParams
from tests.environments.dataset.files import TOOLS, functions, write_rows
from tests.models.chat.hub_templates import CALLING
from tests.models.chat.pieces import piece_tokenizer
from tests.rollout.scripted import ScriptedClient, make_context

MARKS = ["[TOOL_CALLS]", "<|tool_call|>", "<|/tool_call|>", "<|tool_call_start|>", "<|tool_call_end|>"]
ROWS = [{"question": "How much is 2 + 3?", "answer": 5, "calls": [{"tool": "add", "arguments": {"a": 2, "b": 3}}]}]
JSON = '{"name": "add", "arguments": {"a": 2, "b": 3}}'
FENCED = f"I call it:\n```json\n{JSON}\n```"
ANSWER = "<answer>5</answer>"
SAMPLING = SamplingParams(max_tokens=1000)


def taskset_in(tmp_path):
    tools = [{"python": f"{functions(tmp_path, TOOLS)}:add"}]
    path = str(write_rows(tmp_path / "rows.jsonl", ROWS))
    return load_taskset("dataset", {"path": path, "test_share": 0.0, "tools": tools, "format": "native"})


def chat_with(family: str, setting: str) -> ChatFormat:
    tokenizer = piece_tokenizer("bytes", CALLING[family])
    tokenizer.add_special_tokens({"additional_special_tokens": MARKS}, replace_extra_special_tokens=False)
    return ChatFormat(tokenizer, tool_calls=setting)


def play(tmp_path, family, setting, *replies) -> tuple[Rollout, ChatFormat, list[list[int]]]:
    taskset, chat = taskset_in(tmp_path), chat_with(family, setting)
    tokenizer = piece_tokenizer("bytes", CALLING[family])
    tokenizer.add_special_tokens({"additional_special_tokens": MARKS}, replace_extra_special_tokens=False)
    said = [[*tokenizer.encode(reply, add_special_tokens=False), chat.end_of_turn] for reply in replies]
    context = make_context(ScriptedClient(said), chat, seq_len=5000)
    (task,) = taskset.tasks("train")
    return asyncio.run(run_episode(EpisodeSpec(taskset, task, SAMPLING), context)), chat, said


@pytest.mark.parametrize("family", [family for family in CALLING if family])
def test_an_expert_plays_in_the_form_of_the_template(tmp_path, family) -> None:
    taskset, context = (
        taskset_in(tmp_path),
        make_context(ScriptedClient([]), chat_with(family, "template"), seq_len=5000),
    )
    script = script_of("expert")
    assert script is not None
    (task,) = taskset.tasks("train")
    rollout = asyncio.run(make_script_policy(script, context).play(EpisodeSpec(taskset, task, SAMPLING)))
    assert (rollout.failure_detail, rollout.reward, rollout.metrics["tool_calls"]) == ("", 1.0, 1.0)
    assert rollout.metrics[f"tool_form_{family}"] == 1.0
    call = rollout.messages[2]["content"]
    assert "add" in call and ("<tool_call>" in call) == (family == "hermes")


LENIENT = {
    "json": [JSON, f"{JSON}\n{JSON}", f"<answer>{JSON}</answer>"],
    "fenced": [FENCED],
    "python": ["[add(a=2, b=3)]"],
    "hermes": [f"<tool_call>{JSON}</tool_call>"],
    "lfm": ["<|tool_call_start|>[add(a=2, b=3)]<|tool_call_end|>"],
}


@pytest.mark.parametrize("form", LENIENT)
@pytest.mark.parametrize("family", ["hermes", "mistral", ""])
def test_a_lenient_reader_makes_a_model_usable_and_the_tokens_stay(tmp_path, family, form) -> None:
    for reply in LENIENT[form]:
        rollout, chat, said = play(tmp_path, family, "lenient", reply, ANSWER)
        assert (rollout.reward, rollout.metrics["invalid_calls"]) == (1.0, 0.0)
        assert rollout.metrics["tool_calls"] == reply.count("add")
        assert rollout.metrics[f"tool_form_{form}"] == 1.0
        assert rollout.messages[2]["content"] == reply
        assert [[rollout.token_ids_T[t] for t in turn] for turn in rollout.turns] == said
        assert "\n5" in chat.full_text(rollout.token_ids_T).replace('"content": ', "\n")


@pytest.mark.parametrize("reply", [JSON, FENCED, f"{FENCED} or <tool_call>{JSON.replace('2', '4')}</tool_call>"])
def test_another_form_than_the_template_is_no_skill(tmp_path, reply) -> None:
    rollout, *_ = play(tmp_path, "lfm", "template", reply, ANSWER)
    assert (rollout.metrics["tool_calls"], rollout.metrics["invalid_calls"]) == (0.0, 1.0)
    assert not any(name.startswith("tool_form") for name in rollout.metrics)
    rollout, *_ = play(tmp_path, "hermes", "json", f"<tool_call>{JSON}</tool_call>", ANSWER)
    assert rollout.metrics["tool_calls"] == 0.0


def test_the_forms_of_a_step_and_of_an_evaluation_are_shares(tmp_path) -> None:
    both = f"{JSON} or {JSON.replace('2', '4')}"
    played = [
        play(tmp_path, "hermes", "lenient", *replies)[0]
        for replies in ((FENCED, ANSWER), (JSON, both, ANSWER), (ANSWER,))
    ]
    assert [rollout.reward for rollout in played] == [1.0] * 3
    shares = {"fenced": 0.5, "json": 0.25, "ambiguous": 0.25}
    metrics = rollout_metrics(played, 3, 0, 3)
    assert {name: value for name, value in metrics.items() if "form_" in name} == {
        f"tools/form_{form}": share for form, share in shares.items()
    }
    scores = scores_of(played)
    assert {form: sum(scores[f"tool_form_{form}"]) / 2 for form in shares} == shares


def test_a_template_that_writes_no_calls_needs_a_setting(tmp_path) -> None:
    rollout, *_ = play(tmp_path, "", "template", ANSWER)
    assert "--model.tool_calls lenient" in rollout.failure_detail
    with pytest.raises(UserError, match="does not write tools"):
        chat_with("", "template").opening([{"role": "user", "content": "q", "tools": [{"function": {"name": "f"}}]}])
