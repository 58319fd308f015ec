"""Clients of the load test: each asks, reads, compares, and now and then walks away. Knows HTTP, nothing of the engine.

What can go wrong has a name: `hung` (no end before the deadline), `failed` (an error, a broken reply), `wrong` (tokens
other than expected), `bad version` (a token with the number of weights that cannot have computed it).
"""

import asyncio
import json
import random
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

import httpx

from benchmarks.harness.server_requests import Query, draw

DISCONNECTS = 0.1  # share of the requests that are given up
BACK_OFF_S = 1.0  # before a request that was refused for a full queue is sent again, unless the server says


@dataclass(slots=True)
class Weights:
    """What the clients know of the weights: an update is under way between `started` and `done`."""

    started: int
    done: int
    num_updates: int = 0


@dataclass(slots=True)
class Answer:
    """What came back of one request."""

    token_ids: list[int] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    prompt_tokens: int = 0
    first_s: float = 0.0

    def add(self, choice: dict[str, Any]) -> None:
        self.token_ids += choice.get("token_ids") or []
        self.versions += choice.get("token_versions") or []
        logprobs = choice.get("logprobs") or {}
        self.logprobs += [entry["logprob"] for entry in logprobs.get("content") or []]


@dataclass(slots=True)
class Tally:
    """What all clients saw together."""

    counts: Counter[str] = field(default_factory=Counter)
    latency_s: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    first_token_s: list[float] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    generated: int = 0
    prompt: int = 0

    def problem(self, kind: str, query: Query, detail: str) -> None:
        self.counts[kind] += 1
        if len(self.problems) < 20:
            self.problems.append(f"{kind}, {query.kind}: {detail}")


@dataclass(frozen=True, slots=True)
class Load:
    """What all clients share."""

    http: httpx.AsyncClient
    model: str
    checked: list[Query]
    weights: Weights
    tally: Tally
    deadline_s: float


async def client(load: Load, until: float, rng: random.Random) -> None:
    """Send one request after the other until `until`, on the monotonic clock."""
    while time.monotonic() < until:
        query = draw(load.checked, load.model, rng)
        if rng.random() < DISCONNECTS:
            await _walk_away(load, query, rng)
        else:
            await _request(load, query)


async def _walk_away(load: Load, query: Query, rng: random.Random) -> None:
    """Close the connection at a random moment, before the first token or amid the reply."""
    typical = load.tally.latency_s.get(query.kind) or [1.0]
    patience_s = rng.random() * typical[-1]
    try:
        async with asyncio.timeout(patience_s):
            await _exchange(load.http, query, Answer())
        load.tally.counts["ended before its client left"] += 1
    except TimeoutError:
        load.tally.counts["disconnected"] += 1
    except (httpx.HTTPError, ValueError, KeyError) as error:
        load.tally.problem("failed", query, repr(error))


async def _request(load: Load, query: Query) -> None:
    tally, answer = load.tally, Answer()
    earliest = load.weights.done
    began = time.monotonic()
    try:
        async with asyncio.timeout(load.deadline_s):
            while (wait_s := await _exchange(load.http, query, answer)) > 0:
                tally.counts["refused, queue full"] += 1
                await asyncio.sleep(wait_s)
                earliest, began = load.weights.done, time.monotonic()
    except TimeoutError:
        tally.problem("hung", query, f"no end after {load.deadline_s:.0f} s, {len(answer.token_ids)} tokens came")
        return
    except (httpx.HTTPError, ValueError, KeyError) as error:
        tally.problem("failed", query, repr(error))
        return
    tally.counts["answered"] += 1
    tally.latency_s[query.kind].append(time.monotonic() - began)
    if query.streams:
        tally.first_token_s.append(answer.first_s)
    tally.generated += len(answer.token_ids)
    tally.prompt += answer.prompt_tokens
    _check(tally, query, answer, (earliest, load.weights.started))


async def _exchange(http: httpx.AsyncClient, query: Query, answer: Answer) -> float:
    """Send the request and read all of its reply; the seconds to wait if the queue was full, else 0."""
    began = time.monotonic()
    async with http.stream("POST", query.path, json=query.body) as response:
        if response.status_code == 429:
            return float(response.headers.get("retry-after", BACK_OFF_S)) or BACK_OFF_S
        if response.status_code != 200:
            raise ValueError(f"status {response.status_code}: {(await response.aread()).decode()[:300]}")
        if not query.streams:
            reply = json.loads(await response.aread())
            answer.prompt_tokens = reply["usage"]["prompt_tokens"]
            answer.add(reply["choices"][0])
            return 0.0
        await _read_stream(response, answer, began)
    return 0.0


async def _read_stream(response: httpx.Response, answer: Answer, began: float) -> None:
    last, reason = "", None
    async for line in response.aiter_lines():
        if not line.startswith("data: "):
            continue
        last = line.removeprefix("data: ")
        if last == "[DONE]":
            break
        chunk = json.loads(last)
        if "error" in chunk:
            raise ValueError(f"error in the stream: {chunk['error']}")
        answer.prompt_tokens += len(chunk.get("prompt_token_ids") or [])
        for choice in chunk["choices"]:
            answer.add(choice)
            reason = choice.get("finish_reason") or reason
            if answer.token_ids and not answer.first_s:
                answer.first_s = time.monotonic() - began
    if last != "[DONE]" or reason is None:
        raise ValueError(f"the stream broke off after {last[:80]!r}")


def _check(tally: Tally, query: Query, answer: Answer, possible: tuple[int, int]) -> None:
    """Compare with what was expected. `possible` are the oldest and newest weights that can have computed a token."""
    versions, (oldest, newest) = answer.versions, possible
    if len(versions) != len(answer.token_ids) or not versions:
        tally.problem("failed", query, f"{len(answer.token_ids)} tokens with {len(versions)} versions")
        return
    if versions != sorted(versions) or versions[0] < oldest or versions[-1] > newest:
        tally.problem("bad version", query, f"{versions}, possible are {oldest} to {newest}")
    if query.kind.startswith("sampled") and len(answer.logprobs) != len(answer.token_ids):
        tally.problem("failed", query, f"{len(answer.token_ids)} tokens with {len(answer.logprobs)} log-probabilities")
    if not query.answers:
        return
    if versions[0] != oldest:
        # The prompt may have been computed by older weights than its first token: no reference has that mixture.
        tally.counts["not compared: weights changed before the first token"] += 1
        return
    # Tokens of the first weights must be the beginning of their answer, also when newer weights computed the rest.
    expected = list(query.answers[oldest % 2])
    same = versions.count(oldest)
    if answer.token_ids[:same] != expected[:same] or (same == len(versions) and same != len(expected)):
        tally.problem("wrong", query, f"{answer.token_ids}, expected {expected}, {same} of them by weights {oldest}")
    else:
        tally.counts["compared" if same == len(versions) else "compared in part: weights changed amid it"] += 1
