"""Defines the routes of the dialects."""

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from slimrl_serve import replies
from slimrl_serve.dialects import replies as dialect_replies
from slimrl_serve.dialects.message_bodies import CountBody, MessagesBody
from slimrl_serve.dialects.messages import count_tokens, open_message
from slimrl_serve.dialects.response_bodies import ResponseBody
from slimrl_serve.dialects.response_store import ResponseStore
from slimrl_serve.dialects.responses import open_response
from slimrl_serve.errors import ApiError
from slimrl_serve.events import EventForm, EventStream, event_line, unless_gone
from slimrl_serve.guard import TextRoute
from slimrl_serve.service import Service

# An event has a name besides its data, and so is an object.
EVENT = {"type": "object", "properties": {"event": {"type": "string"}, "data": {"type": "string"}}}
EVENTS: dict[str, Any] = {"content": {"text/event-stream": {"schema": EVENT}}}
MESSAGES_ERRORS: dict[int | str, dict[str, Any]] = {
    status: {**documented, "model": dialect_replies.MessagesErrorReply}
    for status, documented in replies.DOCUMENTED_ERRORS.items()
}


def response_routes(service: Service) -> APIRouter:
    """OpenAI's Responses."""
    router, store = APIRouter(route_class=TextRoute), ResponseStore()
    one = {200: {"model": dialect_replies.ResponseReply}, **replies.DOCUMENTED_ERRORS}

    @router.post("/v1/responses", responses={**one, 200: {**one[200], **EVENTS}})
    async def create_response(request: Request, body: ResponseBody) -> Response:
        """A reply to a conversation, in the form of OpenAI's Responses."""
        opened = await open_response(service, store, body)
        generation = opened.chat.generation
        generation.start()
        if body.stream:
            form = EventForm(event_line, opened.writer.failure, b"")
            return EventStream(opened.events(), generation.close, form)
        return JSONResponse(await unless_gone(request, opened.reply(), generation.close))

    @router.get("/v1/responses/{response_id}", responses=one)
    async def get_response(response_id: str) -> Response:
        """A response that is kept."""
        service.check_ready()
        if (response := store.response(response_id)) is None:
            raise _not_kept()
        return JSONResponse(response)

    @router.delete(
        "/v1/responses/{response_id}",
        responses={200: {"model": dialect_replies.DeletedResponse}, **replies.DOCUMENTED_ERRORS},
    )
    async def delete_response(response_id: str) -> Response:
        """Forget a response."""
        service.check_ready()
        if not store.remove(response_id):
            raise _not_kept()
        return JSONResponse({"id": response_id, "object": "response.deleted", "deleted": True})

    return router


def _not_kept() -> ApiError:
    return ApiError(404, "This response is not kept here: it was not stored, or it was long ago.", param="response_id")


def message_routes(service: Service) -> APIRouter:
    """Messages, in which contents are blocks."""
    router = APIRouter(route_class=TextRoute)

    @router.post("/v1/messages", responses={200: {"model": dialect_replies.MessageReply, **EVENTS}, **MESSAGES_ERRORS})
    async def create_message(request: Request, body: MessagesBody) -> Response:
        """A reply to a conversation, in the form of Messages."""
        opened = await open_message(service, body)
        generation = opened.chat.generation
        generation.start()
        if body.stream:
            form = EventForm(event_line, opened.writer.failure, b"")
            return EventStream(opened.events(), generation.close, form)
        return JSONResponse(await unless_gone(request, opened.reply(), generation.close))

    @router.post("/v1/messages/count_tokens", responses={200: {"model": dialect_replies.CountReply}, **MESSAGES_ERRORS})
    async def count(body: CountBody) -> Response:
        """The number of tokens of a prompt."""
        return JSONResponse(await count_tokens(service, body))

    return router
