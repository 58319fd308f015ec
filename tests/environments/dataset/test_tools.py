"""Tools of the user's own: functions and MCP servers, in both formats of the core."""

import asyncio
import contextlib
import json
import re
import shlex
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from slimrl.environments.find import load_taskset
from slimrl.errors import RolloutError, UserError
from slimrl.io.process_tree import start_time
from tests.environments.dataset.files import HOSTILE, TOOLS, answered, functions, made, opened, write_rows

ROWS = [{"question": "How much is 2 + 3?", "answer": 5}]
ANSWER = "<answer>5</answer>"


def agent(tmp_path, *names, rows=ROWS, **args):
    path = functions(tmp_path, TOOLS)
    return made(tmp_path, rows, test_share=0.0, tools=[{"python": f"{path}:{name}"} for name in names], **args)


def said(taskset, *replies):
    turn = answered(taskset, *replies)
    return turn, "\n".join(message["content"] for message in turn.messages)


def cut_off(taskset, reply):
    """The last turn of an episode that a limit ends after this reply."""

    async def play():
        episode = taskset.environment(taskset.tasks("train")[0])
        await episode.start()
        assert not (await episode.step(reply)).done
        return await episode.cut_off()

    return asyncio.run(play())


CALLS = {
    "add(2, 3)": "5",
    "add(a=2)": "3",
    'join(["a", "b"], "down")': "b-a",
    "add(2, 3, 4)": "Error: add: it takes 2 arguments, not 3. It is called as add(a: integer, b: integer = ...)",
    "add('2')": "`a` must be an integer, not '2'",
    "add(True)": "`a` must be an integer, not True",
    "add(2.5)": "must be an integer",
    "add()": "`a` is missing",
    "add(1, c=2)": "there is no parameter `c`",
    "add(1, a=2)": "`a` is given twice",
    "add({1})": "of JSON",
    "add(1j)": "of JSON",
    'join(["a", 1], "up")': "must be a",
    'join(["a"], "left")': "must be one of 'up', 'down'",
    "breaks('x')": "Error: breaks: KeyError: 'x'",
    "subtract(1)": "there is no tool `subtract`",
    "add(": "this is no call",
}


@pytest.mark.parametrize("call", CALLS)
def test_a_call_is_made_or_its_mistake_is_told(tmp_path, call):
    turn, text = said(agent(tmp_path, "add", "join", "breaks"), f"<tool>{call}</tool>")
    assert not turn.done
    assert CALLS[call] in text
    assert turn.metrics["invalid_calls"] == float("Error" in text)


def test_an_answer_before_all_calls_ends_the_episode_and_is_graded(tmp_path):
    turn = answered(agent(tmp_path, "add"), "<tool>add(2, 3)</tool>", ANSWER)
    assert turn.done and turn.reward == turn.metrics["tool_calls"] == 1.0
    assert not answered(agent(tmp_path, "add"), f"<tool>add(2)</tool>{ANSWER}").done
    assert answered(agent(tmp_path, "add"), f"{ANSWER}<tool>add(2)</tool>").done
    assert answered(agent(tmp_path, "add"), f"{ANSWER}<answer>6</answer>").reward == 0.0


def test_a_number_of_thousands_of_digits_is_a_mistake_of_the_policy(tmp_path):
    path = functions(tmp_path, "def find(text: str) -> str:\n    return text\n")
    taskset = made(tmp_path, ROWS, test_share=0.0, tools=[{"python": f"{path}:find"}])
    assert "must be texts, numbers" in said(taskset, f"<tool>find(0x{'f' * 4000})</tool>")[1]


UNANSWERED = """
def strict(reply, given, task):
    return -0.5 if given is None else 1.0 if given == "5" else -1.0

def some(reply, given):
    return None if given is None else 1.0

def last(completions, **columns):
    return [float("5" in str(one)) for one in completions]
"""


CALL = "<tool>add(2, 3)</tool>"


