"""Defines and validates the bodies of all routes, with the bounds that `/openapi.json` documents.

Types are strict (the text "3" is not accepted as a number). An unknown field of a request is refused, because it may be
meant to constrain the reply. Unknown fields of messages and tools are ignored.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from slimrl.errors import nearest

LONGEST_NAME = 64  # characters of an unknown name that an error repeats
MAX_CHOICES = 128
MAX_TOP = 20
INT64 = 2**63
# Fields of OpenAI and vLLM that are not supported here, each with the value that disables the field.
OFF = {
    "allowed_token_ids": [],
    "bad_words": [],
    "best_of": 1,
    "continue_final_message": False,
    "flat_logprobs": False,
    "frequency_penalty": 0,
    "length_penalty": 1,
    "logit_bias": {},
    "min_tokens": 0,
    "parallel_tool_calls": True,
    "presence_penalty": 0,
    "repetition_penalty": 1,
    "response_format": {"type": "text"},
    "stream": False,
    "use_beam_search": False,
}
# Fields of OpenAI and vLLM that never change a reply.
IGNORED = {
    *("metadata", "prediction", "prompt_cache_key", "prompt_cache_retention", "safety_identifier", "service_tier"),
    *("cache_salt", "detokenize", "disable_fallback", "include_obfuscation", "output_kind", "priority", "request_id"),
    *("skip_clone", "skip_reading_prefix_cache", "spaces_between_special_tokens", "store", "user"),
}

T = TypeVar("T")
# Validation stops at the first bad item, because millions of bad items would give millions of errors, in gigabytes.
Items = Annotated[list[T], Field(fail_fast=True)]
Some = Annotated[Items[T], Field(min_length=1)]
TokenId = Annotated[int, Field(ge=0, lt=2**31)]
TokenIds = Some[TokenId]
AtLeastOne = Annotated[int, Field(ge=1, lt=2**31)]
Text = Annotated[str, Field(min_length=1)]
Stop = Annotated[str, Field(min_length=1, max_length=1024)]
Top = Annotated[int, Field(ge=0, le=MAX_TOP)]


class Body(BaseModel):
    """A JSON object; unknown fields are ignored."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False, protected_namespaces=(), frozen=True)


class Request(Body):
    """The body of a request, or an object in the body. Unknown fields are refused, unless they are null."""

    model_config = ConfigDict(json_schema_extra={"additionalProperties": {"type": "null"}})

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown(cls, content: Any) -> Any:
        if not isinstance(content, Mapping):
            return content
        known = cls.model_fields.keys()
        for key, value in content.items():
            if key in known or key in IGNORED or value is None or (key in OFF and value == OFF[key]):
                continue
            name = str(key)[:LONGEST_NAME]
            similar, _, _ = nearest(name, known).partition(" Known:")
            raise PydanticCustomError(
                "unknown_field",
                "{name} is not supported here, so the reply would be as if it were not there.{similar} Leave it out.",
                {"name": name, "similar": similar},
            )
        return content


class StreamOptions(Request):
    include_usage: bool | None = None


class Sampling(Request):
    """The sampling fields of all routes that sample."""

    n: int | None = Field(default=None, ge=1, le=MAX_CHOICES)
    temperature: float | None = Field(default=None, ge=0, le=100)
    top_p: float | None = Field(default=None, gt=0, le=1)
    top_k: int | None = Field(default=None, ge=-1, lt=2**31)
    min_p: float | None = Field(default=None, ge=0, lt=1)
    seed: int | None = Field(default=None, ge=-INT64, lt=INT64)
    stop: Stop | Annotated[Items[Stop], Field(max_length=128)] | None = None
    stop_token_ids: Annotated[Items[TokenId], Field(max_length=128)] | None = None
    ignore_eos: bool | None = None
    include_stop_str_in_output: bool | None = None
    skip_special_tokens: bool | None = None


class Generation(Sampling):
    """The fields that chat and completions share."""

    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    return_token_ids: bool | None = None
    return_tokens_as_token_ids: bool | None = None

    @model_validator(mode="after")
    def _check_stream(self) -> "Generation":
        if self.stream_options is not None and not self.stream:
            raise ValueError("stream_options may only be set together with stream = true")
        return self


class CompletionBody(Generation):
    """The body of `POST /v1/completions`."""

    prompt: str | TokenIds | Some[str] | Some[TokenIds]
    max_tokens: AtLeastOne | None = None
    logprobs: Top | None = None
    echo: bool | None = None
    add_special_tokens: bool | None = None


class TextPart(Body):
    type: Literal["text"]
    text: str


class CalledFunction(Body):
    """A function call by a model. The arguments may be any JSON, because a model can write invalid arguments."""

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
    name: Text
    description: str | None = None
    parameters: dict[str, Any] | None = None


class Tool(Body):
    type: Literal["function"]
    function: FunctionSpec


class Rendering(Request):
    """The fields that control how the chat template renders messages."""

    tools: Items[Tool] | None = None
    add_generation_prompt: bool | None = None
    add_special_tokens: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None


class ChatBody(Generation, Rendering):
    """The body of `POST /v1/chat/completions`."""

    messages: Some[ChatMessage]
    max_tokens: AtLeastOne | None = None
    max_completion_tokens: AtLeastOne | None = None
    logprobs: bool | None = None
    top_logprobs: Top | None = None
    tool_choice: Literal["none", "auto"] | None = None


class ChatTokensBody(ChatBody):
    """The body of `POST /v1/chat/completions/tokens`. The prompt is `tokens`, and `messages` are not rendered."""

    tokens: TokenIds


class TokenizeBody(Rendering):
    """The body of `POST /tokenize`: a prompt, or messages."""

    model: str | None = None
    prompt: str | None = None
    messages: Some[ChatMessage] | None = None


class GenerateSampling(Sampling):
    max_tokens: AtLeastOne | None = None
    logprobs: Top | None = None


class GenerateBody(Request):
    """The body of `POST /inference/v1/generate`: the token ids of a prompt, and sampling parameters."""

    model: str | None = None
    request_id: str | None = Field(default=None, max_length=1024)
    token_ids: TokenIds
    sampling_params: GenerateSampling = GenerateSampling()


class UpdateBody(Request):
    """The body of `POST /update_weights`. The directory has all weights as safetensors in Hugging Face format, or only
    an adapter in PEFT's format."""

    weight_dir: Text
    version: int = Field(ge=0, lt=INT64)
