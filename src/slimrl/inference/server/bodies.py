"""Defines and validates the bodies of all routes, with the bounds that `/openapi.json` documents.

Types are strict (the text "3" is not accepted as a number). Unknown fields are ignored, as OpenAI's servers do. Fields
of OpenAI's that this server does not support only accept the value that switches them off.
"""

from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, WithJsonSchema

MAX_CHOICES = 128
MAX_TOP = 20
INT64 = 2**63

T = TypeVar("T")
# Validation stops at the first bad item: millions of them would become as many errors, in gigabytes of memory.
Items = Annotated[list[T], Field(fail_fast=True)]
Some = Annotated[Items[T], Field(min_length=1)]
TokenId = Annotated[int, Field(ge=0, lt=2**31)]
TokenIds = Some[TokenId]
Stop = Annotated[str, Field(min_length=1, max_length=1024)]
Zero = Annotated[float, Field(ge=0, le=0)]
One = Annotated[float, Field(ge=1, le=1)]
Top = Annotated[int, Field(ge=0, le=MAX_TOP)]


def _true(value: bool) -> bool:
    if not value:
        raise ValueError("must be true")
    return value


def _false(value: bool) -> bool:
    if value:
        raise ValueError("must be false")
    return value


# `Literal[True]` would also accept 1, because 1 == True.
OnlyTrue = Annotated[bool, AfterValidator(_true), WithJsonSchema({"type": "boolean", "const": True})]
OnlyFalse = Annotated[bool, AfterValidator(_false), WithJsonSchema({"type": "boolean", "const": False})]


class Body(BaseModel):
    """A JSON object; unknown fields are ignored."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False, protected_namespaces=(), frozen=True)


class StreamOptions(Body):
    include_usage: bool | None = None


class Sampling(Body):
    """The sampling fields of all routes that sample."""

    n: int | None = Field(default=None, ge=1, le=MAX_CHOICES)
    temperature: float | None = Field(default=None, ge=0, le=100)
    top_p: float | None = Field(default=None, gt=0, le=1)
    top_k: int | None = Field(default=None, ge=-1, lt=2**31)
    min_p: float | None = Field(default=None, ge=0, lt=1)
    seed: int | None = Field(default=None, ge=-INT64, lt=INT64)
    stop: Stop | Annotated[Items[Stop], Field(max_length=128)] | None = None
    stop_token_ids: Annotated[Items[TokenId], Field(max_length=128)] | None = None
    min_tokens: int | None = Field(default=None, ge=0, lt=2**31)
    ignore_eos: bool | None = None
    include_stop_str_in_output: bool | None = None
    skip_special_tokens: bool | None = None
    prompt_logprobs: Top | None = None
    frequency_penalty: Zero | None = None
    presence_penalty: Zero | None = None
    repetition_penalty: One | None = None


class Generation(Sampling):
    """The fields that chat and completions share."""

    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    logit_bias: Annotated[dict[str, Any], Field(max_length=0)] | None = None
    return_token_ids: bool | None = None
    return_tokens_as_token_ids: bool | None = None


class TextFormat(Body):
    type: Literal["text"]


class CompletionBody(Generation):
    """`POST /v1/completions`."""

    prompt: str | TokenIds | Some[str] | Some[TokenIds]
    max_tokens: int | None = Field(default=None, ge=0, lt=2**31)
    logprobs: Top | None = None
    echo: bool | None = None
    best_of: int | None = Field(default=None, ge=1, le=MAX_CHOICES)
    add_special_tokens: bool | None = None
    suffix: None = None
    response_format: TextFormat | None = None


class TextPart(Body):
    type: Literal["text"]
    text: str


class CalledFunction(Body):
    """What a model has called; its arguments may be any JSON, as a model may have written anything."""

    name: str
    arguments: Any = "{}"


class ToolCall(Body):
    id: str | None = None
    type: Literal["function"] = "function"
    function: CalledFunction


class ChatMessage(Body):
    """One message of a conversation. Only an assistant's message may lack `content`."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | Items[TextPart] | None = None
    name: str | None = None
    tool_calls: Items[ToolCall] | None = None
    tool_call_id: str | None = None


class FunctionSpec(Body):
    name: str = Field(min_length=1)
    description: str | None = None
    parameters: dict[str, Any] | None = None


class Tool(Body):
    type: Literal["function"]
    function: FunctionSpec


class Rendering(Body):
    """The fields that control how the chat template renders messages."""

    tools: Items[Tool] | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    add_special_tokens: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None


class Conversation(Rendering):
    """A conversation to render."""

    messages: Some[ChatMessage]


class ChatBody(Generation, Conversation):
    """`POST /v1/chat/completions`."""

    max_tokens: int | None = Field(default=None, ge=1, lt=2**31)
    max_completion_tokens: int | None = Field(default=None, ge=1, lt=2**31)
    logprobs: bool | None = None
    top_logprobs: Top | None = None
    tool_choice: Literal["none", "auto"] | None = None
    parallel_tool_calls: OnlyTrue | None = None
    response_format: TextFormat | None = None


class ChatTokensBody(ChatBody):
    """`POST /v1/chat/completions/tokens`: as chat, but the prompt is `tokens`; `messages` are not rendered."""

    tokens: TokenIds


class TokenizeBody(Rendering):
    """`POST /tokenize`: a prompt, or messages."""

    model: str | None = None
    prompt: str | None = None
    messages: Some[ChatMessage] | None = None
    return_token_strs: bool | None = None


class DetokenizeBody(Body):
    """`POST /detokenize`."""

    model: str | None = None
    tokens: Items[TokenId]


class GenerateSampling(Sampling):
    max_tokens: int | None = Field(default=None, ge=1, lt=2**31)
    logprobs: Top | None = None


class GenerateBody(Body):
    """`POST /inference/v1/generate`: token ids in, token ids out."""

    model: str | None = None
    request_id: str | None = None
    token_ids: TokenIds
    sampling_params: GenerateSampling = GenerateSampling()
    stream: OnlyFalse | None = None


class UpdateBody(Body):
    """`POST /update_weights`: a directory of safetensors in Hugging Face format, and the number of its weights."""

    weight_dir: str = Field(min_length=1)
    version: int = Field(ge=0, lt=INT64)


class LoadAdapterBody(Body):
    """`POST /load_lora_adapter`: a directory in PEFT's format. Without `version` it is the next number."""

    lora_name: str = Field(min_length=1)
    lora_path: str = Field(min_length=1)
    version: int | None = Field(default=None, ge=0, lt=INT64)


class UnloadAdapterBody(Body):
    """`POST /unload_lora_adapter`."""

    lora_name: str = Field(min_length=1)
    version: int | None = Field(default=None, ge=0, lt=INT64)
