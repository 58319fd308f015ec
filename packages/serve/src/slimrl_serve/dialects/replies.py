"""Defines the replies of the dialects for `/openapi.json`. The routes return plain dictionaries of these shapes."""

from typing import Any, Literal

from pydantic import BaseModel

from slimrl_serve.replies import TokenLogprob


class OutputText(BaseModel):
    type: Literal["output_text"]
    text: str
    annotations: list[Any]
    logprobs: list[TokenLogprob]


class OutputMessage(BaseModel):
    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    status: Literal["completed", "incomplete"]
    content: list[OutputText]


class OutputCall(BaseModel):
    id: str
    type: Literal["function_call"]
    call_id: str
    name: str
    arguments: str
    status: Literal["completed"]


class IncompleteDetails(BaseModel):
    reason: Literal["max_output_tokens"]


class InputDetails(BaseModel):
    cached_tokens: int
    cache_write_tokens: int


class OutputDetails(BaseModel):
    reasoning_tokens: int


class ResponseUsage(BaseModel):
    input_tokens: int
    input_tokens_details: InputDetails
    output_tokens: int
    output_tokens_details: OutputDetails
    total_tokens: int


class ResponseReply(BaseModel):
    id: str
    object: Literal["response"]
    created_at: int
    status: Literal["completed", "incomplete", "cancelled"]
    background: bool
    error: None
    incomplete_details: IncompleteDetails | None
    instructions: str | None
    max_output_tokens: int | None
    model: str
    output: list[OutputMessage | OutputCall]
    parallel_tool_calls: bool
    previous_response_id: str | None
    reasoning: dict[str, None]
    store: bool
    temperature: float
    text: dict[str, Any]
    tool_choice: Any
    tools: list[dict[str, Any]]
    top_logprobs: int
    top_p: float
    truncation: Literal["disabled"]
    metadata: dict[str, str]
    usage: ResponseUsage


class DeletedResponse(BaseModel):
    id: str
    object: Literal["response.deleted"]
    deleted: bool


class WrittenText(BaseModel):
    type: Literal["text"]
    text: str


class WrittenCall(BaseModel):
    type: Literal["tool_use"]
    id: str
    name: str
    input: dict[str, Any]


class MessageUsage(BaseModel):
    input_tokens: int
    output_tokens: int
    cache_read_input_tokens: int
    cache_creation_input_tokens: int


class MessageReply(BaseModel):
    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[WrittenText | WrittenCall]
    stop_reason: Literal["end_turn", "max_tokens", "stop_sequence", "tool_use"]
    stop_sequence: str | None
    usage: MessageUsage


class CountReply(BaseModel):
    input_tokens: int


class MessagesError(BaseModel):
    type: str
    message: str


class MessagesErrorReply(BaseModel):
    type: Literal["error"]
    error: MessagesError
