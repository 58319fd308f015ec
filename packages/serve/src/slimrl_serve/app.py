"""Defines the HTTP routes. `/openapi.json` lists them all, and `docs/server.md` explains them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.responses import Response
from fastapi.security import HTTPBearer

from slimrl.io.http_access import Access
from slimrl_serve import tokens
from slimrl_serve.bodies import ChatBody, ChatTokensBody, CompletionBody, GenerateBody
from slimrl_serve.chat import open_chat
from slimrl_serve.completions import open_completions
from slimrl_serve.errors import install_handlers, refuse
from slimrl_serve.http.guard import Guard
from slimrl_serve.json_route import MAX_BODY_BYTES, JsonRoute
from slimrl_serve.reply import answer
from slimrl_serve.service import Served, Service, ready_service
from slimrl_serve.transfer import WeightTransfer

Plain = dict[str, Any]
JSON: Plain = {"content": {"application/json": {"schema": {"type": "object"}}}}
EITHER: Plain = {"content": {**JSON["content"], "text/event-stream": {"schema": {"type": "string"}}}}  # or a stream
ERRORS: dict[int | str, Plain] = {  # the error replies of every route, for `/openapi.json`
    "4XX": {"description": "The request is refused, and why.", **JSON},
    "5XX": {"description": "The server is not ready, or at fault.", **JSON},
}


async def health(service: Served) -> Plain:
    """Report that requests can be answered; the status is 503 while the model is loading."""
    return {"status": "ok", "model": service.name}


async def models(service: Served) -> Plain:
    """Return the served model."""
    return {"object": "list", "data": [service.card()]}


async def model(model_id: str, service: Served) -> Plain:
    """Return the served model, if `model_id` is its name."""
    service.check_model(model_id)
    return service.card()


async def chat(request: Request, service: Served, body: ChatBody) -> Response:
    """Reply to a conversation."""
    return await answer(request, await open_chat(service, body))


async def chat_of_tokens(request: Request, service: Served, body: ChatTokensBody) -> Response:
    """Reply to a prompt of token ids."""
    return await answer(request, await open_chat(service, body))


async def completions(request: Request, service: Served, body: CompletionBody) -> Response:
    """Continue prompts."""
    return await answer(request, await open_completions(service, body))


async def generate(request: Request, service: Served, body: GenerateBody) -> Response:
    """Continue a prompt of token ids, and return the sampled token ids."""
    return await answer(request, await tokens.open_generation(service, body))


async def is_paused(service: Served) -> Plain:
    """Answer as a running vLLM. The engine itself answers, so a reply shows that the engine is alive."""
    return {"is_paused": await service.thread.call(lambda engine: False)}


def make_app(service: Service) -> FastAPI:
    """Return the application around a service. While the model is loading, most routes answer with 503."""

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        service.thread.start(asyncio.get_running_loop())
        yield
        await asyncio.to_thread(service.thread.stop)

    app = FastAPI(title="slimrl inference server", lifespan=lifespan, docs_url=None, redoc_url=None, responses=ERRORS)
    install_handlers(app)
    app.state.service, weights = service, WeightTransfer(service)
    app.get("/health", responses={200: JSON}, response_model=None)(health)  # the only route that never needs a key
    # `HTTPBearer` is only for the OpenAPI document: `Guard` checks the key.
    locked = [Depends(HTTPBearer(auto_error=False))] if service.config.api_key else []
    router = APIRouter(route_class=JsonRoute, dependencies=[Depends(ready_service), *locked])
    for method, path, endpoint, content in (
        ("GET", "/v1/models", models, JSON),
        # The parameter is a path, because names may contain slashes: `Qwen/Qwen3-0.6B`, or a directory.
        ("GET", "/v1/models/{model_id:path}", model, JSON),
        ("POST", "/v1/chat/completions", chat, EITHER),
        ("POST", "/v1/chat/completions/tokens", chat_of_tokens, EITHER),
        ("POST", "/v1/completions", completions, EITHER),
        ("POST", "/inference/v1/generate", generate, JSON),
        ("POST", "/tokenize", tokens.tokenize, JSON),
        ("GET", "/is_paused", is_paused, JSON),
        ("POST", "/update_weights", weights.update_weights, JSON),
        ("GET", "/weight_info", weights.weight_info, JSON),
    ):
        # Without a `response_model`, FastAPI does not validate and copy the reply.
        router.add_api_route(path, endpoint, methods=[method], responses={200: content}, response_model=None)
    app.include_router(router)
    access = Access(service.config.api_key, "SLIMRL_API_KEY")
    app.add_middleware(Guard, access=access, max_body_bytes=MAX_BODY_BYTES, respond=refuse)
    return app
