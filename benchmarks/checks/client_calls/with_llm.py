"""The package llm, by the class that its file of extra OpenAI models makes."""

from llm.default_plugins.openai_models import Chat
from outcome import ADDRESS, MODEL, QUESTION, report


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def chat(stream=False, **settings):
    flags = {"supports_tools": True, "can_stream": True}
    model = Chat("local", model_name=MODEL, api_base=f"{ADDRESS}/v1", **flags)
    model.key = "none"
    return model.prompt(QUESTION, stream=stream, **settings)


report(
    {
        "chat": lambda: chat(temperature=0).text(),
        "chat, stream": lambda: "".join(chat(stream=True, temperature=0)),
        "chat, tools": lambda: chat(tools=[add], temperature=0).tool_calls(),
        "chat, stop": lambda: chat(stop="42").text(),
        "chat, seed": lambda: chat(seed=1).text(),
    }
)
