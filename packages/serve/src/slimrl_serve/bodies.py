"""Defines and validates the bodies of all routes, with the bounds that `/openapi.json` documents.

Types are strict (the text "3" is not accepted as a number). An unknown field of a request is refused, because it may be
meant to constrain the reply. Unknown fields of messages and tools are ignored.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from slimrl.errors import nearest
from slimrl.models.adapter import MAX_ALPHA, MAX_RANK

LONGEST_NAME = 64  # characters of an unknown name that an error repeats
MAX_CHOICES = 128
MAX_TOP = 20
MAX_BIASES, MAX_BIAS = 1024, 100
INT64 = 2**63
# Fields of OpenAI and vLLM that are not supported here, each with the value that disables the field.
OFF = {
    "allowed_token_ids": [],
    "bad_words": [],
    "disable_additional_properties": False,
    "disable_any_whitespace": False,
    "flat_logprobs": False,
    "length_penalty": 1,
    "packed": False,
    "stream": False,
    "use_beam_search": False,
}
# Fields of OpenAI and vLLM that never change a reply.
IGNORED = {
    *("metadata", "prediction", "prompt_cache_key", "prompt_cache_retention", "safety_identifier", "service_tier"),
    *("cache_salt", "detokenize", "disable_fallback", "include_obfuscation", "output_kind", "priority", "request_id"),
    *("packed_buffer_size_bytes", "packed_num_buffers", "skip_clone", "skip_reading_prefix_cache", "store", "user"),
    "spaces_between_special_tokens",
}

T = TypeVar("T")
# Validation stops at the first bad item, because millions of bad items would give millions of errors, in gigabytes.
Items = Annotated[list[T], Field(fail_fast=True)]
Some = Annotated[Items[T], Field(min_length=1)]
TokenId = Annotated[int, Field(ge=0, lt=2**31)]
TokenIds = Some[TokenId]
Count = Annotated[int, Field(ge=0, lt=2**31)]
AtLeastOne = Annotated[int, Field(ge=1, lt=2**31)]
Text = Annotated[str, Field(min_length=1)]
Stop = Annotated[str, Field(min_length=1, max_length=1024)]
Top = Annotated[int, Field(ge=0, le=MAX_TOP)]
Penalty = Annotated[float, Field(ge=-2, le=2)]
Pattern = Annotated[str, Field(min_length=1, max_length=2**16)]
Alternatives = Annotated[Some[Annotated[str, Field(min_length=1, max_length=2**12)]], Field(max_length=2**12)]
Version = Annotated[str, Field(pattern=r"^\d{1,18}$")]


def _in_bounds(biases: dict[str, Any]) -> dict[str, Any]:
    # Only the first bad number is reported, as with `Items`.
    for number in biases.values():
        if isinstance(number, bool) or not isinstance(number, int | float) or not abs(number) <= MAX_BIAS:
            raise ValueError(f"must have numbers from -{MAX_BIAS} to {MAX_BIAS}")
    return biases


Biases = Annotated[dict[str, Any], Field(max_length=MAX_BIASES), AfterValidator(_in_bounds)]


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
        known = {field.alias or name for name, field in cls.model_fields.items()}
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


class JsonSchema(Request):
    """The JSON schema that a reply must follow, even without `strict`. Without a schema, any object is allowed."""

    name: str | None = None
    description: Any = None
    schema_: dict[str, Any] | None = Field(default=None, alias="schema")
    strict: bool | None = None


class ResponseFormat(Request):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None


class StructuredOutputs(Request):
    """vLLM's constraints of a reply. A request sets exactly one of these fields."""

    json_: dict[str, Any] | str | None = Field(default=None, alias="json")
    json_object: bool | None = None
    regex: Pattern | None = None
    choice: Alternatives | None = None
    grammar: Pattern | None = None


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
    min_tokens: Count | None = None
    ignore_eos: bool | None = None
    include_stop_str_in_output: bool | None = None
    skip_special_tokens: bool | None = None
    frequency_penalty: Penalty | None = None
    presence_penalty: Penalty | None = None
    repetition_penalty: float | None = Field(default=None, ge=0.01, le=100)
    logit_bias: Biases | None = None
    structured_outputs: StructuredOutputs | None = None


class Generation(Sampling):
    """The fields that chat and completions share."""

    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    return_token_ids: bool | None = None
    return_tokens_as_token_ids: bool | None = None
    response_format: ResponseFormat | None = None

    @model_validator(mode="after")
    def _check_stream(self) -> "Generation":
        if self.stream_options is not None and not self.stream:
            raise ValueError("stream_options may only be set together with stream = true")
        return self


class CompletionBody(Generation):
    """The body of `POST /v1/completions`."""

    prompt: str | TokenIds | Some[str] | Some[TokenIds]
    max_tokens: Count | None = None
    logprobs: Top | None = None
    echo: bool | None = None
    best_of: int | None = Field(default=None, ge=1, le=MAX_CHOICES)
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
    strict: bool | None = None


class Tool(Body):
    type: Literal["function"]
    function: FunctionSpec


