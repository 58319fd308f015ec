"""A stand-in for SGLang's router: speaks its protocol over HTTP on loopback, and says what a function tells it to."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from slimrl.models.chat.template import ChatFormat
from tests.io.replying import Answer, Asked, server
from tests.tiny import START

ABORT = "abort"
Policy = Callable[[str, int], str]  # from the conversation so far, as text, and the number of the turn, to a reply


@dataclass(frozen=True, slots=True)
class Said:
    """What the router answered: tokens with their log-probabilities, and why it stopped."""

    prompt: list[int]
    token_ids: list[int]
    logprobs: list[float]
    finish: str


def reply_to(chat: ChatFormat, tokens_of: Callable[[str], list[int]], policy: Policy, said: list[Said]) -> Any:
    """Answers a request as SGLang's `/generate` does."""

    def answer(asked: Asked) -> Answer:
        assert asked.path.endswith("/generate")
        prompt, params = asked.body["input_ids"], asked.body["sampling_params"]
        assert asked.body["return_logprob"] is True and "text" not in asked.body
        conversation = chat.full_text(prompt)
        text = policy(conversation, conversation.count(f"{START}assistant") - 1)
        whole = [*tokens_of(text), chat.end_of_turn]
        assert chat.end_of_turn in params["stop_token_ids"]
        token_ids = whole[: params["max_new_tokens"]]
        finish = "stop" if len(token_ids) == len(whole) else "length"
        if text == ABORT:
            token_ids, finish = token_ids[:1], ABORT
        logprobs = [-((len(prompt) + place) % 89 + 1) / 64 for place in range(len(token_ids))]
        said.append(Said(prompt, token_ids, logprobs, finish))
        return Answer(200, body_of(said[-1]))

    return answer


def body_of(said: Said) -> dict[str, Any]:
    """What stands in a reply of SGLang's, as far as SLIME reads it."""
    pairs = [[logprob, token, None] for logprob, token in zip(said.logprobs, said.token_ids, strict=True)]
    return {
        "text": "is not to be read",
        "meta_info": {
            "id": "1",
            "finish_reason": {"type": said.finish},
            "prompt_tokens": len(said.prompt),
            "completion_tokens": len(said.token_ids),
            "weight_version": "7",
            "output_token_logprobs": pairs,
        },
    }


@contextmanager
def router(chat: ChatFormat, tokens_of: Callable[[str], list[int]], policy: Policy) -> Iterator[tuple[int, list[Said]]]:
    """Its port, and all that it has said."""
    said: list[Said] = []
    with server(reply_to(chat, tokens_of, policy, said)) as (address, _):
        port = urlsplit(address).port
        assert port is not None
        yield port, said
