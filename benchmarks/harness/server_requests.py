"""The requests of the load test, and the answers that checked ones must get. Knows HTTP, nothing of the engine.

Greedy decoding in bfloat16 is exact only where the likeliest token leads clearly: beside other sequences a sum may
round differently. So an answer is asked for twice over, once by each set of weights, and cut before its first close
call; what is left must come back token for token, whatever else the server does meanwhile.
"""

import random
from dataclasses import dataclass
from typing import Any

import httpx

CLEAR_LEAD = 0.5  # nats between the two likeliest tokens, several times what bfloat16 may move
MAX_ANSWER = 48
MIN_ANSWER = 4
LONG_PROMPT_WORDS = 700
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Add two integers.",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            "required": ["a", "b"],
        },
    },
}
WORDS = ("river", "stone", "window", "garden", "paper", "silver", "morning", "music", "bridge", "forest")
FACTS = (
    "Name the capital of France.",
    "Count from one to twenty.",
    "List the days of the week in order.",
    "List the months of the year in order.",
    "Say the alphabet.",
    "What is 2 + 2?",
    "Write a sentence about the sea.",
    "Name three colours.",
)


@dataclass(frozen=True, slots=True)
class Query:
    """One request: where it goes and its body. `answers` are the token ids expected under even and odd weight versions;
    empty if sampled."""

    kind: str
    path: str
    body: dict[str, Any]
    answers: tuple[tuple[int, ...], ...] = ()

    @property
    def streams(self) -> bool:
        return bool(self.body.get("stream"))


def candidates_to_check(model: str, num: int, rng: random.Random) -> list[Query]:
    """Greedy requests of four kinds, without answers yet."""
    queries = []
    for index in range(num):
        text = f"{FACTS[index % len(FACTS)]} Then repeat: {' '.join(rng.sample(WORDS, 4))}."
        messages = [{"role": "user", "content": text}]
        kind = ("chat", "completion", "tool", "long prompt")[index % 4]
        body: dict[str, Any] = {"model": model, "temperature": 0, "return_token_ids": True, "max_tokens": MAX_ANSWER}
        if kind == "completion":
            queries.append(Query(kind, "/v1/completions", {**body, "prompt": f"{text} {text} {text}"}))
        elif kind == "long prompt":
            words = " ".join(rng.choice(WORDS) for _ in range(LONG_PROMPT_WORDS))
            messages = [{"role": "user", "content": f"{words}\n{text}"}]
            queries.append(Query(kind, "/v1/chat/completions", {**body, "messages": messages}))
        else:
            tools = {"tools": [TOOL]} if kind == "tool" else {}
            queries.append(Query(kind, "/v1/chat/completions", {**body, **tools, "messages": messages}))
    return queries


async def answer_all(http: httpx.AsyncClient, queries: list[Query]) -> list[list[int]]:
    """The clear beginning of the greedy answer to each, one request at a time."""
    return [await _clear_answer(http, query) for query in queries]


async def _clear_answer(http: httpx.AsyncClient, query: Query) -> list[int]:
    wanted = {"logprobs": 2} if query.kind == "completion" else {"logprobs": True, "top_logprobs": 2}
    response = await http.post(query.path, json={**query.body, **wanted, "return_tokens_as_token_ids": True})
    response.raise_for_status()
    choice = response.json()["choices"][0]
    if query.kind == "completion":
        tops = [sorted(top.values(), reverse=True) for top in choice["logprobs"]["top_logprobs"]]
    else:
        entries = choice["logprobs"]["content"]
        tops = [sorted((top["logprob"] for top in entry["top_logprobs"]), reverse=True) for entry in entries]
    leads = [top[0] - top[1] for top in tops]
    clear = next((index for index, lead in enumerate(leads) if lead < CLEAR_LEAD), len(leads))
    ids: list[int] = choice["token_ids"][:clear]
    return ids


def with_answers(queries: list[Query], even: list[list[int]], odd: list[list[int]]) -> list[Query]:
    """The queries whose clear answers are long enough under both sets of weights, asking for no more than that."""
    checked = []
    for query, *answers in zip(queries, even, odd, strict=True):
        length = min(map(len, answers))
        if length >= MIN_ANSWER:
            cut = tuple(tuple(answer[:length]) for answer in answers)
            checked.append(Query(query.kind, query.path, {**query.body, "max_tokens": length}, cut))
    return checked


def draw(checked: list[Query], model: str, rng: random.Random) -> Query:
    """The next request of a client: two of three are checked, half of those as a stream; the others are sampled."""
    if rng.random() < 2 / 3:
        query = rng.choice(checked)
        if rng.random() < 0.5:
            return query
        return Query(f"{query.kind}, streamed", query.path, {**query.body, "stream": True}, query.answers)
    body = {
        "model": model,
        "messages": [{"role": "user", "content": f"Write about a {rng.choice(WORDS)} and a {rng.choice(WORDS)}."}],
        "seed": rng.randrange(2**31),
        "max_tokens": rng.randint(16, 64),
        "logprobs": True,
        "return_token_ids": True,
        "stream": True,
    }
    return Query("sampled, streamed", "/v1/chat/completions", body)
