"""Defines the HTTP routes. `/openapi.json` lists them all, and `docs/server.md` explains them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Query, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from fastapi.security import HTTPBearer
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from slimrl.io.http_access import Access
from slimrl_serve import bodies, replies
from slimrl_serve.admin import Administration
from slimrl_serve.chat import open_chat
from slimrl_serve.completions import open_completions
from slimrl_serve.dialects.routes import message_routes, response_routes
from slimrl_serve.errors import install_handlers
from slimrl_serve.events import EventStream, unless_gone
from slimrl_serve.guard import MAX_BODY_BYTES, TextRoute, respond
from slimrl_serve.http.guard import Guard
from slimrl_serve.service import Service
from slimrl_serve.tokens import detokenize, generate, open_generation, tokenize, tokenizer_info
from slimrl_serve.transfer import WeightTransfer
from slimrl_serve.worker import PauseMode

Documented = dict[int | str, dict[str, Any]]


def make_app(service: Service) -> FastAPI:
    """The application around a service. It answers while the model is still loading: with 503 on most routes."""

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        service.thread.start(asyncio.get_running_loop())
        yield
        await asyncio.to_thread(service.thread.stop)

    app = FastAPI(title="slimrl inference server", lifespan=lifespan, docs_url=None, redoc_url=None)
    install_handlers(app)
    # Only for the OpenAPI document: `Guard` checks the key.
    locked = [Depends(HTTPBearer(auto_error=False))] if service.config.api_key else []
    app.include_router(_health_route(service))  # the only route that never needs a key
    transfer = WeightTransfer(service)
    administration = Administration(service, transfer)
    for router in (
        _state_routes(service),
        _openai_routes(service),
        response_routes(service),
        message_routes(service),
        _token_routes(service),
        _sampling_routes(service, administration),
        _weight_routes(service, administration, transfer),
        _adapter_routes(administration),
    ):
        app.include_router(router, dependencies=locked)
    access = Access(service.config.api_key, "SLIMRL_API_KEY", key_header="x-api-key")
    app.add_middleware(Guard, access=access, max_body_bytes=MAX_BODY_BYTES, respond=respond)
    return app


def _json(model: Any) -> Documented:
    """The documented responses of a route that answers with JSON."""
    return {200: {"model": model}, **replies.DOCUMENTED_ERRORS}


def _json_or_events(model: Any) -> Documented:
    """The documented responses of a route that answers with JSON or with server-sent events."""
    events = {"content": {"text/event-stream": {"schema": {"type": "string"}}}}
    return {200: {"model": model, **events}, **replies.DOCUMENTED_ERRORS}


def _text() -> Documented:
    """The documented responses of a route that answers with text; errors are JSON, which FastAPI would not assume."""
    error = {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorReply"}}}
    errors = {
        status: {"description": documented["description"], "content": error}
        for status, documented in replies.DOCUMENTED_ERRORS.items()
    }
    return {200: {"content": {"text/plain": {"schema": {"type": "string"}}}}, **errors}


def _health_route(service: Service) -> APIRouter:
    router = APIRouter(route_class=TextRoute)

    @router.get("/health", responses=_json(replies.HealthReply))
    async def health() -> Response:
        """Whether requests can be answered: 200, or 503 while the model is loading."""
        service.check_ready()
        return JSONResponse({"status": "ok", "model": service.name})

    return router


def _state_routes(service: Service) -> APIRouter:
    router = APIRouter(route_class=TextRoute)

    @router.get("/v1/models", responses=_json(replies.ModelList))
    async def models() -> Response:
        """The model that is served."""
        return JSONResponse({"object": "list", "data": [service.card()]})

    # A path, because names have slashes: `Qwen/Qwen3-0.6B`, or a directory.
    @router.get("/v1/models/{model_id:path}", responses=_json(replies.Model))
    async def model(model_id: str) -> Response:
        """The served model, asked for by its name."""
        service.check_ready()
        service.check_model(model_id)
        return JSONResponse(service.card())

    @router.get("/metrics", response_class=PlainTextResponse, responses=_text())
    async def metrics() -> Response:
        """The server's metrics in Prometheus' text format."""
        return Response(generate_latest(service.metrics.registry), media_type=CONTENT_TYPE_LATEST)

    return router


def _openai_routes(service: Service) -> APIRouter:
    router = APIRouter(route_class=TextRoute)

    async def answer_chat(request: Request, body: bodies.ChatBody) -> Response:
        chat = await open_chat(service, body)
        chat.generation.start()
        if body.stream:
            # The status line is sent before the first token, so later errors are events, see `EventStream`.
            return EventStream(chat.chunks(), chat.generation.close)
        return JSONResponse(await unless_gone(request, chat.reply(), chat.generation.close))

    @router.post("/v1/chat/completions", responses=_json_or_events(replies.ChatReply))
    async def chat_completions(request: Request, body: bodies.ChatBody) -> Response:
        """A reply to a conversation."""
        return await answer_chat(request, body)

    @router.post("/v1/chat/completions/tokens", responses=_json_or_events(replies.ChatReply))
    async def chat_completions_of_tokens(request: Request, body: bodies.ChatTokensBody) -> Response:
        """A reply to a prompt of token ids."""
        return await answer_chat(request, body)

    @router.post("/v1/completions", responses=_json_or_events(replies.CompletionReply))
    async def completions(request: Request, body: bodies.CompletionBody) -> Response:
        """Continuations of prompts."""
        opened = await open_completions(service, body)
        opened.generation.start()
        if body.stream:
            return EventStream(opened.chunks(), opened.generation.close)
        return JSONResponse(await unless_gone(request, opened.reply(), opened.generation.close))

    return router


def _token_routes(service: Service) -> APIRouter:
    router = APIRouter(route_class=TextRoute)

    @router.post("/tokenize", responses=_json(replies.TokenizeReply))
    async def tokenize_prompt(body: bodies.TokenizeBody) -> Response:
        """Token ids of a prompt or of messages."""
        return JSONResponse(await tokenize(service, body))

    @router.post("/detokenize", responses=_json(replies.DetokenizeReply))
    async def detokenize_tokens(body: bodies.DetokenizeBody) -> Response:
        """The text of token ids."""
        return JSONResponse(detokenize(service, body))

    @router.get("/tokenizer_info", responses=_json(replies.TokenizerInfo))
    async def tell_tokenizer() -> Response:
        """Special tokens and the chat template."""
        return JSONResponse(tokenizer_info(service))

    @router.post("/inference/v1/generate", responses=_json(replies.GenerateReply))
    async def generate_tokens(request: Request, body: bodies.GenerateBody) -> Response:
        """Token ids in, token ids out."""
        generation = await open_generation(service, body)
        generation.start()
        return JSONResponse(await unless_gone(request, generate(service, body, generation), generation.close))

    return router


def _sampling_routes(service: Service, administration: Administration) -> APIRouter:
    router = APIRouter(route_class=TextRoute)

    @router.post("/pause", responses=_json(replies.StatusReply))
    async def pause(
        mode: PauseMode = "keep",
        clear_cache: Annotated[bool, Query(description="without effect, as in vLLM: new weights clear it")] = True,
    ) -> Response:
        """Stop sampling until `/resume`: requests under way wait (`keep`), are waited for (`wait`), or end with what
        they have (`abort`)."""
        return JSONResponse(await administration.pause(mode))

    @router.post("/resume", responses=_json(replies.StatusReply))
    async def resume() -> Response:
        """Continue sampling."""
        return JSONResponse(await administration.resume())

    @router.get("/is_paused", responses=_json(replies.PausedReply))
    async def is_paused() -> Response:
        """Whether sampling has stopped. The engine answers, so that this tells whether it is alive."""
        return JSONResponse({"is_paused": await administration.is_paused()})

    @router.post("/inference/v1/abort_requests", responses=_json(replies.AbortReply))
    async def abort_requests(body: bodies.AbortBody) -> Response:
        """End requests with the tokens that they have; their `finish_reason` is `abort`."""
        return JSONResponse(await administration.abort(body))

    return router


def _weight_routes(service: Service, administration: Administration, transfer: WeightTransfer) -> APIRouter:
    router = APIRouter(route_class=TextRoute)

    @router.post("/init_weight_transfer_engine", responses=_json(replies.MessageReply))
    async def init_weight_transfer_engine(body: bodies.InitTransferBody, request: Request) -> Response:
        """Join the process group of a trainer that broadcasts weights, until it leaves; directories need `{}`."""
        await unless_gone(request, transfer.init(body.init_info))
        return JSONResponse({"message": "Weight transfer initialized"})

    @router.post("/start_weight_update", responses=_json(replies.MessageReply))
    async def start_weight_update() -> Response:
        """Begin an update in several calls."""
        await transfer.start()
        return JSONResponse({"message": "Weight update started"})

    @router.post("/update_weights", responses=_json(replies.StatusReply))
    async def update_weights(body: bodies.AnyUpdateBody, request: Request) -> Response:
        """Replace the weights; running sequences go on with the new ones. With `update_info` after the finish only."""
        if isinstance(body, bodies.UpdateBody):
            return JSONResponse(await administration.update_weights(body))
        await unless_gone(request, transfer.receive(body.update_info), transfer.break_off)
        return JSONResponse({"status": "received", "version": service.engine.version})

    @router.post("/finish_weight_update", responses=_json(replies.MessageReply))
    async def finish_weight_update(body: bodies.FinishBody | None = None) -> Response:
        """Sample from the received weights from now on, as `weight_version`."""
        version = body.weight_version if body else None
        await transfer.finish(None if version is None else int(version))
        return JSONResponse({"message": "Weight update finished"})

    @router.get("/weight_info", responses=_json(replies.WeightInfo))
    async def weight_info() -> Response:
        """The version of the weights, `default` until one was given."""
        service.check_ready()
        return JSONResponse({"weight_version": service.version_name(service.engine.version)})

    @router.post("/update_weight_version", responses=_json(replies.NewVersionReply))
    async def update_weight_version(body: bodies.NewVersionBody) -> Response:
        """Give the present weights another version."""
        await transfer.set_version(int(body.new_version))
        return JSONResponse({"success": True, "new_version": body.new_version})

    @router.post("/weight_checker", responses=_json(replies.CheckReply))
    async def weight_checker(body: bodies.CheckBody) -> Response:
        """Checksums of all weights, a comparison with such, or zeros as weights."""
        return JSONResponse(await transfer.check(body))

    return router


def _adapter_routes(administration: Administration) -> APIRouter:
    router = APIRouter(route_class=TextRoute)

    @router.post("/load_lora_adapter", response_class=PlainTextResponse, responses=_text())
    async def load_lora_adapter(body: bodies.LoadAdapterBody) -> Response:
        """Merge a LoRA adapter into the weights."""
        return PlainTextResponse(await administration.load_adapter(body))

    @router.post("/unload_lora_adapter", response_class=PlainTextResponse, responses=_text())
    async def unload_lora_adapter(body: bodies.UnloadAdapterBody) -> Response:
        """Restore the weights from before the adapter was merged."""
        return PlainTextResponse(await administration.unload_adapter(body))

    return router
