"""Chat templates of well-known models, rebuilt by their shape: thoughts, tools, results, and what comes before them."""

from tests.models.chat.templates import template

HERMES_CHAT, HERMES_TOOLS = template("hermes-chat"), template("hermes-tools")
# As Hermes 2 Pro's: the template for chats knows neither tools nor their results.
HERMES = {"default": HERMES_CHAT, "tool_use": HERMES_TOOLS}
QWEN3, LLAMA31 = template("qwen3"), template("llama31")
# As DeepSeek V3's: outputs are opened once in a conversation, and a reply to them has no header.
DEEPSEEK = template("deepseek")
# The first result is written in another way than those after it ...
COUNTING = template("counting")
# ... and the result behind a call in another way than one behind anything else.
AFTER_A_CALL = COUNTING.replace("if seen.results == 1", "if loop.previtem is defined and loop.previtem['tool_calls']")
# As Mistral's: ids of nine characters, tools before the last question, no generation prompt.
MISTRAL_TOOLS = template("mistral-tools")


def template_with_calls(calls: str) -> str:
    """A template in which the text of a reply's `calls` is this Jinja code."""
    return template("calls").replace("CALLS", calls)


_PYTHON = (
    "{%- for call in calls %}{{- call.name + '(' }}{%- for key, value in call.arguments.items() %}"
    "{{- key + '=' + value | tojson + ('' if loop.last else ', ') }}{%- endfor %}"
    "{{- ')' + ('' if loop.last else ', ') }}{%- endfor %}"
)
# The name of a form -> a template whose calls have this form.
CALLING = {
    "hermes": template("tools"),
    "llama": LLAMA31,
    "mistral": MISTRAL_TOOLS,
    "granite": template_with_calls("{{- '<|tool_call|>' + calls | tojson }}"),
    "phi": template_with_calls("{{- '<|tool_call|>' + calls | tojson + '<|/tool_call|>' }}"),
    "lfm": template_with_calls("{{- '<|tool_call_start|>[' }}" + _PYTHON + "{{- ']<|tool_call_end|>' }}"),
    "smollm": template_with_calls("{{- '<code>' }}" + _PYTHON + "{{- '</code>' }}"),
    "python": template_with_calls("{{- '[' }}" + _PYTHON + "{{- ']' }}"),
    "json": template_with_calls("{%- for call in calls %}{{- call | tojson + '\\n' }}{%- endfor %}"),
    "fenced": template_with_calls("{{- '```json\\n' + calls | tojson + '\\n```' }}"),
    "": template_with_calls("{{- '\\u2047' }}"),  # as SmolLM3's: it writes tools and results, and no calls
}
