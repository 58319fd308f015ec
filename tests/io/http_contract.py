"""The contract of every HTTP client: a server answers well, badly, late, or never. Each client is tried by `CASES`."""

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from slimrl.errors import RolloutError, UserError
from tests.io.replying import Answer, Asked, server

NOWHERE = "http://127.0.0.1:9"
KEY = "sk-this-is-a-secret-0123456789"
CLOSED = Answer(0, None)  # the connection is closed without a reply
LIMIT_S, SLACK_S = 0.4, 3.0  # the client's limit for a server that does not answer, and the time to notice it
BUSY_S = 4.0  # the limit for one that answers at once, also on a loaded machine
PATIENT_S = 20.0


@dataclass(frozen=True)
class Client:
    """A client under the contract. `ask(root, limit_s)` makes one request, with `KEY`, to the server at `root`.

    `good` is a right answer, and `other` answers requests on other routes. `repeats` is false for a client that asks a
    server again only if it is busy, and `takes_any_json` true for one that does not look at its reply.
    """

    name: str
    ask: Callable[[str, float], Any]
    good: Callable[[Asked], Answer]
    repeats: bool = True
    takes_any_json: bool = False
    key: str = KEY  # empty for a client that has none
    other: Callable[[Asked], Answer | None] = lambda asked: None


def answering(client: Client, *answers: Answer) -> Callable[[Asked], Answer]:
    """Give these answers in turn, and then good ones."""
    left = iter(answers)

    def answer(asked: Asked) -> Answer:
        if other := client.other(asked):
            return other
        reply = next(left, None) or client.good(asked)
        if reply is CLOSED:
            raise ConnectionError
        return reply

    return answer


def fails(client: Client, answer: Callable[[Asked], Answer], limit_s: float = PATIENT_S) -> tuple[str, int]:
    """The error of a request, and the number of tries."""
    with server(answer) as (url, asked), pytest.raises((UserError, RolloutError)) as raised:
        client.ask(url.removesuffix("/v1"), limit_s)
    text = str(raised.value)
    assert url.removesuffix("/v1") in text and KEY[:12] not in text
    return text, sum(client.other(one) is None for one in asked)


def succeeds(client: Client, *answers: Answer) -> None:
    with server(answering(client, *answers)) as (url, asked):
        assert client.ask(url.removesuffix("/v1"), PATIENT_S) is not None
    mine = [one for one in asked if client.other(one) is None]
    assert len(mine) == len(answers) + 1
    assert all(one.headers.get("Authorization", "Bearer ") == f"Bearer {client.key}" for one in mine)
    assert all(one.headers["Accept-Encoding"] == "identity" for one in mine)


def a_good_answer(client: Client) -> None:
    succeeds(client)


def a_refusal(client: Client) -> None:
    for status in (400, 401, 403):
        text, tries = fails(client, lambda _, status=status: Answer(status, {"error": f"no such key: {client.key}"}))
        assert f"status {status}" in text and "no such key: " in text and tries == 1


def a_redirect(client: Client) -> None:
    text, tries = fails(client, lambda _: Answer(307, {}, {"Location": f"{NOWHERE}/elsewhere"}))
    assert f"points to '{NOWHERE}/elsewhere', which is not followed" in text and tries == 1


def busy_at_first(client: Client) -> None:
    busy = Answer(503, b"loading", {"Retry-After": "0.01"})
    succeeds(client, busy, Answer(429, {}, {"Retry-After": "0.01"}))


def a_long_pause(client: Client) -> None:
    """A pause beyond the limit is not waited for."""
    began = time.monotonic()
    text, _ = fails(client, lambda _: Answer(429, b"", {"Retry-After": "3600"}), BUSY_S)
    assert "429" in text and time.monotonic() - began < BUSY_S + SLACK_S


def broken_at_first(client: Client) -> None:
    for broken in (Answer(500, {}, {"Retry-After": "0.01"}), CLOSED, cut()):
        if client.repeats:
            succeeds(client, broken)
        else:
            assert fails(client, answering(client, broken))[1] == 1


def cut() -> Answer:
    return Answer(200, b'{"choices": [', {"Content-Length": "1000", "Connection": "close"})


def garbage(client: Client) -> None:
    for body, shown in ((b"<html>", "<html>"), (b"[" * 100_000, "[[[")):
        assert shown in fails(client, lambda _, body=body: Answer(200, body))[0]


def another_form(client: Client) -> None:
    for body in () if client.takes_any_json else ([], {"choices": None}, "text"):
        with server(lambda _, body=body: Answer(200, body)) as (url, _), pytest.raises((UserError, RolloutError)):
            client.ask(url.removesuffix("/v1"), PATIENT_S)


def compressed(client: Client) -> None:
    assert "compressed ('gzip')" in fails(client, lambda _: Answer(200, b"x", {"Content-Encoding": "gzip"}))[0]


def too_late(client: Client) -> None:
    gone = threading.Event()

    def late(asked: Asked) -> Answer:
        gone.wait(PATIENT_S)
        return client.good(asked)

    ends_in_time(client, late)
    gone.set()


def dripping(client: Client) -> None:
    """Bytes arrive all the time, and no end."""

    def drops() -> Iterator[bytes]:
        for _ in itertools.count():
            time.sleep(0.05)
            yield b" "

    ends_in_time(client, lambda _: Answer(200, drops()))


def ends_in_time(client: Client, answer: Callable[[Asked], Answer]) -> None:
    began = time.monotonic()
    text, _ = fails(client, answer, LIMIT_S)
    assert f"{LIMIT_S:g} s" in text and time.monotonic() - began < LIMIT_S + SLACK_S


def nobody(client: Client) -> None:
    began = time.monotonic()
    with pytest.raises((UserError, RolloutError), match=f"{NOWHERE}.*does not answer.*ConnectError"):
        client.ask(NOWHERE, LIMIT_S)
    assert time.monotonic() - began < LIMIT_S + SLACK_S


CASES = [
    a_good_answer, a_refusal, a_redirect, busy_at_first, a_long_pause, broken_at_first, garbage, another_form,
    compressed, too_late, dripping, nobody,
]  # fmt: skip
