"""Formats the replies of `/v1/completions`."""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field

from slimrl.inference.sampling import Top
from slimrl_serve.bodies import CompletionBody
from slimrl_serve.errors import bad_request
from slimrl_serve.generation import Choice
from slimrl_serve.reply import Plain, TextReply
from slimrl_serve.service import Service
from slimrl_serve.text import Score

DEFAULT_MAX_TOKENS = 16  # as in OpenAI's API


@dataclass(eq=False)
class Completions(TextReply[CompletionBody]):
    """The reply to one completions request. `texts` are the prompts' texts, if the reply must echo them."""

    KINDS = ("text_completion", "text_completion")

    texts: list[str] = field(default_factory=list)

    @property
    def echoes(self) -> bool:
        """True if the reply repeats the prompts, together with their log-probabilities if these are requested."""
        return bool(self.body.echo)

    def pieces(self, choice: Choice, text: str, tokens: tuple[int, int], done: bool) -> Iterator[Plain]:
        """Yield the new text with its tokens, unless there is nothing to report."""
        piece = self._piece(choice, *tokens, (self._echo(choice) if not tokens[0] else "") + text[choice.shown :])
        piece["finish_reason"] = choice.finish_reason if done else None
        if piece["text"] or done or self.body.logprobs is not None or self.body.return_token_ids:
            yield piece

    def whole_choice(self, choice: Choice) -> Plain:
        """Return a choice with its text."""
        text = self._echo(choice) + choice.text_so_far(done=True)
        piece = self._piece(choice, 0, len(choice.token_ids), text)
        return piece | {"finish_reason": choice.finish_reason}

    def _piece(self, choice: Choice, start: int, end: int, text: str) -> Plain:
        piece: Plain = {"index": choice.index, "text": text, "logprobs": None, "finish_reason": None}
        if self.body.logprobs is not None:
            piece["logprobs"] = self._logprobs(choice, start, end, self.body.logprobs)
        if self.body.return_token_ids and start == 0:
            piece["prompt_token_ids"] = choice.prompt
        return piece | self.token_ids(choice, start, end)

    def _logprobs(self, choice: Choice, start: int, end: int, num_top: int) -> Plain:
        tokens = choice.token_ids[start:end]
        scores: list[Score | None] = [*choice.scores(start, end, num_top)]
        if self.echoes and start == 0:
            tokens = [*choice.prompt, *tokens]
            scores = [None, *choice.prompt_scores(num_top), *scores]
        return {
            "tokens": [self.names.name(token) for token in tokens],
            # The first token of an echoed prompt has no score.
            "token_logprobs": [score and score[1] for score in scores],
            "top_logprobs": [score and self._by_name(*score) for score in scores] if num_top else None,
        }

    def _by_name(self, token: int, logprob: float, top: Top) -> dict[str, float]:
        """Return the log-probabilities of the most likely tokens and of the token itself, keyed by text. If two tokens
        have the same text, use the more likely token."""
        named: dict[str, float] = {}
        for other, theirs in top if any(other == token for other, _ in top) else (*top, (token, logprob)):
            named.setdefault(self.names.name(other), theirs)
        return named

    def _echo(self, choice: Choice) -> str:
        return self.texts[choice.index] if self.echoes else ""


async def open_completions(service: Service, body: CompletionBody) -> Completions:
    """Check, tokenize and queue a request. Raises ApiError if it is invalid, or the queue is full."""
    service.check_model(body.model)
    if body.echo and (body.n or 1) > 1:
        raise bad_request("echo needs n = 1.", "echo")
    # A list of numbers is one prompt of token ids; a list of texts or of lists is several prompts.
    given = body.prompt if isinstance(body.prompt, list) and not isinstance(body.prompt[0], int) else [body.prompt]
    service.check_room(len(given) * (body.n or 1))
    prompts, max_tokens, texts = list[list[int]](), list[int](), list[str]()
    for prompt in given:
        if isinstance(prompt, str):
            token_ids = await service.encode_prompt(prompt, body.add_special_tokens is not False)
        else:
            token_ids = prompt
        room = service.check_prompt(token_ids, body.max_tokens)
        max_tokens.append(min(DEFAULT_MAX_TOKENS, room) if body.max_tokens is None else body.max_tokens)
        prompts.append(token_ids)
        if body.echo:
            decode, skips = service.vocabulary.decode, body.skip_special_tokens is not False
            texts.append(prompt if isinstance(prompt, str) else decode(prompt, skips))
    request_id = f"cmpl-{uuid.uuid4().hex}"
    return Completions(service, body, request_id, prompts, max_tokens, body.logprobs, texts)
