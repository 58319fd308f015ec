"""Defines the replies for `/openapi.json`. The routes themselves return plain dictionaries of these shapes."""

from typing import Any, Literal

from pydantic import BaseModel

FinishReason = Literal["stop", "length", "tool_calls", "abort"]


class ErrorDetail(BaseModel):
    message: str
    type: str
    param: str | None
    code: str | None


class ErrorReply(BaseModel):
    error: ErrorDetail


class Model(BaseModel):
    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    root: str
    parent: str | None
    max_model_len: int


class ModelList(BaseModel):
    object: Literal["list"]
    data: list[Model]


class CachedTokens(BaseModel):
    cached_tokens: int


class Usage(BaseModel):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: CachedTokens


class PromptLogprob(BaseModel):
    logprob: float
    rank: int | None
    decoded_token: str


PromptLogprobs = list[dict[str, PromptLogprob] | None]


class TopLogprob(BaseModel):
    token: str
    logprob: float
    bytes: list[int]


class TokenLogprob(TopLogprob):
    top_logprobs: list[TopLogprob]


class ChatLogprobs(BaseModel):
    content: list[TokenLogprob]


class FunctionReply(BaseModel):
    name: str
    arguments: str


class ToolCallReply(BaseModel):
    id: str
    type: Literal["function"]
    function: FunctionReply


class AssistantMessage(BaseModel):
    role: Literal["assistant"]
    content: str | None
    tool_calls: list[ToolCallReply] | None = None


class ChatChoice(BaseModel):
    index: int
    message: AssistantMessage
    finish_reason: FinishReason
    logprobs: ChatLogprobs | None
    token_ids: list[int] | None = None
    token_versions: list[int] | None = None


class ChatReply(BaseModel):
    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage
    prompt_token_ids: list[int] | None = None
    prompt_logprobs: PromptLogprobs | None = None


class CompletionLogprobs(BaseModel):
    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None] | None
    text_offset: list[int]


class CompletionChoice(BaseModel):
    index: int
    text: str
    finish_reason: Literal["stop", "length", "abort"]
    logprobs: CompletionLogprobs | None
    prompt_token_ids: list[int] | None = None
    token_ids: list[int] | None = None
    token_versions: list[int] | None = None
    prompt_logprobs: PromptLogprobs | None = None


class CompletionReply(BaseModel):
    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: Usage
    prompt_token_ids: list[int] | None = None


class TokenizeReply(BaseModel):
    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None = None


class DetokenizeReply(BaseModel):
    prompt: str


class VersionSpan(BaseModel):
    version: str
    start: int
    end: int


class GeneratedChoice(BaseModel):
    index: int
    token_ids: list[int]
    token_versions: list[int]
    weight_versions: list[VersionSpan]
    finish_reason: Literal["stop", "length", "abort"]
    logprobs: ChatLogprobs | None


class GenerateReply(BaseModel):
    request_id: str
    choices: list[GeneratedChoice]
    prompt_logprobs: PromptLogprobs | None


class HealthReply(BaseModel):
    status: Literal["ok"]
    model: str


class StatusReply(BaseModel):
    status: str
    version: int


class PausedReply(BaseModel):
    is_paused: bool


class AbortReply(BaseModel):
    status: Literal["aborted"]
    aborted: int


class MessageReply(BaseModel):
    message: str


class WeightInfo(BaseModel):
    weight_version: str


class NewVersionReply(BaseModel):
    success: bool
    new_version: str


class CheckReply(BaseModel):
    checksums: dict[str, str] | None = None
    match: bool | None = None
    mismatches: list[str] | None = None
    status: Literal["reset"] | None = None


class TokenizerInfo(BaseModel):
    tokenizer_class: str
    bos_token: str | None
    eos_token: str | None
    pad_token: str | None
    chat_template: str | None


DOCUMENTED_ERRORS: dict[int | str, dict[str, Any]] = {
    "4XX": {"model": ErrorReply, "description": "The request is refused, and why."},
    "5XX": {"model": ErrorReply, "description": "The server is not ready, or at fault."},
}
