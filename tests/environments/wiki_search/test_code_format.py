"""Programs as calls: where they run, what comes back of them, and that nothing of them stays."""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from slimrl.errors import UserError
from slimrl.rollout.episode import EpisodeSpec, run_episode
from slimrl.sandbox.base import Execution
from slimrl.tools.code_format import CodeFormat, SharedSandbox, code_formats, output_text, program_of, settings_of
from slimrl.tools.formats import Reaction
from slimrl.types import SamplingParams, Task
from tests.environments.wiki_search.conftest import Made
from tests.environments.wiki_search.test_formats import replies_of
from tests.rollout.scripted import CHAT, TOKENIZER, ScriptedClient, make_context
from tests.sandbox.conftest import TOOLS
from tests.sandbox.test_server import TOKEN, Serving, serving

pytestmark = pytest.mark.usefixtures("isolated")


def processes() -> set[int]:
    """The processes that this one started, in all generations."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                status = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if status[0] != "Z":
                parents[int(entry.name)] = int(status[1])
    found, new = set[int](), {os.getpid()}
    while new:
        new = {pid for pid, parent in parents.items() if parent in new}
        found |= new
    return found


@pytest.fixture
def nothing_left() -> Iterator[None]:
    before = processes()
    yield
    deadline = time.monotonic() + 10
    while (left := processes() - before) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not left


def react(*programs: str, **settings: object) -> list[Reaction]:
    """What comes of the programs, all of one episode."""

    async def played() -> list[Reaction]:
        calls = code_formats(TOOLS, 1000, settings)()
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
        ("", "(nothing was printed)", []),
        (
            "print('a')\n1/0",
            "a\nError: Traceback (most recent call last):\n  line 2: 1/0\nZeroDivisionError",
            [("", "1")],
        ),
        ("for t in 'abc':\n    print(shout(t))", "A\nB\nC", [("shout", "")] * 3),
        ("try:\n    broken('b')\nexcept ToolError as e:\n    print(e)\nshout('a')", "'there is no b'", 2),
        ("broken('b')", "ToolError: 'there is no b'", [("broken", "1")]),
    ],
)
def test_what_a_program_prints_is_read(program: str, text: str, calls: list[tuple[str, str]] | int):
    (reaction,) = react(program)
    assert text in said(reaction)
    if isinstance(calls, int):
        assert [bool(call.error) for call in reaction.calls] == [True, False]
    else:
        assert [(call.tool, "1" if call.error else "") for call in reaction.calls] == calls


def test_files_stay_from_turn_to_turn_and_variables_do_not():
    _, there, gone = react("x = 1\nopen('notes', 'w').write('y')", "print(open('notes').read())", "print(x)")
    assert said(there) == "y" and "NameError" in said(gone)


def test_episodes_share_no_files():
    async def two() -> list[Reaction]:
        make = code_formats(TOOLS, 1000, {})
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
    assert len(message["content"]) < 1000 * 4 + 3500


def test_limits_come_from_the_settings():
    assert "longer than timeout_s = 0.3 s" in said(react("while True: pass", wall_s=0.3)[0])
    assert "MemoryError" in said(react("x = bytearray(100 * 2**20)", memory_mb=64)[0])


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"wall": 1}, "no setting `wall`. Did you mean `wall_s`"),
        ({"wall_s": 0}, "`wall_s` must be a number of seconds above 0"),
        ({"isolation": "docker"}, "`isolation` cannot be 'docker': .*'bubblewrap' or 'none'"),
        ({"wall_s": "10"}, "`wall_s` cannot be '10'"),
        ({"url": "http://127.0.0.1:1", "memory_mb": 64}, "`memory_mb` is for this machine"),
    ],
)
def test_settings_that_cannot_act_are_refused(settings: dict[str, object], text: str):
    with pytest.raises(UserError, match=text):
        settings_of(settings)


def test_nothing_runs_where_nothing_isolates(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(UserError, match=r"bubblewrap \(`bwrap`\) is not installed.*only if asked for by name"):
        code_formats(TOOLS, 1000, {})
    assert said(react("print(1)", isolation="none")[0]) == "1"


def test_no_process_outlives_the_episodes(nothing_left: None):
    react("print(1)", "import os; os.fork()", "print(shout('a'))")


def test_a_sandbox_is_opened_by_the_first_and_closed_by_the_last():
    events: list[str] = []

    class Fake:
        async def __aenter__(self) -> "Fake":
            events.append("open")
            return self

        async def __aexit__(self, *_: object) -> None:
            events.append("close")

        async def run(self, code: str, session_id: str = "", timeout_s: float = 1.0) -> Execution:
            return Execution(code, "", "", 0.0, False)

    async def scenario() -> None:
        shared = SharedSandbox(Fake)
        calls = [CodeFormat(TOOLS, 10, shared, 1.0) for _ in range(3)]
        await calls[0].close()  # never used
        for each in calls[:2]:
            await each.react("<code>1</code>")
        await calls[0].close()
        await calls[0].close()
        assert events == ["open"]
        await calls[2].react("no program")
        await calls[1].close()
        assert events == ["open", "close"]
        await calls[2].react("<code>1</code>")
        await calls[2].close()

    asyncio.run(scenario())
    assert events == ["open", "close"] * 2


def cancelled(work: Callable[[], Awaitable[object]], after_s: float) -> None:
    async def scenario() -> None:
        task = asyncio.ensure_future(work())
        await asyncio.sleep(after_s)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(scenario())


def sleeping(made: Made, program: str) -> tuple[EpisodeSpec, ScriptedClient]:
    taskset = made(format="code")
    reply = TOKENIZER.encode(f"<code>{program}</code>", add_special_tokens=False)
    spec = EpisodeSpec(taskset, Task("t", taskset.tasks("test")[0].data), SamplingParams(max_tokens=1000))
    return spec, ScriptedClient([[*reply, TOKENIZER.eos_token_id]])


@pytest.mark.slow
def test_a_cancelled_episode_takes_its_processes_along(made: Made, nothing_left: None):
    spec, client = sleeping(made, "import time; time.sleep(60)")
    cancelled(lambda: run_episode(spec, make_context(client, seq_len=10_000)), after_s=0.7)


@pytest.mark.slow
def test_an_episode_that_times_out_takes_its_processes_along(made: Made, nothing_left: None):
    spec, client = sleeping(made, "import time; time.sleep(60)")
    rollout = asyncio.run(run_episode(spec, make_context(client, seq_len=10_000, timeout_s=0.7)))
    assert rollout.failure == "timeout"


def test_an_episode_that_ends_unanswered_takes_its_processes_along(made: Made, nothing_left: None):
    spec, client = sleeping(made, "print(1)")
    rollout = asyncio.run(run_episode(spec, make_context(client, seq_len=10_000, max_turns=2)))
    assert rollout.metrics["unfinished"] == 1.0


@pytest.fixture(scope="module")
def remote() -> Iterator[Serving]:
    with serving(TOKEN) as running:
        yield running


def test_programs_run_on_a_server_just_as_well(remote: Serving, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SANDBOX_TOKEN", TOKEN)
    first, second = react("open('a', 'w').write(shout('x'))", "print(open('a').read())", url=remote.address)
    assert [(call.tool, call.arguments) for call in first.calls] == [("shout", ("x",))]
    assert said(second) == "X"
    monkeypatch.setenv("SANDBOX_TOKEN", "another")
    with pytest.raises(UserError, match="SANDBOX_TOKEN"):
        react("print(1)", url=remote.address)


@pytest.mark.slow
def test_the_server_of_the_search_gives_the_same_rewards_and_metrics(made: Made, monkeypatch: pytest.MonkeyPatch):
    here = made(format="code")
    monkeypatch.setattr("tests.sandbox.test_server.TOOLS", here._tools.by_name)
    monkeypatch.setenv("SANDBOX_TOKEN", TOKEN)
    task = here.tasks("test")[0]
    replies = [
        [*TOKENIZER.encode(reply, add_special_tokens=False), TOKENIZER.eos_token_id] for reply in replies_of(here, task)
    ]
    with serving(TOKEN) as running:
        there = made(format="code", sandbox={"url": running.address})
        both = [
            asyncio.run(
                run_episode(
                    EpisodeSpec(taskset, task, SamplingParams(max_tokens=1000)),
                    make_context(ScriptedClient(replies), seq_len=50_000),
                )
            )
            for taskset in (here, there)
        ]
    assert both[0] == both[1] and both[0].reward == 1.0


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


def test_output_that_was_left_out_is_told():
    assert output_text(Execution("a\n", "b\n", "", 0.1, True)) == "a\nb\n[more output was left out]"
