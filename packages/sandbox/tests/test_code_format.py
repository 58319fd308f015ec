"""Programs as calls: where they run, what comes back of them, and that nothing of them stays."""

import asyncio
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from packages.sandbox.tests.conftest import TOOLS
from packages.sandbox.tests.test_server import TOKEN, serving
from slimrl.errors import UserError
from slimrl.rollout.episode import EpisodeSpec, run_episode
from slimrl.tools.formats import Reaction
from slimrl.types import Rollout, SamplingParams
from slimrl_sandbox.code_format import PROGRAMS, program_of, settings_of
from tests.environments.dataset.test_tools import agent, expert_calls
from tests.environments.dataset.test_tools import said as answer
from tests.rollout.scripted import CHAT, TOKENIZER, ScriptedClient, make_context

pytestmark = pytest.mark.usefixtures("isolated")
END = TOKENIZER.eos_token_id


def react(*programs: str, **settings: object) -> list[Reaction]:
    """What comes of the programs, all of one episode."""

    async def played() -> list[Reaction]:
        calls = PROGRAMS.make(TOOLS, 1000, settings)()
        try:
            return [await calls.react(f"<code>{program}</code>") for program in programs]
        finally:
            await calls.close()

    return asyncio.run(played())


def said(reaction: Reaction) -> str:
    (message,) = reaction.messages
    return message["content"].removeprefix("<output>\n").removesuffix("\n</output>")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "text", "calls"),
    [
        ("print(shout('a'))", "A", [("shout", "")]),
        ("print('a'); import sys; print('b', file=sys.stderr)", "a\nb", []),
        ("x = 1", "(nothing was printed)", []),
        ("print('a')\n1/0", "a\nError: Traceback (most recent call last):\n  line 2: 1/0\nZeroDiv", [("", "1")]),
        (
            "try: broken('b')\nexcept ToolError as e: print(e)\nshout('a')",
            "'there is no b'",
            [("broken", "1"), ("shout", "")],
        ),
        ("broken('b')", "ToolError: 'there is no b'", [("broken", "1")]),
    ],
)
def test_what_a_program_prints_is_read(program: str, text: str, calls: list[tuple[str, str]]):
    (reaction,) = react(program)
    assert text in said(reaction)
    assert [(call.tool, "1" if call.error else "") for call in reaction.calls] == calls


def test_episodes_share_no_files():
    async def two() -> list[Reaction]:
        make = PROGRAMS.make(TOOLS, 1000, {})
        first, second = make(), make()
        try:
            await first.react("<code>open('notes', 'w').write('y')</code>")
            return [await each.react("<code>import os; print(os.listdir())</code>") for each in (first, second)]
        finally:
            await first.close()
            await second.close()

    first, second = asyncio.run(two())
    assert (said(first), said(second)) == ("['notes']", "[]")


def test_long_output_and_long_errors_are_bounded():
    (reaction,) = react("print('x ' * 10**6)\nraise ValueError('y' * 10**5)")
    (message,) = CHAT.cut_excerpts(reaction.messages)
    assert "more characters were left out]" in message["content"] and "ValueError: y" in message["content"]
    assert "[more output was left out]" in said(reaction)
    assert len(message["content"]) < 1000 * 4 + 3500


def test_limits_come_from_the_settings():
    assert "longer than timeout_s = 0.3 s" in said(react("while True: pass", wall_s=0.3)[0])
    assert "MemoryError" in said(react("x = bytearray(100 * 2**20)", memory_mb=64)[0])


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"wall": 1}, "no setting `wall`. Did you mean `wall_s`"),
        ({"wall_s": 0}, "`wall_s` cannot be 0: Input should be greater than 0"),
        ({"memory_mb": -1}, "`memory_mb` cannot be -1: Input should be greater than 0"),
        ({"isolation": "docker"}, "no `isolation` 'docker'. Known: bubblewrap, none"),
        ({"wall_s": "10"}, "`wall_s` cannot be '10'"),
        ({"url": "http://127.0.0.1:1", "memory_mb": 64}, "`memory_mb` is for this machine"),
    ],
)
def test_settings_that_cannot_act_are_refused(settings: dict[str, object], text: str):
    with pytest.raises(UserError, match=text):
        settings_of(settings)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "limits", "failure"),
    [
        ("open('a', 'w'); import os; os.fork()", {"max_turns": 2}, ""),
        ("import time; time.sleep(60)", {"timeout_s": 0.7}, "timeout"),
        ("import time; time.sleep(60)", {}, "cancelled"),
    ],
)
def test_no_process_outlives_an_episode(
    program: str, limits: dict[str, Any], failure: str, tmp_path: Path, nothing_left: None
):
    async def play() -> Rollout:
        playing = asyncio.ensure_future(run_episode(spec, make_context(client, seq_len=10_000, **limits)))
        if failure == "cancelled":
            asyncio.get_running_loop().call_later(0.7, playing.cancel)
        return await playing

    taskset = agent(tmp_path, "add", format="code")
    spec = EpisodeSpec(taskset, taskset.tasks("train")[0], SamplingParams(max_tokens=1000))
    client = ScriptedClient([[*TOKENIZER.encode(f"<code>{program}</code>", add_special_tokens=False), END]])
    with pytest.raises(asyncio.CancelledError) if failure == "cancelled" else nullcontext():
        assert asyncio.run(play()).failure == failure


def test_programs_call_typed_tools_and_an_expert_makes_the_calls_of_a_column(tmp_path: Path):
    bare = {"format": "code", "sandbox": {"isolation": "none"}}
    taskset = agent(tmp_path, "add", "join", "breaks", **bare)
    for program, text in (
        ("print(add(2, b=3), join(['x', 'y'], way='up'))", "5 x-y"),
        ("add('2')", "must be an integer"),
        ("breaks('x')", "KeyError"),
    ):
        assert text in answer(taskset, f"<code>\n{program}\n</code>")[1]
    expert_calls(tmp_path, "code", sandbox=bare["sandbox"])


def test_programs_run_on_a_server_just_as_well(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SANDBOX_TOKEN", TOKEN)
    with serving(TOKEN) as address:
        first, second = react("open('a', 'w').write(shout('x'))", "print(open('a').read())", url=address)
        assert [(call.tool, call.arguments) for call in first.calls] == [("shout", ("x",))]
        assert said(second) == "X"
        monkeypatch.setenv("SANDBOX_TOKEN", "another")
        with pytest.raises(UserError, match="SANDBOX_TOKEN"):
            react("print(1)", url=address)


@pytest.mark.parametrize(
    ("text", "program"),
    [
        ("print(1)", "print(1)\n"),
        ("\n  for x in y:\n      print(x)\n", "for x in y:\n    print(x)\n"),
        ("\n```python\nprint(1)\n```\n", "print(1)\n"),
        ("```\nprint(1)", "print(1)\n"),
        ("print('```')", "print('```')\n"),
    ],
)
def test_a_fence_and_an_indentation_around_a_program_are_no_part_of_it(text: str, program: str):
    assert program_of(text) == program


@pytest.mark.parametrize("space", [" ", "\n"])
def test_a_reply_that_never_ends_is_read_in_linear_time(space: str):
    num, began = 30_000, time.thread_time()
    calls = PROGRAMS.make({}, 500, {"isolation": "none"})()
    assert calls.call_start("<code>" * num) == 6 * num
    assert calls.call_start("x<code>1</code>") == 1
    assert program_of(f"```python\n{space * num}x") == "x\n"
    assert time.thread_time() - began < 2
