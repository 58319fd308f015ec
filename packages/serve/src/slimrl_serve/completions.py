"""Formats `/v1/completions`; `generation.py` does the sampling."""

import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from slimrl_serve.bodies import CompletionBody
from slimrl_serve.chat import check_stream
from slimrl_serve.errors import bad_request
from slimrl_serve.generation import Choice, Wanted, start_generation, take_turns
from slimrl_serve.logprobs import Score, completion_logprobs, prompt_scores, sampled_scores
from slimrl_serve.reply import Reply
from slimrl_serve.service import Service

KIND = "text_completion"
DEFAULT_MAX_TOKENS = 16  # as in OpenAI's API


@dataclass(slots=True, eq=False)
class Completions(Reply[CompletionBody]):
    """One completions request. It has `n` choices for each prompt, in the prompts' order. `echoes` are the prompts'
    texts."""

    echoes: list[str]

    async def whole(self) -> dict[str, Any]:
        """Return the whole reply."""
        await self.generation.finish()
        reply = self.head(KIND) | {"choices": await take_turns(self._choice, self.generation.choices)}
        if self.body.return_token_ids and len(self.echoes) == 1:
            reply["prompt_token_ids"] = self.generation.choices[0].job.prompt
        return reply | {"usage": self.generation.usage()}

    async def chunks(self) -> AsyncIterator[dict[str, Any]]:
        """Yield the reply in pieces, and the usage if requested."""
        async for choice, done in self.generation.changes():
            start = choice.told
            first = start == 0
            text, end = choice.text_so_far(done), len(choice.token_ids)
            # Text may lag behind the tokens, because incomplete characters and stop strings are held back.
            new, choice.shown = text[choice.shown :], len(text)
            piece = self._piece(choice, start, end, (self._echo(choice) if first else "") + new)
            piece["finish_reason"] = choice.finish_reason if done else None
            choice.told = end
            if piece["text"] or done or self.body.logprobs is not None or self.body.return_token_ids:
                yield self.head(KIND) | {"choices": [piece]}
        for chunk in self.last_chunks(KIND):
            yield chunk

    def _choice(self, choice: Choice) -> dict[str, Any]:
        text = self._echo(choice) + choice.text_so_far(done=True)
        piece = self._piece(choice, 0, len(choice.token_ids), text)
        piece["finish_reason"] = choice.finish_reason
        return piece

    def _piece(self, choice: Choice, start: int, end: int, text: str) -> dict[str, Any]:
        """Return the part of a choice with the sampled tokens `start..end`, after the echoed prompt if `start` is 0."""
        piece: dict[str, Any] = {"index": choice.index, "text": text, "logprobs": None, "finish_reason": None}
        if self.body.logprobs is not None:
            piece["logprobs"] = self._logprobs(choice, start, end, self.body.logprobs)
        if self.body.return_token_ids and start == 0:
            piece["prompt_token_ids"] = choice.request.prompt
        return piece | self.token_ids(choice, start, end)

    def _logprobs(self, choice: Choice, start: int, end: int, num_top: int) -> dict[str, Any]:
        count, skips = self.service.model.vocabulary.num_characters, self.body.skip_special_tokens is not False
        tokens = choice.token_ids[start:end]
        lengths = [count(token, skips) for token in tokens]
        scores: list[Score | None] = [*sampled_scores(choice, start, end, num_top)]
        if self.body.echo and start == 0:
            prompt = choice.request.prompt
            is_text = isinstance(self.body.prompt, str) or isinstance(self.body.prompt[0], str)
            before = [count(token, skips and not is_text) for token in prompt]
            # Negative if the tokenizer puts special tokens before the echoed text.
            choice.offset = len(self._echo(choice)) - sum(before)
            tokens, lengths = [*prompt, *tokens], [*before, *lengths]
            scores = [None, *prompt_scores(choice, num_top), *scores]
        *offsets, choice.offset = accumulate(lengths, initial=choice.offset)
        return completion_logprobs(self.names, tokens, scores, num_top, [max(0, offset) for offset in offsets])

    def _echo(self, choice: Choice) -> str:
        return self.echoes[choice.index // (self.body.n or 1)] if self.body.echo else ""


async def open_completions(service: Service, body: CompletionBody) -> Completions:
    """Check, tokenize and queue a request. Raises ApiError if it is invalid, or the queue is full."""
    name = service.check_model(body.model)
    check_stream(body)
    if body.best_of is not None and body.best_of != (body.n or 1):
        raise bad_request("best_of is not supported: it must be equal to n.", "best_of")
    if body.max_tokens == 0 and not body.echo:
        raise bad_request("max_tokens = 0 leaves nothing to answer; it needs echo = true.", "max_tokens")
    prompts, echoes = await _prompts(service, body)
    wanted = []
    for prompt in prompts:
        room = service.check_prompt(prompt, body.max_tokens)
        asked = min(DEFAULT_MAX_TOKENS, room) if body.max_tokens is None else body.max_tokens
        # `max_tokens = 0` with an echo scores the prompt only; the engine still samples one token for it.
        wanted.append(Wanted(asked, body.logprobs, bool(body.echo), bool(body.stream)))
    grammar = await service.formats.grammar_of(body)
    generation = start_generation(service, prompts, body, wanted, f"cmpl-{uuid.uuid4().hex}", grammar)
    return Completions(generation, service, body, name, echoes)


async def _prompts(service: Service, body: CompletionBody) -> tuple[list[list[int]], list[str]]:
    """Return the prompts as token ids, and as texts to echo."""
    given = body.prompt
    # A list of numbers is one prompt of token ids; a list of texts or of lists is several prompts.
    several = given if isinstance(given, list) and not isinstance(given[0], int) else [given]
    service.check_room(len(several) * (body.n or 1))
    prompts: list[list[int]] = []
    echoes: list[str] = []
    for prompt in several:
        if isinstance(prompt, str):
            prompts.append(await service.encode_prompt(prompt, body.add_special_tokens is not False))
            echoes.append(prompt)
            continue
        service.check_prompt(prompt, 1)
        prompts.append(prompt)
        text = service.model.vocabulary.decode(prompt, body.skip_special_tokens is not False) if body.echo else ""
        echoes.append(text)
    return prompts, echoes