@pytest.mark.parametrize(
    ("reward", "reply", "paid"),
    [
        ("strict", CALL, -0.5),
        ("strict", f"{CALL}{ANSWER}", -0.5),  # it has not read the result
        ("some", CALL, 0.0),  # does not apply, and a dropped episode would cost nothing
        ("last", CALL, 0.0),  # a result that nobody has read is no completion
    ],
)
def test_calls_up_to_the_limit_of_turns_are_paid_as_no_answer(tmp_path, reward, reply, paid):
    path = tmp_path / "unanswered.py"
    path.write_text(UNANSWERED)
    turn = cut_off(agent(tmp_path, "add", reward=f"{path}:{reward}"), reply)
    assert (turn.done, turn.reward, turn.metrics["answered"], turn.metrics["tool_calls"]) == (True, paid, 0.0, 1.0)


def test_native_calls_have_types(tmp_path):
    taskset = agent(tmp_path, "add", "join", format="native")
    (first, *_) = opened(taskset)
    assert first["tools"][0]["function"]["parameters"] == {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a"],
    }
    call = '<tool_call>\n{"name": "add", "arguments": {"a": 2, "b": 3}}\n</tool_call>'
    assert said(taskset, call)[1] == "5"
    assert "must be an integer" in said(taskset, call.replace("2", '"2"'))[1]


def test_a_system_message_of_the_row_stays(tmp_path):
    chat = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "2 + 3?"}]
    messages = opened(agent(tmp_path, "add", rows=[{"prompt": chat, "answer": 5}]))
    assert [message["role"] for message in messages] == ["system", "user"]
    assert messages[0]["content"].startswith("Be kind.\n\nAnswer the question. Work it out")


def expert_calls(tmp_path, form, **more):
    """Fails unless the expert makes the calls of a column, in this format."""
    rows = [{**ROWS[0], "calls": [{"tool": "add", "arguments": {"a": 2, "b": 3}}]}]
    taskset = agent(tmp_path, "add", rows=rows, format=form, **more)
    messages = taskset.scripts["expert"](taskset.tasks("train")[0], 0)
    assert [message["role"] for message in messages][-3:-1] == ["assistant", "tool" if form == "native" else "user"]
    assert "5" in messages[-2]["content"]
    assert answered(taskset, *[one["content"] for one in messages if one["role"] == "assistant"]).reward == 1.0
    assert "expert" not in agent(tmp_path, "add").scripts


@pytest.mark.parametrize("form", ["tags", "native"])
def test_an_expert_makes_the_calls_of_a_column(tmp_path, form):
    expert_calls(tmp_path, form)


def test_an_expert_whose_replies_do_not_end_the_episode_stops_after_the_last(tmp_path):
    rows = [{"question": "q", "answer": "<tool>add(1)</tool>", "calls": [{"tool": "add", "arguments": {"a": 2}}]}]
    taskset = agent(tmp_path, "add", rows=rows)
    messages = taskset.scripts["expert"](taskset.tasks("train")[0], 0)
    assert sum(message["role"] == "assistant" for message in messages) == 2


def test_hostile_replies_earn_nothing_and_break_nothing(tmp_path):
    taskset = agent(tmp_path, "add")
    assert [answered(taskset, reply).reward for reply in HOSTILE] == [0.0] * len(HOSTILE)


SERVER = '''
import os, sys, time
from pathlib import Path
while Path(__file__).with_name("held").exists():
    time.sleep(0.05)
from mcp.server import MCPServer
server = MCPServer("test")

@server.tool()
def add(a: int, b: int = 1) -> str:
    """Adds."""
    return str(a + b)

@server.tool()
def fail(text: str) -> str:
    raise ValueError("it was " + text)

@server.tool()
def hang(text: str) -> str:
    time.sleep(60)
    return text

@server.tool()
def end(text: str) -> str:
    os._exit(3)

@server.tool()
def pid() -> str:
    return str(os.getpid())

@server.tool()
def large(text: str) -> str:
    return text * 200_000

if len(sys.argv) > 1:
    server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
else:
    server.run("stdio")
'''


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """One taskset for all, whose server starts again when it has ended."""
    pytest.importorskip("mcp", reason="needs the package mcp")
    directory = tmp_path_factory.mktemp("served")
    path = directory / "server.py"
    path.write_text(SERVER, encoding="utf-8")
    entry = {"mcp": f"{sys.executable} {path}", "timeout_s": 2.0}
    args = {"path": str(write_rows(directory / "rows.jsonl", ROWS)), "test_share": 0.0, "tools": [entry]}
    taskset = load_taskset("dataset", args)
    taskset.prepare()
    yield taskset
    for server in taskset._servers:
        server.close()


