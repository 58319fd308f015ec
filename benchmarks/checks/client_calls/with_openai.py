"""The package openai."""

from openai import OpenAI
from outcome import ADDRESS, FUNCTION, MESSAGES, MODEL, QUESTION, TOOL, report
from pydantic import BaseModel

CLIENT = OpenAI(base_url=f"{ADDRESS}/v1", api_key="none", max_retries=0)
CHAT = {"model": MODEL, "messages": MESSAGES, "temperature": 0}
RESPONSE = {"model": MODEL, "input": QUESTION, "temperature": 0}


class Sum(BaseModel):
    sum: int


def chat(**extra):
    return CLIENT.chat.completions.create(**CHAT, **extra).choices[0].message


def streamed(**extra):
    with CLIENT.chat.completions.stream(**CHAT, **extra) as stream:
        stream.until_done()
        return stream.get_final_completion().choices[0].message.content


def streamed_response(**extra):
    with CLIENT.responses.stream(**RESPONSE, **extra) as stream:
        return stream.until_done().get_final_response().output_text


report(
    {
        "chat": lambda: chat().content,
        "chat, stream": streamed,
        "chat, tools": lambda: chat(tools=[TOOL]).tool_calls[0].function,
        "chat, tool_choice required": lambda: chat(tools=[TOOL], tool_choice="required").tool_calls[0].function,
        "chat, logprobs": lambda: len(
            CLIENT.chat.completions.create(**CHAT, logprobs=True, top_logprobs=2).choices[0].logprobs.content
        ),
        "chat, n": lambda: len(CLIENT.chat.completions.create(**CHAT, n=3).choices),
        "chat, stop": lambda: chat(stop=["42"]).content,
        "chat, seed": lambda: chat(seed=1).content,
        "structured output, chat": lambda: (
            CLIENT.chat.completions.parse(**CHAT, response_format=Sum).choices[0].message.parsed
        ),
        "responses": lambda: CLIENT.responses.create(**RESPONSE).output_text,
        "responses, stream": streamed_response,
        "responses, tools": lambda: (
            CLIENT.responses.create(**RESPONSE, tools=[{"type": "function", **FUNCTION}]).output[0].arguments
        ),
        "responses, previous_response_id": lambda: (
            CLIENT.responses.create(**RESPONSE, previous_response_id=CLIENT.responses.create(**RESPONSE).id).status
        ),
        "responses, web_search": lambda: CLIENT.responses.create(**RESPONSE, tools=[{"type": "web_search"}]).status,
        "structured output, responses": lambda: CLIENT.responses.parse(**RESPONSE, text_format=Sum).output_parsed,
        "models list": lambda: [model.id for model in CLIENT.models.list()],
        "models retrieve": lambda: CLIENT.models.retrieve(MODEL).id,
    }
)
