"""A tiny model that has learnt a few replies by heart, so that tests can see tool calls and turns that end.

Its tokenizer's chat template knows no tools, as that of the packaged model; the server writes them as text.
"""

from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from transformers import LlamaConfig, LlamaForCausalLM

from slimrl_serve.bodies import ChatMessage, Tool
from slimrl_serve.conversation import PromptWriter
from tests.tiny import tiny_tokenizer

STEPS = 80
ADD: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Add two numbers.",
        "parameters": {
            "properties": {"a": {"title": "A", "type": "integer"}, "b": {"title": "B", "type": "integer"}},
            "required": ["a", "b"],
            "title": "add_args",
            "type": "object",
            "additionalProperties": False,
        },
    },
}
SUM_QUESTION = "What is 20 + 22?"
SUM_CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 20, "b": 22}}\n</tool_call>'
SUM_ANSWER = "It is 42."
GUESS_QUESTION = "Guess a word."
GUESSES = ("fox", "dog", "jumps")
WRONG = "Wrong."  # what the environment of several turns says after each guess


def save_parrot_model(directory: Path) -> None:
    """Train the model and save it with its tokenizer."""
    tokenizer = tiny_tokenizer(400)
    ask, called = {"role": "user", "content": SUM_QUESTION}, {"role": "assistant", "content": SUM_CALL}
    result = {"role": "user", "content": "<tool_response>\n42\n</tool_response>"}
    learnt = [([ask], [ADD], SUM_CALL), ([ask, called, result], [ADD], SUM_ANSWER), ([ask], [], SUM_ANSWER)]
    guessing = [{"role": "user", "content": GUESS_QUESTION}]
    for guess in GUESSES:
        learnt.append(([*guessing], [], guess))
        guessing += [{"role": "assistant", "content": guess}, {"role": "user", "content": WRONG}]
    prompts, replies = [], []
    for messages, tools, reply in learnt:
        text = PromptWriter(tokenizer).write(
            [ChatMessage.model_validate(message) for message in messages],
            [Tool.model_validate(tool) for tool in tools],
            {"add_generation_prompt": True},
        )
        prompts.append(tokenizer.encode(text, add_special_tokens=False))
        replies.append([*tokenizer.encode(reply, add_special_tokens=False), tokenizer.eos_token_id])
    _learn(prompts, replies).save_pretrained(directory)
    tokenizer.save_pretrained(directory)


def _learn(prompts: list[list[int]], replies: list[list[int]]) -> LlamaForCausalLM:
    config = LlamaConfig(
        vocab_size=400,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=1024,
        bos_token_id=0,
        eos_token_id=2,
        pad_token_id=2,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = LlamaForCausalLM(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, weight_decay=0.0)
    for _ in range(STEPS):
        for prompt, reply in zip(prompts, replies, strict=True):
            ids = torch.tensor([prompt + reply])
            logits_TV = model(input_ids=ids, logits_to_keep=len(reply) + 1).logits[0, :-1]
            (F.cross_entropy(logits_TV, torch.tensor(reply)) / len(prompts)).backward()
        optimizer.step()
        optimizer.zero_grad()
    return model
