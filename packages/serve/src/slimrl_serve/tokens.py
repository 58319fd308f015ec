"""Implements the routes on token ids: `/tokenize`, `/detokenize`, `/tokenizer_info`, `/inference/v1/generate`."""

import uuid
from collections.abc import Sequence
from typing import Any

from fastapi.responses import JSONResponse

from slimrl_serve.bodies import DetokenizeBody, GenerateBody, GenerateSampling, TokenizeBody
from slimrl_serve.chat import render
from slimrl_serve.errors import bad_request
from slimrl_serve.generation import Choice, Generation, Wanted, start_generation, take_turns
from slimrl_serve.logprobs import TokenNames, chat_logprobs, sampled_scores
from slimrl_serve.service import Served, Service

# A body of megabytes would delay the running streams, because most of the work on it holds the GIL.
MOST_CONTEXTS = 64  # a request may convert this many times `context_len` tokens
CHARACTERS = 4  # characters that are counted as one token


async def tokenize(service: Served, body: TokenizeBody) -> JSONResponse:
    """Return the token ids of a prompt, or of messages as the chat template renders them, in vLLM's format."""
    service.check_model(body.model)
    if (body.prompt is None) == (body.messages is None):
        raise bad_request("Give either prompt or messages.", "prompt")
    messages = body.messages or (body.prompt if isinstance(body.prompt, list) else None)
    if isinstance(body.prompt, list) and body.prompt[-1].role == "assistant" and body.add_generation_prompt is None:
        # lm-eval does not request a continuation explicitly, so a last message by the assistant is continued.
        body = body.model_copy(update={"continue_final_message": True})
    if messages is None:
        text, add_special = str(body.prompt), body.add_special_tokens is not False
    else:
        text = render(service, body, messages, body.tools or [])
        add_special = bool(body.add_special_tokens)
    if len(text) > (most := MOST_CONTEXTS * CHARACTERS * service.config.context_len):
        raise bad_request(f"The text has {len(text)} characters; send at most {most} at once.", "prompt")
    token_ids = await service.encode(text, add_special)
    names = [service.model.vocabulary.token_text(token) for token in token_ids] if body.return_token_strs else None
    content = {"count": len(token_ids), "max_model_len": service.config.context_len, "tokens": token_ids}
    return JSONResponse({**content, "token_strs": names})


async def detokenize(service: Served, body: DetokenizeBody) -> dict[str, Any]:
    """Return the text of token ids, including special tokens."""
    service.check_model(body.model)
    vocabulary = service.model.vocabulary
    if len(body.tokens) > (most := MOST_CONTEXTS * service.config.context_len):
        raise bad_request(f"These are {len(body.tokens)} tokens; send at most {most} at once.", "tokens")
    if body.tokens and (highest := max(body.tokens)) >= vocabulary.num_tokens:
        raise bad_request(f"The token id {highest} is not from 0 to {vocabulary.num_tokens - 1}.", "tokens")
    return {"prompt": vocabulary.decode(body.tokens, skip_special=False)}


async def tokenizer_info(service: Served) -> dict[str, Any]:
    """Return the special tokens and the chat template, in vLLM's format."""
    tokenizer: Any = service.model.policy.tokenizer
    return {
        "tokenizer_class": type(tokenizer).__name__,
        "bos_token": tokenizer.bos_token,
        "eos_token": tokenizer.eos_token,
        "pad_token": tokenizer.pad_token,
        "chat_template": tokenizer.chat_template if isinstance(tokenizer.chat_template, str) else None,
    }


async def open_generation(service: Service, body: GenerateBody) -> Generation:
    """Check and queue a request of `/inference/v1/generate`.

    As in vLLM, `max_tokens` may exceed the context. Sampling then stops at the end of the context, by "length".
    """
    service.check_model(body.model)
    sampling = body.sampling_params
    room = service.room_behind(body.token_ids)
    asked = room if sampling.max_tokens is None else sampling.max_tokens
    least = sampling.min_tokens or 0
    if least > asked:
        raise bad_request(f"min_tokens = {least} is more than the {asked} at most.", "sampling_params.min_tokens")
    sampling = sampling.model_copy(update={"min_tokens": min(least, room)})
    wanted = Wanted(min(asked, room), sampling.logprobs)
    request_id = body.request_id or f"generate-{uuid.uuid4().hex}"
    grammar = await service.formats.grammar_of(sampling)
    return start_generation(service, [body.token_ids], sampling, [wanted], request_id, grammar)


async def reply_to(generation: Generation, sampling: GenerateSampling) -> dict[str, Any]:
    """Return the reply of `/inference/v1/generate`: token ids and their log-probabilities, without text."""
    await generation.finish()
    names = TokenNames(generation.service.model.vocabulary, as_ids=True)

    def write(choice: Choice) -> dict[str, Any]:
        token_ids, num_top = choice.token_ids, sampling.logprobs
        scores = [] if num_top is None else sampled_scores(choice, 0, len(token_ids), num_top)
        return {
            "index": choice.index,
            "token_ids": token_ids,
            "token_versions": choice.request.versions,
            "weight_versions": _version_spans(generation.service, choice.request.versions),
            "finish_reason": choice.finish_reason,
            "logprobs": None if num_top is None else chat_logprobs(names, scores),
        }

    return {
        "request_id": generation.request_id,
        "choices": await take_turns(write, generation.choices),
    }


def _version_spans(service: Service, versions: Sequence[int]) -> list[dict[str, Any]]:
    """Return vLLM's `weight_versions`: spans of tokens, from `start` to `end`, that one weight version has sampled."""
    spans: list[dict[str, Any]] = []
    for index, version in enumerate(versions):
        name = service.version_name(version)
        if not spans or spans[-1]["version"] != name:
            spans.append({"version": name, "start": index})
        spans[-1]["end"] = index + 1
    return spans
