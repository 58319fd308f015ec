"""Programs as calls in whole episodes: the same rewards wherever they run, and nothing of them stays."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from packages.sandbox.tests.test_server import TOKEN, serving
from packages.search.tests.environments.wiki_search.conftest import Made, replies_of
from slimrl.rollout.episode import EpisodeSpec, run_episode
from slimrl.types import SamplingParams, Task
from tests.rollout.scripted import TOKENIZER, ScriptedClient, make_context

pytestmark = pytest.mark.usefixtures("isolated")


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


@pytest.mark.slow
def test_the_server_of_the_search_gives_the_same_rewards_and_metrics(made: Made, monkeypatch: pytest.MonkeyPatch):
    here = made(format="code")
    monkeypatch.setattr("packages.sandbox.tests.test_server.TOOLS", here._tools.by_name)
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
