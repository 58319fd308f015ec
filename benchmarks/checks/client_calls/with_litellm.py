"""The package litellm: its own form of a call, translated to chat."""

import litellm
from outcome import ADDRESS, MESSAGES, MODEL, TOOL, report

HERE = {"model": f"openai/{MODEL}", "api_base": f"{ADDRESS}/v1", "api_key": "none", "num_retries": 0}
CHAT = {**HERE, "messages": MESSAGES, "temperature": 0}


def streamed(**settings):
    return "".join(chunk.choices[0].delta.content or "" for chunk in litellm.completion(**settings, stream=True))


report(
    {
        "chat": lambda: litellm.completion(**CHAT).choices[0].message.content,
        "chat, stream": lambda: streamed(**CHAT),
        "chat, tools": lambda: litellm.completion(**CHAT, tools=[TOOL]).choices[0].message.tool_calls[0].function,
        "chat, logprobs": lambda: len(litellm.completion(**CHAT, logprobs=True).choices[0].logprobs.content),
        "chat, n": lambda: len(litellm.completion(**CHAT, n=3).choices),
        "chat, stop": lambda: litellm.completion(**CHAT, stop=["42"]).choices[0].message.content,
        "chat, seed": lambda: litellm.completion(**CHAT, seed=1).choices[0].message.content,
    }
)
