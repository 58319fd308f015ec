"""The package openai."""

from openai import OpenAI
from outcome import ADDRESS, MESSAGES, MODEL, TOOL, report

CLIENT = OpenAI(base_url=f"{ADDRESS}/v1", api_key="none", max_retries=0)
CHAT = {"model": MODEL, "messages": MESSAGES, "temperature": 0}


def chat(**extra):
    return CLIENT.chat.completions.create(**CHAT, **extra).choices[0].message


def streamed(**extra):
    with CLIENT.chat.completions.stream(**CHAT, **extra) as stream:
        stream.until_done()
        return stream.get_final_completion().choices[0].message.content


report(
    {
        "chat": lambda: chat().content,
        "chat, stream": streamed,
        "chat, tools": lambda: chat(tools=[TOOL]).tool_calls[0].function,
        "chat, logprobs": lambda: len(
            CLIENT.chat.completions.create(**CHAT, logprobs=True, top_logprobs=2).choices[0].logprobs.content
        ),
        "chat, n": lambda: len(CLIENT.chat.completions.create(**CHAT, n=3).choices),
        "chat, stop": lambda: chat(stop=["42"]).content,
        "chat, seed": lambda: chat(seed=1).content,
        "models list": lambda: [model.id for model in CLIENT.models.list()],
        "models retrieve": lambda: CLIENT.models.retrieve(MODEL).id,
    }
)
