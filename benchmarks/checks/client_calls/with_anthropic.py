"""The package anthropic."""

from anthropic import Anthropic
from outcome import ADDRESS, FUNCTION, MESSAGES, MODEL, report

CLIENT = Anthropic(base_url=ADDRESS, api_key="none", max_retries=0)
ASK = {"model": MODEL, "max_tokens": 100, "messages": MESSAGES, "extra_body": {"temperature": 0}}
TOOLS = [{"name": "add", "description": FUNCTION["description"], "input_schema": FUNCTION["parameters"]}]
SCHEMA = {"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]}


def streamed(**extra):
    with CLIENT.messages.stream(**ASK, **extra) as stream:
        return stream.get_final_message().content[0]


report(
    {
        "messages": lambda: CLIENT.messages.create(**ASK).content[0].text,
        "messages, stream": lambda: streamed().text,
        "messages, tools": lambda: CLIENT.messages.create(**ASK, tools=TOOLS).content[0].input,
        "messages, stream, tools": lambda: streamed(tools=TOOLS).input,
        "messages, tool_choice any": lambda: (
            CLIENT.messages.create(**ASK, tools=TOOLS, tool_choice={"type": "any"}).content[0].input
        ),
        "messages, stop": lambda: CLIENT.messages.create(**ASK, stop_sequences=["42"]).stop_sequence,
        "messages, thinking": lambda: (
            CLIENT.messages.create(**ASK, thinking={"type": "enabled", "budget_tokens": 1024}).content
        ),
        "structured output, messages": lambda: (
            CLIENT.messages.create(**ASK, output_config={"format": {"type": "json_schema", "schema": SCHEMA}})
            .content[0]
            .text
        ),
        "messages, count_tokens": lambda: CLIENT.messages.count_tokens(model=MODEL, messages=MESSAGES).input_tokens,
        "models list": lambda: [model.id for model in CLIENT.models.list()],
    }
)