class Rendering(Request):
    """The fields that control how the chat template renders messages."""

    tools: Items[Tool] | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    add_special_tokens: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None


class ChatBody(Generation, Rendering):
    """The body of `POST /v1/chat/completions`."""

    messages: Some[ChatMessage]
    max_tokens: AtLeastOne | None = None
    max_completion_tokens: AtLeastOne | None = None
    logprobs: bool | None = None
    top_logprobs: Top | None = None
    tool_choice: Literal["none", "auto", "required"] | Tool | None = None  # a tool by its name, which is forced
    parallel_tool_calls: bool | None = None


class ChatTokensBody(ChatBody):
    """The body of `POST /v1/chat/completions/tokens`. The prompt is `tokens`, and `messages` are not rendered."""

    tokens: TokenIds


class TokenizeBody(Rendering):
    """The body of `POST /tokenize`: a prompt, or messages. lm-eval sends messages as `prompt`."""

    model: str | None = None
    prompt: str | Some[ChatMessage] | None = None
    messages: Some[ChatMessage] | None = None
    return_token_strs: bool | None = None


class DetokenizeBody(Request):
    """The body of `POST /detokenize`."""

    model: str | None = None
    tokens: Items[TokenId]


class GenerateSampling(Sampling):
    max_tokens: AtLeastOne | None = None
    logprobs: Top | None = None


class GenerateBody(Request):
    """The body of `POST /inference/v1/generate`: the token ids of a prompt, and sampling parameters."""

    model: str | None = None
    request_id: str | None = Field(default=None, max_length=1024)
    token_ids: TokenIds
    sampling_params: GenerateSampling = GenerateSampling()


class AdapterInfo(Request):
    """An adapter: `rank` is the rank of its matrix pairs, `scale` the factor of their products, and `base` the
    fingerprint of the base weights."""

    rank: int = Field(ge=1, le=MAX_RANK)
    scale: float = Field(gt=0, lt=MAX_ALPHA)
    base: str = Field(default="", max_length=64)


class UpdateInfo(Request):
    """A whole update or a part of an update: a directory as in `UpdateBody`, or a broadcast.

    For a broadcast, `names`, `dtype_names` and `shapes` describe the trainer's tensors in the order of sending. With an
    `adapter`, the tensors are the adapter's matrix pairs for the server's initial weights, with PEFT's names.
    """

    weight_dir: Text | None = None
    names: Items[str] = []
    dtype_names: Items[str] = []
    shapes: Items[Annotated[Items[TokenId], Field(max_length=8)]] = []
    adapter: AdapterInfo | None = None

    @model_validator(mode="after")
    def _check(self) -> "UpdateInfo":
        if (self.weight_dir is None) != bool(self.names):
            raise ValueError("give either weight_dir or names")
        if not len(self.names) == len(self.dtype_names) == len(self.shapes):
            raise ValueError("names, dtype_names and shapes must have the same length")
        if self.weight_dir is not None and self.adapter:
            raise ValueError("a directory describes its adapter itself; leave adapter out")
        return self


class UpdateBody(Request):
    """The body of `POST /update_weights`: either `weight_dir` with a `version`, or, after `/start_weight_update`,
    `update_info`. The directory has all weights as safetensors in Hugging Face format, or only an adapter in PEFT's
    format."""

    weight_dir: Text | None = None
    version: int = Field(default=0, ge=0, lt=INT64)
    update_info: UpdateInfo | None = None

    @model_validator(mode="after")
    def _check(self) -> "UpdateBody":
        if (self.weight_dir is None) == (self.update_info is None):
            raise ValueError("give either weight_dir with a version, or update_info")
        if (self.weight_dir is None) == ("version" in self.model_fields_set):
            raise ValueError("weight_dir needs a version; update_info has none, which /finish_weight_update sets")
        return self


class JoinInfo(Request):
    """The process group of a broadcast. The trainer has rank 0 and listens at the address; the server gets the rank
    `rank_offset`."""

    master_address: str = Field(min_length=1, max_length=256)
    master_port: int = Field(ge=1, le=65535)
    rank_offset: int = Field(ge=1, lt=2**16)
    world_size: int = Field(ge=2, le=2**16)

    @model_validator(mode="after")
    def _check_rank(self) -> "JoinInfo":
        if self.rank_offset >= self.world_size:
            raise ValueError(f"rank_offset = {self.rank_offset} is not a rank of a group of {self.world_size}")
        return self


class InitTransferBody(Request):
    """The body of `POST /init_weight_transfer_engine`. `init_info` is empty if updates come from directories."""

    init_info: JoinInfo | Annotated[dict[str, Any], Field(max_length=0)]


class FinishBody(Request):
    """The body of `POST /finish_weight_update`. `weight_version` is a number, like the versions of tokens. Without it,
    the version does not change."""

    weight_version: Version | None = None


class CheckBody(Request):
    """The body of `POST /weight_checker`, which computes the SHA-256 of every tensor."""

    action: Literal["checksum"]
