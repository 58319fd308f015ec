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
from slimrl_serve import tokens
from slimrl_serve.bodies import ChatBody, ChatTokensBody, CompletionBody, GenerateBody
from slimrl_serve.chat import open_chat
from slimrl_serve.completions import open_completions
from slimrl_serve.errors import ERRORS, install_handlers
from slimrl_serve.guard import MAX_BODY_BYTES, TextRoute, refuse
from slimrl_serve.http.guard import Guard
from slimrl_serve.reply import answer
from slimrl_serve.service import Served, Service, ready_service
from slimrl_serve.transfer import WeightTransfer

CHAT_FIELDS = "id object created model choices usage"
MODEL_FIELDS = "id object created owned_by root parent max_model_len"
TOKENIZER_FIELDS = "tokenizer_class bos_token eos_token pad_token chat_template"
TEXT = {"schema": {"type": "string"}}


# Large replies are returned as a `JSONResponse`, because FastAPI would first copy a dict.


async def health(service: Served) -> dict[str, Any]:
    """Report that requests can be answered; the status is 503 while the model is loading."""
    return {"status": "ok", "model": service.name}


async def models(service: Served) -> dict[str, Any]:
    """Return the served model."""
    return {"object": "list", "data": [service.card()]}


async def model(model_id: str, service: Served) -> dict[str, Any]:
    """Return the served model by its name."""
    service.check_model(model_id)
    return service.card()


async def metrics(request: Request) -> Response:
    """Return the server's metrics in Prometheus' text format."""
    return Response(generate_latest(request.app.state.service.metrics.registry), media_type=CONTENT_TYPE_LATEST)


async def chat(request: Request, service: Served, body: ChatBody) -> Response:
    """Reply to a conversation."""
    reply = await open_chat(service, body)
    return await answer(request, reply.generation, reply.chunks() if body.stream else reply.whole())


async def chat_of_tokens(request: Request, service: Served, body: ChatTokensBody) -> Response:
    """Reply to a prompt of token ids."""
    return await chat(request, service, body)


async def completions(request: Request, service: Served, body: CompletionBody) -> Response:
    """Continue prompts."""
    reply = await open_completions(service, body)
    return await answer(request, reply.generation, reply.chunks() if body.stream else reply.whole())


async def generate(request: Request, service: Served, body: GenerateBody) -> Response:
    """Sample token ids from token ids."""
    generation = await tokens.open_generation(service, body)
    return await answer(request, generation, tokens.reply_to(generation, body.sampling_params))


async def pause(service: Served, mode: Literal["keep"] = "keep") -> dict[str, Any]:
    """Stop sampling until `/resume`; running requests wait."""
    await service.thread.set_paused(True)
    return {"status": "paused", "version": service.engine.version}


async def resume(service: Served) -> dict[str, Any]:
    """Continue sampling."""
    await service.thread.set_paused(False)
    return {"status": "running", "version": service.engine.version}


async def is_paused(service: Served) -> dict[str, Any]:
    """Report if sampling has stopped. The engine itself answers, so a reply shows that the engine is alive."""
    return {"is_paused": await service.thread.call(lambda engine: service.thread.paused)}


def make_app(service: Service) -> FastAPI:
    """Return the application around a service. While the model is loading, most routes answer with 503."""

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        service.thread.start(asyncio.get_running_loop())
        yield
        await asyncio.to_thread(service.thread.stop)

    app = FastAPI(title="slimrl inference server", lifespan=lifespan, docs_url=None, redoc_url=None)
    install_handlers(app)
    app.state.service, weights = service, WeightTransfer(service)
    _add(app, "GET", "/health", health, "status model")  # the only route that never needs a key
    _add(app, "GET", "/metrics", metrics, "")
    # `HTTPBearer` is only for the OpenAPI document: `Guard` checks the key.
    locked = [Depends(HTTPBearer(auto_error=False))] if service.config.api_key else []
    router = APIRouter(route_class=TextRoute, dependencies=[Depends(ready_service), *locked])
    for method, path, endpoint, fields in (
        ("GET", "/v1/models", models, "object data"),
        # The parameter is a path, because names may contain slashes: `Qwen/Qwen3-0.6B`, or a directory.
        ("GET", "/v1/models/{model_id:path}", model, MODEL_FIELDS),
        ("POST", "/v1/chat/completions", chat, CHAT_FIELDS),
        ("POST", "/v1/chat/completions/tokens", chat_of_tokens, CHAT_FIELDS),
        ("POST", "/v1/completions", completions, CHAT_FIELDS),
        ("POST", "/inference/v1/generate", generate, "request_id choices"),
        ("POST", "/tokenize", tokens.tokenize, "count max_model_len tokens token_strs"),
        ("POST", "/detokenize", tokens.detokenize, "prompt"),
        ("GET", "/tokenizer_info", tokens.tokenizer_info, TOKENIZER_FIELDS),
        ("POST", "/pause", pause, "status version"),
        ("POST", "/resume", resume, "status version"),
        ("GET", "/is_paused", is_paused, "is_paused"),
        ("POST", "/init_weight_transfer_engine", weights.init_weight_transfer_engine, "message"),
        ("POST", "/start_weight_update", weights.start_weight_update, "message"),
        ("POST", "/update_weights", weights.update_weights, "status version"),
        ("POST", "/finish_weight_update", weights.finish_weight_update, "message"),
        ("GET", "/weight_info", weights.weight_info, "weight_version"),
        ("POST", "/weight_checker", weights.weight_checker, "checksums"),
    ):
        _add(router, method, path, endpoint, fields)
    app.include_router(router)
    access = Access(service.config.api_key, "SLIMRL_API_KEY")
    app.add_middleware(Guard, access=access, max_body_bytes=MAX_BODY_BYTES, respond=refuse)
    return app


def _add(router: APIRouter | FastAPI, method: str, path: str, endpoint: Callable[..., Any], fields: str) -> None:
    """Add a route. `fields` are the documented fields of its JSON reply. Without fields, the reply is text."""
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