@pytest.mark.slow
def test_tools_of_a_server_behind_http_are_called(tmp_path):
    pytest.importorskip("mcp", reason="needs the package mcp")
    (tmp_path / "server.py").write_text(SERVER, encoding="utf-8")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = subprocess.Popen([sys.executable, tmp_path / "server.py", str(port)], stderr=subprocess.DEVNULL)
    try:
        for _ in range(600):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            time.sleep(0.05)
        entry = {"mcp": f"http://127.0.0.1:{port}/mcp", "only": ["add", "fail", "end"]}
        taskset = made(tmp_path, ROWS, test_share=0.0, tools=[entry])
        assert said(taskset, "<tool>add(2, 3)</tool>")[1] == "<result>\n5\n</result>"
        assert "Error: fail" in said(taskset, "<tool>fail('bad')</tool>")[1]
        assert "there is no tool `hang`" in said(taskset, "<tool>hang('x')</tool>")[1]
        with pytest.raises(RolloutError, match="tool_server_died"):
            said(taskset, "<tool>end('x')</tool>")
    finally:
        process.kill()
        process.wait()


@pytest.mark.slow
def test_a_server_is_shared_and_started_again_and_a_call_that_hangs_becomes_text(served):
    first = said(served, "<tool>pid()</tool>")[1]
    assert said(served, "<tool>pid()</tool>")[1] == first
    with pytest.raises(RolloutError, match="tool_server_died"):
        said(served, "<tool>end('x')</tool>")
    assert said(served, "<tool>pid()</tool>")[1] != first
    assert "no answer in 2 s" in said(served, "<tool>hang('x')</tool>")[1]


@pytest.mark.slow
def test_a_server_that_hangs_at_its_restart_costs_these_rollouts_and_is_started_again(served, monkeypatch):
    """The policy is not blamed for a server that does not start. `served` waits at its start while the file exists."""
    held = Path(served._servers[0]._settings.mcp.split()[1]).with_name("held")
    held.touch()
    with pytest.raises(RolloutError, match="tool_server_died"):
        said(served, "<tool>end('x')</tool>")
    monkeypatch.setattr("slimrl.tools.mcp_server.START_S", 1.0)
    for _ in range(2):
        with pytest.raises(RolloutError, match=r"tool_server_died.*did not start in 1 s"):
            said(served, "<tool>add(2, 3)</tool>")
    held.unlink()
    monkeypatch.setattr("slimrl.tools.mcp_server.START_S", 60.0)
    assert said(served, "<tool>add(2, 3)</tool>")[1] == "<result>\n5\n</result>"


@pytest.mark.slow
def test_a_server_ends_with_its_taskset(served):
    pid = int(said(served, "<tool>pid()</tool>")[1].split("\n")[1])
    served._servers[0].close()

    for _ in range(100):
        if start_time(pid) == "":
            return
        time.sleep(0.05)
    pytest.fail("the server still runs")


RESULTS = [json.loads(line) for line in Path(__file__).with_name("mcp_results.jsonl").read_text("utf-8").splitlines()]


@pytest.mark.parametrize("result", RESULTS, ids=lambda one: one["form"])
def test_a_result_is_read_in_whatever_form_it_comes(tmp_path, result):
    """A malformed result is an error of the tool, and ends no server: one process makes both calls."""
    pytest.importorskip("mcp", reason="needs the package mcp")
    server = shlex.join([sys.executable, str(Path(__file__).with_name("odd_mcp_server.py")), result["form"]])
    taskset = made(tmp_path, ROWS, test_share=0.0, tools=[{"mcp": server}])
    one, other = (said(taskset, "<tool>look()</tool>")[1] for _ in range(2))
    taskset._servers[0].close()
    assert one == other and re.search(r"pid-\d+", one)
    shown = re.sub(r"pid-\d+", "PID", one).removeprefix("<result>\n").removesuffix("\n</result>")
    assert shown == result["shown"] or (result["shown"] == "Error: look: " and shown.startswith(result["shown"]))


def test_a_server_that_does_not_start_says_so(tmp_path):
    pytest.importorskip("mcp", reason="needs the package mcp")
    for command in ("no-such-command-at-all", f"{sys.executable} -c pass"):
        taskset = made(tmp_path, ROWS, tools=[{"mcp": command}])
        with pytest.raises(UserError, match="does not work"):
            taskset.prepare()
