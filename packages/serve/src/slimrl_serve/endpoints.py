"""Implements the routes that sample, translate between text and tokens, or describe the server."""

from typing import Any

from fastapi import Request
from fastapi.responses import JSONResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from slimrl_serve import bodies, tokens
from slimrl_serve.chat import open_chat
from slimrl_serve.completions import open_completions
from slimrl_serve.dialects import messages, responses
from slimrl_serve.dialects.message_bodies import CountBody, MessagesBody
from slimrl_serve.dialects.response_bodies import ResponseBody
from slimrl_serve.dialects.response_store import ResponseStore
from slimrl_serve.errors import ApiError
from slimrl_serve.events import answer
from slimrl_serve.service import Service


class Endpoints:
    """The functions behind the routes. They return large replies as JSON, because FastAPI would copy them first."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._store = ResponseStore()

    async def health(self) -> dict[str, Any]:
        """Report if requests can be answered: 200, or 503 while the model is loading."""
        self._service.check_ready()
        return {"status": "ok", "model": self._service.name}

    async def models(self) -> dict[str, Any]:
        """Return the served model."""
        return {"object": "list", "data": [self._service.card()]}

    async def model(self, model_id: str) -> dict[str, Any]:
        """Return the served model by its name."""
        self._service.check_ready()
        self._service.check_model(model_id)
        return self._service.card()

    async def metrics(self) -> Response:
        """Return the server's metrics in Prometheus' text format."""
        return Response(generate_latest(self._service.metrics.registry), media_type=CONTENT_TYPE_LATEST)

    async def chat(self, request: Request, body: bodies.ChatBody) -> Response:
        """Reply to a conversation."""
        return await answer(request, await open_chat(self._service, body), body.stream)

    async def chat_of_tokens(self, request: Request, body: bodies.ChatTokensBody) -> Response:
        """Reply to a prompt of token ids."""
        return await answer(request, await open_chat(self._service, body), body.stream)

    async def completions(self, request: Request, body: bodies.CompletionBody) -> Response:
        """Continue prompts."""
        return await answer(request, await open_completions(self._service, body), body.stream)

    async def create_response(self, request: Request, body: ResponseBody) -> Response:
        """Reply to a conversation, in the form of OpenAI's Responses."""
        return await answer(request, await responses.open_response(self._service, self._store, body), body.stream)

    async def get_response(self, response_id: str) -> dict[str, Any]:
        """Return a stored response."""
        self._service.check_ready()
        if (response := self._store.response(response_id)) is None:
            raise _not_stored()
        return response

    async def delete_response(self, response_id: str) -> dict[str, Any]:
        """Delete a response."""
        self._service.check_ready()
        if not self._store.remove(response_id):
            raise _not_stored()
        return {"id": response_id, "object": "response.deleted", "deleted": True}

    async def create_message(self, request: Request, body: MessagesBody) -> Response:
        """Reply to a conversation, in the form of Messages."""
        return await answer(request, await messages.open_message(self._service, body), body.stream)

    async def count_tokens(self, body: CountBody) -> dict[str, Any]:
        """Return the number of tokens of a prompt."""
        return await messages.count_tokens(self._service, body)

    async def tokenize(self, body: bodies.TokenizeBody) -> Response:
        """Return the token ids of a prompt or of messages."""
        return JSONResponse(await tokens.tokenize(self._service, body))

    async def detokenize(self, body: bodies.DetokenizeBody) -> dict[str, Any]:
        """Return the text of token ids."""
        return tokens.detokenize(self._service, body)

    async def tokenizer_info(self) -> dict[str, Any]:
        """Return the special tokens and the chat template."""
        return tokens.tokenizer_info(self._service)

    async def generate(self, request: Request, body: bodies.GenerateBody) -> Response:
        """Sample token ids from token ids."""
        return await answer(request, await tokens.open_generation(self._service, body), False)


def _not_stored() -> ApiError:
    return ApiError(404, "This response is not kept here: it was not stored, or it was long ago.", param="response_id")
