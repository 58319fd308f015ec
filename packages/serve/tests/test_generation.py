"""Choices are reported completely and once, and counted at their end."""

import asyncio
import json
from typing import Any

import httpx
import pytest

from slimrl.inference.scheduler import Request, RequestOptions
from slimrl.types import SamplingParams
from slimrl_serve.bodies import CompletionBody
from slimrl_serve.command import InferenceServer
from slimrl_serve.completions import Completions
from slimrl_serve.generation import Choice, Generation
from slimrl_serve.text import GrowingText
from slimrl_serve.worker import Job

PROMPT = list(range(60, 90))


class Hasty(Job):
    """A job that is done when asked for the second time, as if the engine had finished it in between."""

    asked = 0

    @property
    def is_done(self) -> bool:
        self.asked += 1
        return self.asked > 1


def one_token(job: Job) -> Job:
    """The job in the state in which the engine's thread leaves it after its only token."""
    request = Request(job.prompt, job.params, job.finished, job.options)
    request.tokens.append(70)
    request.logprobs.append(-1.0)
    request.versions.append(0)
    request.finish_reason = "length"
    job.request = request
    job.first_token_at, job.finished_at = 101.0, 103.0
    return job


def generation_of(server: InferenceServer, jobs: list[Job], arrived: asyncio.Event) -> Generation:
    decode = server.service.model.vocabulary.decode
    choices = [Choice(index, job, jobs[0], GrowingText(decode), 1) for index, job in enumerate(jobs)]
    return Generation(server.service, choices, arrived, "id", began=100.0)


def test_a_stream_ends_once_even_if_the_engine_finishes_while_it_is_written(server: InferenceServer) -> None:
    async def scenario() -> list[dict[str, Any]]:
        arrived = asyncio.Event()
        job = one_token(Hasty([5], SamplingParams(1), streams=True, arrived=arrived))
        generation = generation_of(server, [job], arrived)
        body = CompletionBody(prompt=[5], stream=True)
        reply = Completions(generation, server.service, body, "tiny", [""])
        chunks = []
        arrived.set()
        async for chunk in reply.chunks():
            chunks.append(chunk["choices"][0])
            arrived.set()
        return chunks

    chunks = asyncio.run(scenario())
    assert [chunk["finish_reason"] for chunk in chunks] == [None, "length"]
    assert "".join(chunk["text"] for chunk in chunks) == server.service.model.vocabulary.decode([70])


def test_no_choice_is_told_before_its_prompt_is_scored(server: InferenceServer) -> None:
    async def scenario() -> list[int]:
        arrived = asyncio.Event()
        first = Job(PROMPT, SamplingParams(1), RequestOptions(prompt_logprobs=0), streams=True, arrived=arrived)
        second = one_token(Job(PROMPT, SamplingParams(1), streams=True, arrived=arrived))
        changes = generation_of(server, [first, second], arrived).changes()
        arrived.set()
        earliest = asyncio.ensure_future(anext(changes))
        for _ in range(5):
            await asyncio.sleep(0)
        assert not earliest.done()
        one_token(first)
        arrived.set()
        return [(await earliest)[0].index, *[choice.index async for choice, _ in changes]]

    assert asyncio.run(scenario()) == [0, 1]


def test_choices_of_one_prompt_score_it_once(server: InferenceServer, http: httpx.Client) -> None:
    before = server.service.engine.counters.prefilled
    body = {"prompt": PROMPT, "n": 3, "max_tokens": 2, "echo": True, "logprobs": 1}
    reply = http.post("/v1/completions", json=body)
    assert reply.status_code == 200, reply.text
    assert server.service.engine.counters.prefilled - before == len(PROMPT) - 1
    first, *others = reply.json()["choices"]
    for choice in others:
        for key in ("tokens", "token_logprobs", "top_logprobs"):
            assert choice["logprobs"][key][: len(PROMPT)] == first["logprobs"][key][: len(PROMPT)]


def test_streamed_choices_echo_the_same_scores(http: httpx.Client) -> None:
    body = {"prompt": PROMPT, "n": 3, "seed": 1, "max_tokens": 5, "echo": True, "logprobs": 1, "ignore_eos": True}
    whole = http.post("/v1/completions", json=body).json()["choices"]
    lines = http.post("/v1/completions", json={**body, "stream": True}).text.splitlines()
    pieces = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    for choice in whole:
        mine = [piece["choices"][0] for piece in pieces if piece["choices"][0]["index"] == choice["index"]]
        told = [value for piece in mine for value in piece["logprobs"]["token_logprobs"]]
        assert told[0] is None
        assert told[1:] == pytest.approx(choice["logprobs"]["token_logprobs"][1:], abs=1e-4)


def test_an_echo_without_tokens_is_the_prompt_whatever_would_stop_it(http: httpx.Client) -> None:
    body = {"prompt": "The quick", "max_tokens": 0, "echo": True, "stop": ["no such text", "x"]}
    for temperature in (0.0, 5.0):
        reply = http.post("/v1/completions", json={**body, "temperature": temperature, "seed": 3})
        assert reply.json()["choices"][0]["text"] == "The quick"


def test_latency_ends_with_the_last_token_and_only_who_leaves_is_a_disconnect(server: InferenceServer) -> None:
    metrics = server.service.metrics

    def counts() -> tuple[float, float, float]:
        aborted = metrics.finished.labels("abort")._value.get()
        return metrics.latency._sum.get(), metrics.disconnects._value.get(), aborted

    latency, disconnects, aborted = counts()
    jobs = [one_token(Job(PROMPT, SamplingParams(1))), Job(PROMPT, SamplingParams(1))]
    generation_of(server, jobs, asyncio.Event()).close(client_left=False)
    assert counts() == (pytest.approx(latency + 3.0), disconnects, aborted + 1)
    generation_of(server, jobs, asyncio.Event()).close(client_left=True)
    assert counts() == (pytest.approx(latency + 6.0), disconnects + 1, aborted + 2)
