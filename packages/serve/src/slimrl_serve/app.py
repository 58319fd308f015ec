"""Defines the HTTP routes in one table. `/openapi.json` lists them all, and `docs/server.md` explains them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any, Literal

from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from fastapi.security import HTTPBearer
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from slimrl.io.http_access import Access
from slimrl_serve import bodies, tokens
from slimrl_serve.chat import open_chat
from slimrl_serve.completions import open_completions
from slimrl_serve.errors import ERRORS, install_handlers
from slimrl_serve.guard import MAX_BODY_BYTES, TextRoute, refuse
from slimrl_serve.http.guard import Guard
from slimrl_serve.reply import answer
from slimrl_serve.service import Service
from slimrl_serve.transfer import WeightTransfer

CHAT_FIELDS = "id object created model choices usage"
MODEL_FIELDS = "id object created owned_by root parent max_model_len"
TOKENIZER_FIELDS = "tokenizer_class bos_token eos_token pad_token chat_template"
TEXT = {"schema": {"type": "string"}}


class Endpoints:
    """The functions behind the routes. They return large replies as JSON, because FastAPI would copy them first."""

    def __init__(self, service: Service) -> None:
        self._service = service

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
        chat = await open_chat(self._service, body)
        return await answer(request, chat.generation, chat.chunks() if body.stream else chat.whole())

    async def chat_of_tokens(self, request: Request, body: bodies.ChatTokensBody) -> Response:
        """Reply to a prompt of token ids."""
        return await self.chat(request, body)

    async def completions(self, request: Request, body: bodies.CompletionBody) -> Response:
        """Continue prompts."""
        reply = await open_completions(self._service, body)
        return await answer(request, reply.generation, reply.chunks() if body.stream else reply.whole())

    async def generate(self, request: Request, body: bodies.GenerateBody) -> Response:
        """Sample token ids from token ids."""
        generation = await tokens.open_generation(self._service, body)
        return await answer(request, generation, tokens.reply_to(generation, body.sampling_params))

    async def tokenize(self, body: bodies.TokenizeBody) -> Response:
        """Return the token ids of a prompt or of messages."""
        return JSONResponse(await tokens.tokenize(self._service, body))

    async def detokenize(self, body: bodies.DetokenizeBody) -> dict[str, Any]:
        """Return the text of token ids."""
        return tokens.detokenize(self._service, body)

    async def tokenizer_info(self) -> dict[str, Any]:
        """Return the special tokens and the chat template."""
        return tokens.tokenizer_info(self._service)

    async def pause(self, mode: Literal["keep"] = "keep") -> dict[str, Any]:
        """Stop sampling until `/resume`; running requests wait."""
        return await self._set_paused("paused")

    async def resume(self) -> dict[str, Any]:
        """Continue sampling."""
        return await self._set_paused("running")

    async def _set_paused(self, status: str) -> dict[str, Any]:
        self._service.check_ready()
        await self._service.thread.set_paused(status == "paused")
        return {"status": status, "version": self._service.engine.version}

    async def is_paused(self) -> dict[str, Any]:
        """Report if sampling has stopped. The engine answers, so a reply shows that it is alive."""
        thread = self._service.thread
        self._service.check_ready()
        return {"is_paused": await thread.call(lambda engine: thread.paused)}


def make_app(service: Service) -> FastAPI:
    """Return the application around a service. While the model is loading, most routes answer with 503."""

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        service.thread.start(asyncio.get_running_loop())
        yield
        await asyncio.to_thread(service.thread.stop)

    app = FastAPI(title="slimrl inference server", lifespan=lifespan, docs_url=None, redoc_url=None)
    install_handlers(app)
    do, weights = Endpoints(service), WeightTransfer(service)
    _add(app, "GET", "/health", do.health, "status model")  # the only route that never needs a key
    # Only for the OpenAPI document: `Guard` checks the key.
    locked = [Depends(HTTPBearer(auto_error=False))] if service.config.api_key else []
    router = APIRouter(route_class=TextRoute, dependencies=locked)
    for method, path, endpoint, fields in (
        ("GET", "/v1/models", do.models, "object data"),
        # A path, because names may contain slashes: `Qwen/Qwen3-0.6B`, or a directory.
        ("GET", "/v1/models/{model_id:path}", do.model, MODEL_FIELDS),
        ("GET", "/metrics", do.metrics, ""),
        ("POST", "/v1/chat/completions", do.chat, CHAT_FIELDS),
        ("POST", "/v1/chat/completions/tokens", do.chat_of_tokens, CHAT_FIELDS),
        ("POST", "/v1/completions", do.completions, CHAT_FIELDS),
        ("POST", "/inference/v1/generate", do.generate, "request_id choices"),
        ("POST", "/tokenize", do.tokenize, "count max_model_len tokens token_strs"),
        ("POST", "/detokenize", do.detokenize, "prompt"),
        ("GET", "/tokenizer_info", do.tokenizer_info, TOKENIZER_FIELDS),
        ("POST", "/pause", do.pause, "status version"),
        ("POST", "/resume", do.resume, "status version"),
        ("GET", "/is_paused", do.is_paused, "is_paused"),
        ("POST", "/init_weight_transfer_engine", weights.init_weight_transfer_engine, "message"),
        ("POST", "/start_weight_update", weights.start_weight_update, "message"),
        ("POST", "/update_weights", weights.update_weights, "status version"),
        ("POST", "/finish_weight_update", weights.finish_weight_update, "message"),
        ("GET", "/weight_info", weights.weight_info, "weight_version"),
        ("POST", "/weight_checker", weights.weight_checker, "checksums"),
    ):
        _add(router, method, path, endpoint, fields)
    app.include_router(router)
    access = Access(service.config.api_key, "SLIMRL_API_KEY", key_header="x-api-key")
    app.add_middleware(Guard, access=access, max_body_bytes=MAX_BODY_BYTES, respond=refuse)
    return app


def _add(router: APIRouter | FastAPI, method: str, path: str, endpoint: Callable[..., Any], fields: str) -> None:
    """Add a route. `fields` are the documented fields of its JSON reply; without any, the reply is text."""
    names = fields.split()
    reply = {"type": "object", "required": names, "properties": {name: {} for name in names}}
    content: dict[str, Any] = {"application/json": {"schema": reply}} if names else {"text/plain": TEXT}
    if fields == CHAT_FIELDS:
        content["text/event-stream"] = TEXT
    router.add_api_route(
        path,
        endpoint,
        methods=[method],
        responses={200: {"content": content}, **ERRORS},
        response_model=None,
        response_class=JSONResponse if names else PlainTextResponse,
    )
