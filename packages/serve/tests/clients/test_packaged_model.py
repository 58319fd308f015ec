"""The packaged model behind the server: at night, because it is loaded twice and decodes long."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from openai import OpenAI

from packages.serve.tests.clients.serving import Reference, Server, served

pytestmark = pytest.mark.nightly
QUESTIONS = ("What is the capital of France?", "Name three colours.", "Write a line about the sea.")


@pytest.fixture(scope="module")
def packaged() -> Iterator[Server]:
    with served(Path("smollm2-135m"), max_slots=8, context_len=1024) as running:
        yield running


@pytest.fixture(scope="module")
def packaged_reference() -> Reference:
    return Reference(Path("smollm2-135m"), capacity=1024)


def test_greedy_answers_are_the_engines(packaged: Server, packaged_reference: Reference) -> None:
    chat = packaged_reference.policy.chat
    with OpenAI(base_url=packaged.v1, api_key="none", max_retries=0) as client:
        for question in QUESTIONS:
            prompt = chat.opening([{"role": "user", "content": question}])
            tokens, logprobs = packaged_reference.greedy(prompt, 32)
            reply = client.chat.completions.create(
                model=packaged.model,
                messages=[{"role": "user", "content": question}],
                temperature=0,
                max_tokens=32,
                logprobs=True,
                extra_body={"return_token_ids": True},
            )
            (choice,) = reply.choices
            assert reply.prompt_token_ids == prompt and choice.token_ids == tokens
            assert choice.message.content == chat.text(tokens)
            assert [entry.logprob for entry in choice.logprobs.content] == pytest.approx(logprobs, abs=1e-3)
