"""Implements the routes on token ids: `/tokenize` and `/inference/v1/generate`."""

import uuid
from collections.abc import Sequence

from slimrl_serve.bodies import GenerateBody, GenerateSampling, TokenizeBody
from slimrl_serve.chat import render
from slimrl_serve.errors import bad_request
from slimrl_serve.generation import Choice
from slimrl_serve.reply import Plain, Reply
from slimrl_serve.service import Served, Service
from slimrl_serve.text import TokenNames

# Limit the work of one request: a body of megabytes would delay the running streams, because most of the work holds the
# GIL.
MOST_CONTEXTS = 64  # a request may convert this many times `context_len` tokens
CHARACTERS = 4  # characters that are counted as one token


async def tokenize(service: Served, body: TokenizeBody) -> Plain:
    """Return the token ids of a prompt, or of messages as the chat template renders them, in vLLM's format."""
    service.check_model(body.model)
    if (body.prompt is None) == (body.messages is None):
        raise bad_request("Give either prompt or messages.", "prompt")
    if body.messages is None:
        text, add_special = str(body.prompt), body.add_special_tokens is not False
    else:
        text, add_special = render(service, body, body.messages, body.tools or []), bool(body.add_special_tokens)
    if len(text) > (most := MOST_CONTEXTS * CHARACTERS * service.config.context_len):
        raise bad_request(f"The text has {len(text)} characters; send at most {most} at once.", "prompt")
    token_ids = await service.encode(text, add_special)
    return {"count": len(token_ids), "max_model_len": service.config.context_len, "tokens": token_ids}


class TokensReply(Reply[GenerateSampling]):
    """The reply of `/inference/v1/generate`: token ids and their log-probabilities, without text."""

    async def whole(self) -> Plain:
        """Return the whole reply."""
        return {"request_id": self.request_id, "choices": await self.all_choices()}

    def whole_choice(self, choice: Choice) -> Plain:
        """Return a choice with its tokens and their weight versions."""
        token_ids, num_top, logprobs = choice.token_ids, self.body.logprobs, None
        if num_top is not None:
            names = TokenNames(self.service.vocabulary, as_ids=True)
            logprobs = names.chat_logprobs(choice.scores(0, len(token_ids), num_top))
        return {
            "index": choice.index,
            "token_ids": token_ids,
            "token_versions": choice.sequence.versions,
            "weight_versions": _version_spans(self.service, choice.sequence.versions),
            "finish_reason": choice.finish_reason,
            "logprobs": logprobs,
        }


async def open_generation(service: Service, body: GenerateBody) -> TokensReply:
    """Check and queue a request of `/inference/v1/generate`.

    As in vLLM, `max_tokens` may exceed the context. Sampling then stops at the end of the context, with the finish
    reason "length".
    """
    service.check_model(body.model)
    sampling = body.sampling_params
    room = service.room_behind(body.token_ids)
    asked = room if sampling.max_tokens is None else sampling.max_tokens
    request_id, max_tokens = body.request_id or f"generate-{uuid.uuid4().hex}", min(asked, room)
    return TokensReply(service, sampling, request_id, [body.token_ids], [max_tokens], sampling.logprobs)


def _version_spans(service: Service, versions: Sequence[int]) -> list[Plain]:
    """Return vLLM's `weight_versions`: an object for each span of tokens with the same weight version. The span has the
    indices from `start` to `end` - 1."""
    spans: list[Plain] = []
    for index, version in enumerate(versions):
        name = service.version_name(version)
        if not spans or spans[-1]["version"] != name:
            spans.append({"version": name, "start": index})
        spans[-1]["end"] = index + 1
    return spans
