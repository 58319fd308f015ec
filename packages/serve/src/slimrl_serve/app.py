"""Defines the HTTP routes in one table. `/openapi.json` lists them all, and `docs/server.md` explains them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Depends, FastAPI
from fastapi.responses import JSONResponse, PlainTextResponse
from fastapi.security import HTTPBearer

from slimrl.io.http_access import Access
from slimrl_serve.admin import Administration
from slimrl_serve.endpoints import Endpoints
from slimrl_serve.errors import documented_errors, install_handlers
from slimrl_serve.guard import MAX_BODY_BYTES, TextRoute, refuse
from slimrl_serve.http.guard import Guard
from slimrl_serve.service import Service
from slimrl_serve.transfer import WeightTransfer

CHAT_FIELDS = "id object created model choices usage"
EVENTS = {"text/event-stream": {"schema": {"type": "string"}}}
# An event of the dialects has a name besides its data, so it is documented as an object.
EVENT = {"type": "object", "properties": {"event": {"type": "string"}, "data": {"type": "string"}}}
NAMED_EVENTS = {"text/event-stream": {"schema": EVENT}}


@dataclass(frozen=True, slots=True)
class Route:
    """One route. `fields` are the fields of every JSON reply; None means a text reply. `events` documents the reply of
    a route that can stream."""

    method: str
    path: str
    endpoint: Callable[..., Any]
    fields: str | None = None
    events: dict[str, Any] | None = None

    def responses(self) -> dict[int | str, dict[str, Any]]:
        """Return the documented responses."""
        content: dict[str, Any] = {"text/plain": {"schema": {"type": "string"}}}
        if self.fields is not None:
            names = self.fields.split()
            reply = {"type": "object", "required": names, "properties": {name: {} for name in names}}
            content = {"application/json": {"schema": reply}, **(self.events or {})}
        return {200: {"content": content}, **documented_errors(self.path)}

    def add_to(self, router: APIRouter | FastAPI) -> None:
        """Register the route."""
        router.add_api_route(
            self.path,
            self.endpoint,
            methods=[self.method],
            responses=self.responses(),
            response_model=None,
            response_class=PlainTextResponse if self.fields is None else JSONResponse,
        )


def make_app(service: Service) -> FastAPI:
    """Return the application around a service. While the model is loading, most routes answer with 503."""

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        service.thread.start(asyncio.get_running_loop())
        yield
        await asyncio.to_thread(service.thread.stop)

    app = FastAPI(title="slimrl inference server", lifespan=lifespan, docs_url=None, redoc_url=None)
    install_handlers(app)
    endpoints = Endpoints(service)
    Route("GET", "/health", endpoints.health, "status model").add_to(app)  # the only route that never needs a key
    # Only for the OpenAPI document: `Guard` checks the key.
    locked = [Depends(HTTPBearer(auto_error=False))] if service.config.api_key else []
    router = APIRouter(route_class=TextRoute, dependencies=locked)
    for route in (*_sampling_routes(endpoints), *_training_routes(Administration(service), WeightTransfer(service))):
        route.add_to(router)
    app.include_router(router)
    access = Access(service.config.api_key, "SLIMRL_API_KEY", key_header="x-api-key")
    app.add_middleware(Guard, access=access, max_body_bytes=MAX_BODY_BYTES, respond=refuse)
    return app


def _sampling_routes(do: Endpoints) -> list[Route]:
    """Return the routes that sample, translate, or describe the server."""
    model = "id object created owned_by root parent max_model_len"
    response = "id object created_at status error incomplete_details model output usage"
    message = "id type role model content stop_reason stop_sequence usage"
    tokenizer = "tokenizer_class bos_token eos_token pad_token chat_template"
    return [
        Route("GET", "/v1/models", do.models, "object data"),
        # A path, because names may contain slashes: `Qwen/Qwen3-0.6B`, or a directory.
        Route("GET", "/v1/models/{model_id:path}", do.model, model),
        Route("GET", "/metrics", do.metrics),
        Route("POST", "/v1/chat/completions", do.chat, CHAT_FIELDS, EVENTS),
        Route("POST", "/v1/chat/completions/tokens", do.chat_of_tokens, CHAT_FIELDS, EVENTS),
        Route("POST", "/v1/completions", do.completions, CHAT_FIELDS, EVENTS),
        Route("POST", "/v1/responses", do.create_response, response, NAMED_EVENTS),
        Route("GET", "/v1/responses/{response_id}", do.get_response, response),
        Route("DELETE", "/v1/responses/{response_id}", do.delete_response, "id object deleted"),
        Route("POST", "/v1/messages", do.create_message, message, NAMED_EVENTS),
        Route("POST", "/v1/messages/count_tokens", do.count_tokens, "input_tokens"),
        Route("POST", "/tokenize", do.tokenize, "count max_model_len tokens token_strs"),
        Route("POST", "/detokenize", do.detokenize, "prompt"),
        Route("GET", "/tokenizer_info", do.tokenizer_info, tokenizer),
        Route("POST", "/inference/v1/generate", do.generate, "request_id choices prompt_logprobs"),
    ]


def _training_routes(administration: Administration, transfer: WeightTransfer) -> list[Route]:
    """Return the routes that stop sampling or change the weights."""
    return [
        Route("POST", "/pause", administration.pause, "status version"),
        Route("POST", "/resume", administration.resume, "status version"),
        Route("GET", "/is_paused", administration.is_paused, "is_paused"),
        Route("POST", "/inference/v1/abort_requests", administration.abort_requests, "status aborted"),
        Route("POST", "/load_lora_adapter", administration.load_lora_adapter),
        Route("POST", "/unload_lora_adapter", administration.unload_lora_adapter),
        Route("POST", "/init_weight_transfer_engine", transfer.init_weight_transfer_engine, "message"),
        Route("POST", "/start_weight_update", transfer.start_weight_update, "message"),
        Route("POST", "/update_weights", transfer.update_weights, "status version"),
        Route("POST", "/finish_weight_update", transfer.finish_weight_update, "message"),
        Route("GET", "/weight_info", transfer.weight_info, "weight_version"),
        Route("POST", "/update_weight_version", transfer.update_weight_version, "success new_version"),
        Route("POST", "/weight_checker", transfer.weight_checker, ""),
    ]
