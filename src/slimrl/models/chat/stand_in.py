"""A chat format without a model: ChatML on single bytes, with tools in the form of Qwen's templates.

It accepts every text and all four roles, and needs no download. A token is a byte.
"""

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from slimrl.models.chat.template import ChatFormat

START, END = "<|im_start|>", "<|im_end|>"
TEMPLATE = """\
{%- if tools %}
{{- '<|im_start|>system\\n' }}
{%- if messages[0].role == 'system' %}{{- messages[0].content + '\\n\\n' }}{%- endif %}
{{- 'You may call these functions:\\n<tools>' }}
{%- for tool in tools %}{{- '\\n' + (tool | tojson) }}{%- endfor %}
{{- '\\n</tools>\\nCall one so: <tool_call>{"name": NAME, "arguments": OBJECT}</tool_call><|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
{%- if message.role == 'tool' %}
{{- '<|im_start|>user\\n<tool_response>\\n' + message.content + '\\n</tool_response><|im_end|>\\n' }}
{%- elif not (tools and loop.first and message.role == 'system') %}
{{- '<|im_start|>' + message.role + '\\n' + message.content }}
{%- for call in message.tool_calls or [] %}
{{- '<tool_call>{"name": "' + call.function.name + '", "arguments": ' + (call.function.arguments | tojson) }}
{{- '}</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}
"""


def stand_in_chat() -> ChatFormat:
    """Build the ChatML format, in which every byte is a token."""
    characters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {character: number for number, character in enumerate([END, START, *characters])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return ChatFormat(
        PreTrainedTokenizerFast(
            tokenizer_object=tokenizer,
            eos_token=END,
            additional_special_tokens=[START],
            clean_up_tokenization_spaces=False,
            chat_template=TEMPLATE,
            name_or_path="ChatML",
        )
    )
