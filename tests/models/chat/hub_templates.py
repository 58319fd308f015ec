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
