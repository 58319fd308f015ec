"""The judge against a server over loopback that replies as told: well, badly, late, or not at all."""

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from slimrl.environments.judge import JudgeServer, LLMJudge, VerdictCache, verdict_of
from slimrl.errors import RolloutError, UserError

Answer = tuple[int, Any]  # status, body


def completion(text: Any) -> Answer:
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
    return 200, {"id": "1", "object": "chat.completion", "created": 0, "model": "judge", "choices": [choice]}


@contextmanager
def server(answer: Callable[[dict[str, Any]], Answer]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Its address, and the bodies of the requests so far."""
    bodies: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            bodies.append(body)
            status, reply = answer(body)
            data = reply if isinstance(reply, bytes) else json.dumps(reply).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.send_header("Retry-After", "0.01")
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *arguments: object) -> None:
            pass

    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    httpd.daemon_threads = True
    thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{httpd.server_port}/v1", bodies
    finally:
        httpd.shutdown()
        httpd.server_close()
        thread.join()


def ask(url: str, cache: Path, response: str = "1874", **settings: Any) -> bool:
    async def judge() -> bool:
        llm = LLMJudge(JudgeServer(url, "judge", **settings), cache)
        return await llm.judge("When?", response, ["1874", "in 1874"])

    return asyncio.run(judge())


@pytest.mark.parametrize(
    ("reply", "verdict"),
    [
        ("yes", True),
        ("No", False),
        (" YES.\n", True),
        ("**no**", False),
        ('"yes"', True),
        ("`No`!", False),
        ("<think>no, or yes</think>\nyes", True),
        ("<think>a</think> yes <think>b</think> no", False),
        ("_yes_", True),
        ("eyes", None),
        ("yes/no", None),
        ("yes or no", None),
        ("yes, it is", None),
        ("no way", None),
        ("The answer is yes", None),
        ("yesno", None),
        ("yes no", None),
        ("", None),
        ("...", None),
        ("<think>yes", None),
        ("</think>", None),
        ("n\u00f4", None),
        ("true", None),
        ("1", None),
    ],
)
def test_a_verdict_is_yes_or_no_and_nothing_else(reply: str, verdict: bool | None):
    assert verdict_of(reply) is verdict


def test_a_verdict_is_asked_for_once(tmp_path):
    with server(lambda body: completion("Yes.")) as (url, bodies):
        for _ in range(3):
            assert ask(url, tmp_path / "cache.sqlite") is True
        assert ask(url, tmp_path / "cache.sqlite", response="<think>1873</think> 1874 ") is True  # the same response
        assert len(bodies) == 1 and bodies[0]["temperature"] == 0.0
        prompt = bodies[0]["messages"][0]["content"]
        assert all(text in prompt for text in ("When?", "1874\nin 1874", "yes or no"))
        ask(url, tmp_path / "cache.sqlite", response="1873")
        assert len(bodies) == 2 and len(VerdictCache(tmp_path / "cache.sqlite")) == 2


@pytest.mark.parametrize("response", ["", "  \n", "<think>1874</think>  "])
def test_an_empty_response_is_wrong_without_asking(response: str, tmp_path: Path):
    assert ask("http://127.0.0.1:9/v1", tmp_path / "cache.sqlite", response=response) is False


def test_a_reply_that_is_no_verdict_is_asked_for_again(tmp_path):
    replies = iter(["maybe", "yes/no", "no"])
    with server(lambda body: completion(next(replies))) as (url, bodies):
        assert ask(url, tmp_path / "cache.sqlite") is False
    assert [body["temperature"] > 0 for body in bodies] == [False, True, True]


def test_a_busy_server_is_asked_again(tmp_path):
    answers = iter([(429, {"error": "slow down"}), (503, {"error": "later"}), completion("yes")])
    with server(lambda body: next(answers)) as (url, _):
        assert ask(url, tmp_path / "cache.sqlite") is True


@pytest.mark.parametrize(
    ("answer", "reason", "detail"),
    [
        (completion("perhaps"), "judge_verdict", "3 replies were neither yes nor no, the last 'perhaps'"),
        ((429, {"error": "slow down"}), "judge_error", "answered 429"),
        ((500, {"error": "broken"}), "judge_error", "answered 500"),
        ((401, {"error": "who are you"}), "judge_error", "answered 401"),
        ((200, b"<html>"), "judge_error", ""),
        ((200, {}), "judge_error", "gave no chat completion"),
        ((200, {"choices": []}), "judge_error", "gave no chat completion"),
        (completion(None), "judge_error", "a completion without text"),
        (completion(["yes"]), "judge_error", "a completion without text"),
    ],
)
def test_what_is_no_verdict_is_a_failure_with_a_reason(answer: Answer, reason: str, detail: str, tmp_path: Path):
    with server(lambda body: answer) as (url, _), pytest.raises(RolloutError) as raised:
        ask(url, tmp_path / "cache.sqlite")
    assert raised.value.reason == reason and detail in raised.value.detail
    assert len(VerdictCache(tmp_path / "cache.sqlite")) == 0


def test_a_slow_server_and_a_dead_one_are_failures_with_a_reason(tmp_path):
    def slowly(body: dict[str, Any]) -> Answer:
        time.sleep(0.5)
        return completion("yes")

    with server(slowly) as (url, _), pytest.raises(RolloutError, match=r"judge_timeout: no reply within 0\.1 s"):
        ask(url, tmp_path / "cache.sqlite", timeout_s=0.1, max_tries=1)
    with pytest.raises(RolloutError, match="judge_unreachable: http"):
        ask(url, tmp_path / "cache.sqlite", max_tries=1)


def test_no_more_questions_are_open_than_allowed(tmp_path):
    lock, now, most = threading.Lock(), [0], [0]

    def counted(body: dict[str, Any]) -> Answer:
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        time.sleep(0.02)
        with lock:
            now[0] -= 1
        return completion("yes")

    async def judge(url: str) -> tuple[list[bool], LLMJudge]:
        llm = LLMJudge(JudgeServer(url, "judge", num_concurrent=4), tmp_path / "cache.sqlite")
        return await asyncio.gather(*(llm.judge("When?", str(n), ["1"]) for n in range(24))), llm

    with server(counted) as (url, bodies):
        verdicts, llm = asyncio.run(judge(url))
    assert verdicts == [True] * 24 and llm.asked == len(bodies) == 24 and 2 <= most[0] <= 4


def test_a_cache_that_cannot_be_used_is_named(tmp_path):
    (tmp_path / "cache.sqlite").write_text("garbage" * 1000)
    with pytest.raises(UserError, match="Delete it, or name another"):
        VerdictCache(tmp_path / "cache.sqlite")
