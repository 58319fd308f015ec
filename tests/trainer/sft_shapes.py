"""Rows with the columns of well-known data sets of the Hub, written for these tests: three shapes or more of a form.

`SHAPES` has a row by its name, and what is learnt of it as the ChatML of the tests writes it: rows are marked with `[[`
and `]]` around what is learnt.
"""

import json
from typing import Any

END = "<|im_end|>"
ADD_SCHEMA = {
    "name": "add",
    "description": "Adds two numbers.",
    "parameters": {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}},
}
ADD = {"type": "function", "function": ADD_SCHEMA}
ARGUMENTS = {"a": 2, "b": 3}
CALLS = '[[<tool_call>\n{"name": "add", "arguments": {"a": 2, "b": 3}}\n</tool_call>' + END + "]]"


def user(text: Any) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: Any, **others: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text, **others}


def system(text: Any) -> dict[str, Any]:
    return {"role": "system", "content": text}


def turn(role: str, text: str) -> str:
    return f"<|im_start|>{role}\n{text}{END}\n"


def reply(text: str) -> str:
    return f"<|im_start|>assistant\n[[{text}{END}]]"


def openai_call(arguments: Any) -> dict[str, Any]:
    return {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": arguments}}


COLOUR, RED = [user("Name a colour."), assistant("Red.")], turn("user", "Name a colour.") + reply("Red.")
BRIEF, BRIEF_RED = [system("Be brief."), *COLOUR], turn("system", "Be brief.") + RED
TWICE = [user("Hi"), assistant("Hello."), user("And now?"), assistant("Bye.")]
CHATS: dict[str, tuple[dict[str, Any], str]] = {
    "messages, as no_robots": (
        {"prompt": "Name a colour.", "prompt_id": "f0e37e9f", "messages": BRIEF, "category": "Chat"},
        BRIEF_RED,
    ),
    "messages, as ultrachat_200k": (
        {"prompt": "Hi", "prompt_id": "3b1c", "messages": TWICE},
        turn("user", "Hi") + reply("Hello.") + "\n" + turn("user", "And now?") + reply("Bye."),
    ),
    "messages, as tulu-3-sft-mixture": ({"id": "oasst1_1", "messages": COLOUR, "source": "ai2-adapt-dev/oasst1"}, RED),
    "prompt and completion, as messages": ({"prompt": COLOUR[:1], "completion": COLOUR[1:]}, RED),
    "prompt and completion, with turns before": (
        {
            "prompt": [system("Be brief."), *TWICE[:3]],
            "completion": TWICE[3:],
            "messages": None,
            "chat_template_kwargs": None,
        },
        turn("system", "Be brief.")
        + turn("user", "Hi")
        + turn("assistant", "Hello.")
        + turn("user", "And now?")
        + reply("Bye."),
    ),
}
QUESTION, CALLING = user("2 + 3?"), turn("user", "2 + 3?") + "<|im_start|>assistant\n" + CALLS
ANSWERED = CALLING + "\n<|im_start|>user\n<tool_response>\n5\n</tool_response><|im_end|>\n" + reply("It is 5.")
RESULT, ANSWER = {"role": "tool", "tool_call_id": "call_1", "content": "5"}, assistant("It is 5.")
BARE = {"name": "add", "arguments": ARGUMENTS}
# Behind the tools, which each template writes in its own way.
TOOLS: dict[str, tuple[dict[str, Any], str]] = {
    "tools, in OpenAI's form": (
        {
            "messages": [
                QUESTION,
                assistant(None, tool_calls=[openai_call(json.dumps(ARGUMENTS))]),
                RESULT,
                ANSWER,
            ],
            "tools": [ADD],
        },
        ANSWERED,
    ),
    "tools, in Hugging Face's form": (
        {
            "messages": [
                QUESTION,
                {"role": "assistant", "tool_calls": [{"type": "function", "function": BARE}]},
                {"role": "tool", "name": "add", "content": "5"},
                ANSWER,
            ],
            "tools": json.dumps([ADD]),
        },
        ANSWERED,
    ),
    "tools, as prompt and completion": (
        {
            "prompt": [QUESTION],
            "completion": [assistant("", tool_calls=[openai_call(ARGUMENTS)]), RESULT, ANSWER],
            "tools": [ADD],
        },
        ANSWERED,
    ),
}
XLAM = {"id": 0, "query": "2 + 3?", "answers": json.dumps([ARGUMENTS]), "tools": json.dumps([ADD_SCHEMA])}
