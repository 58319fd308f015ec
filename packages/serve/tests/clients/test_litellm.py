"""LiteLLM's proxy, unmodified, in front of the server: clients of Responses and of Messages by way of chat.

The proxy has an environment of its own. `LITELLM` names its program: `LITELLM=~/litellm/bin/litellm pytest ...`.
"""

import json
import os
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from packages.serve.tests.clients.parrot import ADD, SUM_ANSWER, SUM_QUESTION
from slimrl_serve.command import InferenceServer

PROGRAM = shutil.which(os.environ.get("LITELLM", "litellm"))
pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(PROGRAM is None, reason="litellm is not installed; LITELLM may name its program"),
]
START_S = 120
KEY = f"sk-{secrets.token_hex(32)}"
CONFIG = """\
model_list:
  - model_name: tiny
    litellm_params:
      model: hosted_vllm/tiny
      api_base: {address}/v1
      api_key: none
      use_chat_completions_api: true
"""
ASK = [{"role": "user", "content": SUM_QUESTION}]
MESSAGE: dict[str, Any] = {"model": "tiny", "max_tokens": 100, "temperature": 0, "messages": ASK}
RESPONSE: dict[str, Any] = {"model": "tiny", "input": SUM_QUESTION, "temperature": 0}
TOOL = {"name": "add", "description": "Add two numbers.", "input_schema": ADD["function"]["parameters"]}


@pytest.fixture(scope="module")
def proxy(parrot: InferenceServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    directory = tmp_path_factory.mktemp("litellm")
    (directory / "config.yaml").write_text(CONFIG.format(address=parrot.address))
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    command = [str(PROGRAM), "--config", "config.yaml", "--host", "127.0.0.1", "--port", str(port)]
    # No download at the start, and none of this environment's packages.
    environment = {**os.environ, "LITELLM_MASTER_KEY": KEY, "LITELLM_LOCAL_MODEL_COST_MAP": "True", "PYTHONPATH": ""}
    log = (directory / "log.txt").open("w")
    with log, subprocess.Popen(command, cwd=directory, env=environment, stdout=log, stderr=log) as process:
        try:
            headers = {"Authorization": f"Bearer {KEY}"}
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=60) as client:
                wait(client, process, directory / "log.txt")
                yield client
        finally:
            process.kill()


def wait(client: httpx.Client, process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until the proxy answers."""
    deadline = time.monotonic() + START_S
    while True:
        try:
            if client.get("/health/liveliness").status_code == 200:
                return
        except httpx.TransportError:
            pass
        assert process.poll() is None and time.monotonic() < deadline, log.read_text()
        time.sleep(0.5)


def post(proxy: httpx.Client, path: str, body: dict[str, Any], **changes: Any) -> httpx.Response:
    reply = proxy.post(path, json=body | changes)
    assert reply.status_code == 200, reply.text
    return reply


def num_prompt_tokens(message: dict[str, Any]) -> int:
    return int(message["usage"]["input_tokens"]) + int(message["usage"].get("cache_read_input_tokens") or 0)


def events(reply: httpx.Response) -> list[dict[str, Any]]:
    lines = [line[6:] for line in reply.text.splitlines() if line.startswith("data: {")]
    return [json.loads(line) for line in lines]


def test_messages_are_answered_whole_and_in_a_stream(proxy: httpx.Client) -> None:
    message = post(proxy, "/v1/messages", MESSAGE).json()
    assert [block["text"] for block in message["content"]] == [SUM_ANSWER]
    assert message["stop_reason"] == "end_turn" and message["usage"]["output_tokens"] > 0
    streamed = events(post(proxy, "/v1/messages", MESSAGE, stream=True))
    deltas = [event["delta"] for event in streamed if event["type"] == "content_block_delta"]
    assert "".join(delta["text"] for delta in deltas) == SUM_ANSWER


def test_a_call_and_its_result_are_sent_on(proxy: httpx.Client) -> None:
    first = post(proxy, "/v1/messages", MESSAGE, tools=[TOOL]).json()
    call = {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {"a": 20, "b": 22}}
    result = {"type": "tool_result", "tool_use_id": call["id"], "content": "42"}
    messages = [*ASK, {"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    second = post(proxy, "/v1/messages", MESSAGE, messages=messages, tools=[TOOL]).json()
    assert second["role"] == "assistant" and num_prompt_tokens(second) > num_prompt_tokens(first)


def test_responses_are_answered_whole_and_in_a_stream(proxy: httpx.Client) -> None:
    response = post(proxy, "/v1/responses", RESPONSE).json()
    (item,) = [item for item in response["output"] if item["type"] == "message"]
    assert response["status"] == "completed" and item["content"][0]["text"] == SUM_ANSWER
    streamed = events(post(proxy, "/v1/responses", RESPONSE, stream=True))
    deltas = [event["delta"] for event in streamed if event["type"] == "response.output_text.delta"]
    assert "".join(deltas) == SUM_ANSWER
