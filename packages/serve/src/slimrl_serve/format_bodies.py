"""The fields by which a request constrains its reply, as in OpenAI and vLLM; `formats.py` makes grammars."""

from typing import Annotated, Any, Literal

from pydantic import Field

from slimrl_serve.body import Body, Ignored, OnlyFalse, OnlyTrue, Request, Some

Pattern = Annotated[str, Field(min_length=1, max_length=2**16)]
Choices = Annotated[Some[Annotated[str, Field(min_length=1, max_length=2**12)]], Field(max_length=2**12)]
Schema = dict[str, Any]


class JsonSchema(Request):
    """The JSON schema of a reply. It is obeyed even without `strict`; without a schema any object is allowed."""

    name: str | None = None
    description: Ignored = None
    schema_: Schema | None = Field(default=None, alias="schema")
    strict: bool | None = None


class ResponseFormat(Request):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None


class StructuredOutputs(Request):
    """vLLM's constraints: one of the first five fields."""

    json_: Schema | str | None = Field(default=None, alias="json")
    json_object: OnlyTrue | None = None
    regex: Pattern | None = None
    choice: Choices | None = None
    grammar: Pattern | None = None
    disable_any_whitespace: OnlyFalse | None = None
    disable_additional_properties: OnlyFalse | None = None
    disable_fallback: Ignored = None


class Guided(Request):
    """The fields of all routes that sample, with vLLM's present and earlier names."""

    structured_outputs: StructuredOutputs | None = None
    guided_json: Schema | str | None = None
    guided_regex: Pattern | None = None
    guided_choice: Choices | None = None
    guided_grammar: Pattern | None = None
    guided_decoding_backend: Ignored = None


class FunctionName(Body):
    name: str


class NamedTool(Request):
    """The `tool_choice` of one function."""

    type: Literal["function"]
    function: FunctionName


ToolChoice = Literal["none", "auto", "required"] | NamedTool
