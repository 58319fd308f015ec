"""Defines the checked requests whose replies are sampled, with the shared parts of all routes."""

import time
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

from slimrl_serve import bodies
from slimrl_serve.errors import ApiError, error_body
from slimrl_serve.generation import Choice, Generation
from slimrl_serve.logprobs import TokenNames
from slimrl_serve.service import Service

Plain = dict[str, Any]


@dataclass(slots=True, eq=False)
class Opened:
    """A checked and tokenized request. The last bytes of its stream are `end`."""

    generation: Generation

    end: ClassVar[bytes] = b"data: [DONE]\n\n"

    async def reply(self) -> Plain:
        """Return the whole reply."""
        raise NotImplementedError

    def chunks(self) -> AsyncIterator[Plain]:
        """Yield the reply in pieces."""
        raise NotImplementedError

    def failure(self, error: ApiError) -> Plain:
        """Return the last piece of a stream that fails."""
        return error_body("", error)


@dataclass(slots=True, eq=False)
class OpenedPrompts(Opened):
    """A request of OpenAI's Chat Completions or Completions. `name` is the served model's."""

    service: Service
    body: bodies.Generation
    name: str
    created: int = field(default_factory=lambda: int(time.time()))

    @property
    def names(self) -> TokenNames:
        """The writer of tokens as text."""
        return TokenNames(self.service.model.vocabulary, bool(self.body.return_tokens_as_token_ids))

    def head(self, kind: str) -> Plain:
        """Return the fields of every reply and of every piece of one."""
        return {"id": self.generation.request_id, "object": kind, "created": self.created, "model": self.name}

    def last_chunks(self, kind: str) -> list[Plain]:
        """Return the piece with the token counts, if requested."""
        if not (self.body.stream_options and self.body.stream_options.include_usage):
            return []
        return [self.head(kind) | {"choices": [], "usage": self.generation.usage()}]

    def token_ids(self, choice: Choice, start: int, end: int) -> Plain:
        """Return the sampled tokens `start..end` and their weight versions, if requested."""
        if not self.body.return_token_ids:
            return {}
        versions = choice.request.versions[start:end]
        return {"token_ids": choice.token_ids[start:end], "token_versions": versions}


def new_id(kind: str) -> str:
    """Return a new id of a request or an object of this kind."""
    return f"{kind}_{uuid.uuid4().hex}"
