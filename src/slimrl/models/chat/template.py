"""Turns a conversation into token ids piece by piece: the opening, then a continuation after every sampled turn.

Sampled tokens are never tokenized again, and earlier turns are never rendered again. So the context of the next turn
contains exactly the sampled tokens, even if the chat template would change earlier turns (strip `<think>` blocks, trim
spaces). The tokenizer's own chat template renders the whole conversation so far (`models/chat/render.py`); each piece
is the part after the last reply. Knows nothing of models or environments.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from typing import Any, cast

from transformers import PreTrainedTokenizerBase

from slimrl.errors import UserError
from slimrl.models.chat.call_reader import FORMS, CallReader
from slimrl.models.chat.encode import TextEncoder, decode_with_marks
from slimrl.models.chat.excerpt import shorten
from slimrl.models.chat.render import MARKER, Renderer, form_of, names_of, render_tools, with_written_calls
from slimrl.models.chat.thoughts import CLOSE, CLOSE_THOUGHTS, OPEN, OPEN_THOUGHTS, begins_in_thoughts, opens_thoughts
from slimrl.models.chat.tool_calls import ToolCall
from slimrl.types import Message

QUESTION: Message = {"role": "user", "content": "question"}
REPLY: Message = {"role": "assistant", "content": MARKER}
RESULT: Message = {"role": "tool", "content": "result"}
CALL = ToolCall("", "call", "{}")
EMPTY_THOUGHTS = re.compile(rf"\s*{OPEN_THOUGHTS}\s*{CLOSE_THOUGHTS}\s*")
PROMPT_END = 32  # last tokens of a prompt: enough to show whether it opens or closes thoughts


def _reply(text: str) -> Message:
    return {"role": "assistant", "content": text}


class ChatFormat:
    """A converter of conversations to token ids, piece by piece, with the chat template of one tokenizer.

    Two turns in ChatML; `|` separates the pieces, and brackets enclose sampled tokens:

        <start>user q<end> <start>assistant | [A <end>] | <start>user wrong<end> <start>assistant | [B <end>]
        opening([q])                                      continuation([q, A, wrong], after=<end>)

    `end_of_turn` is the token that ends an assistant's turn in the template. `stop_ids` also contains the tokenizer's
    end-of-sequence token and `more_stop_ids` (a model's generation config may name more). `date` is the date that the
    template writes in every prompt, None for a template that reads no clock. `tool_calls` is the form in which calls of
    tools are read (`config.model`). Raises UserError for a tokenizer without a chat template, or without an end token
    for turns.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        more_stop_ids: Iterable[int] = (),
        day: date | None = None,
        tool_calls: str = "template",
    ) -> None:
        if not tokenizer.chat_template:
            raise UserError(
                f"The tokenizer of {tokenizer.name_or_path} has no chat template, so it is not known how to write a "
                "conversation. Use an instruct model, or put a file chat_template.jinja into the model's directory."
            )
        self._tokenizer = tokenizer
        self._knows_tools = False
        self.vocabulary: Mapping[str, int] = tokenizer.get_vocab()
        self._longest_token = max(map(len, self.vocabulary))
        day = day or date.today()
        self._encoder = encoder = TextEncoder(tokenizer)
        self._renderer = renderer = Renderer(tokenizer, encoder.mark, day)
        self.date = day if renderer.reads_clock else None
        renderer.gap([QUESTION, REPLY, QUESTION])  # fails if the template omits a user's message
        # A turn ends with the first special token after the reply, or with the end-of-sequence token if there is none.
        eos: int | None = tokenizer.eos_token_id
        until_reply, _, behind = renderer.text([QUESTION, REPLY], generate=False).partition(MARKER)
        at_the_end = self._first_special(behind)
        end_of_turn = eos if at_the_end is None else at_the_end
        if end_of_turn is None:
            raise UserError(
                f"The chat template of {tokenizer.name_or_path} closes an assistant's turn without a special token, "
                "and the tokenizer has no eos_token, so the model cannot end its turn. Set eos_token in "
                "tokenizer_config.json."
            )
        self.end_of_turn: int = end_of_turn
        self.stop_ids = frozenset({end_of_turn, *more_stop_ids, *(() if eos is None else (eos,))})
        self.calls = renderer.calls = CallReader(form_of(tokenizer, self._end_text), tool_calls)
        renderer.end_of_turn = self._end_text
        self.marks = frozenset(
            token
            for token, added in tokenizer.added_tokens_decoder.items()
            if added.special and added.content in self.calls.marks
        )
        # The template's text around a reply that another message follows.
        prompt = renderer.text([QUESTION], generate=True)
        before, _, between = renderer.text([QUESTION, REPLY, QUESTION], generate=False).partition(MARKER)
        # True if the template writes the end of a reply before the next message; some templates do not.
        self._template_closes = self._first_special(between) == end_of_turn
        # Tokens that separate turns are control tokens, even if the tokenizer does not mark them as special.
        added = tokenizer.added_tokens_decoder
        parting = {token for token in encoder.encode(between) if token in added and not added[token].content.isspace()}
        encoder.protect(token.content for number, token in added.items() if token.special or number in parting)
        # Some templates write spaces around every reply. The spaces belong to the reply: a sampled reply has them, too.
        self._before_reply = encoder.last_segment(prompt)
        self._lead = before[len(prompt) :] if before.startswith(prompt) else ""
        # The text that closes the prompt's thoughts before a reply without thoughts.
        written = until_reply.removeprefix(prompt)
        self._no_thoughts = written if written.strip() == CLOSE_THOUGHTS else f"\n{CLOSE_THOUGHTS}\n\n"
        self._trail = between.partition(self._end_text)[0] if self._template_closes else ""
        # If the tokenizer drops the closing tag as a special token, no text shows the end of thoughts.
        self._shows_closing = CLOSE_THOUGHTS in self.text(encoder.encode(CLOSE_THOUGHTS))

    def opening(self, messages: Sequence[Message]) -> list[int]:
        """Return the token ids of a conversation's first messages and of the generation prompt.

        Raises UserError if the template refuses these roles or omits a message, or if the first message has tools and
        the template does not support them.
        """
        if messages and "tools" in messages[0]:
            self._check_tools(messages)
        self._renderer.gap(messages)
        return self._encoder.encode(self._renderer.text(messages, generate=True))

    def continuation(self, messages: Sequence[Message], after: int) -> list[int]:
        """Return the token ids between the last sampled token, `after`, and the next reply; their loss mask is 0.

        `messages` is the whole conversation so far; the messages after its last reply are new. The token ids are the
        end of the sampled turn (without the end-of-turn token if it was sampled), the new messages, and the next
        generation prompt. Raises UserError like `opening`. Also raises UserError if the template ends a reply before a
        user's message, but not before these new messages.
        """
        self._check_closed(messages)
        text = self._renderer.behind_last_reply(messages)
        # If the policy sampled the end-of-turn token itself, the template's end-of-turn token must not follow.
        if self._template_closes and after == self.end_of_turn:
            token_ids = self._encoder.encode(text)
            if after not in token_ids:
                raise self._not_closed(messages)
            return token_ids[token_ids.index(after) + 1 :]
        return self._encoder.encode_behind(MARKER, text)

    def can_fit(self, messages: Sequence[Message], num_tokens: int) -> bool:
        """Return False if the messages would need more than `num_tokens` tokens even if each token were the longest of
        the vocabulary. This saves the caller the tokenisation, which takes a minute for megabytes of text."""
        return sum(len(message["content"]) for message in messages) <= num_tokens * self._longest_token

    def cut_excerpts(self, messages: Sequence[Message]) -> list[Message]:
        """Return the messages with every excerpt cut to its maximum number of tokens."""
        return [self._cut_excerpt(message) if "excerpt" in message else message for message in messages]

    def text(self, token_ids: Sequence[int], prompt: Sequence[int] = ()) -> str:
        """Return the text of token ids without special tokens, except those around calls. If the `prompt` ends in the
        opening tag of thoughts, the text starts with this tag, so that thoughts without an end are recognised."""
        decoded = decode_with_marks(self._tokenizer, token_ids, self.marks)
        end = self.full_text(prompt[-PROMPT_END:]) if prompt else ""
        thoughts = end[end.rindex(OPEN_THOUGHTS) :] if opens_thoughts(end) and self._shows_closing else ""
        return thoughts + decoded

    def rewrite_calls(self, reply: str, opening: Sequence[Message]) -> tuple[str, str]:
        """Return a reply with its calls as environments read them, and the form in which the policy wrote the calls.
        The first message of `opening` lists the tools. Without tools, the reply is unchanged."""
        tools = opening[0].get("tools") if opening else None
        if not tools:
            return reply, ""
        reading = self.calls.read(reply, names_of(tools))
        return self.calls.rewrite(reply, reading), reading.form

    def full_text(self, token_ids: Sequence[int]) -> str:
        """Return the text of token ids with special tokens, for people who read rollouts."""
        return cast(str, self._tokenizer.decode(token_ids, clean_up_tokenization_spaces=False))

    def tokenizer_json(self) -> str:
        """Return the tokenizer in the format of `tokenizer.json`; empty for a tokenizer written in Python."""
        tokenizer: Any = self._tokenizer
        return str(tokenizer.backend_tokenizer.to_str()) if tokenizer.is_fast else ""

    def encode_conversation(self, messages: Sequence[Message]) -> tuple[list[int], list[bool]]:
        """Return the token ids of a whole conversation and its loss mask: True for the assistant's turns and their end
        tokens, except for turns of weight 0.

        The pieces are the same as in rollouts, so supervised training and RL see the same sequences. Raises UserError
        if the conversation starts with the assistant or does not end with the assistant, or if the template omits a
        reply's thoughts or calls.
        """
        messages = with_written_calls(self.cut_excerpts(messages), self.calls)
        turns = [index for index, message in enumerate(messages) if message["role"] == "assistant"]
        if not turns or turns[0] == 0 or turns[-1] != len(messages) - 1:
            raise UserError(
                "A conversation to learn from must begin with a user or system message and end with an assistant "
                f"message; this one has the roles: {', '.join(message['role'] for message in messages) or 'none'}."
            )
        token_ids: list[int] = []
        mask: list[bool] = []
        for turn in turns:
            so_far = messages[:turn]
            prompt = self.continuation(so_far, after=self.end_of_turn) if token_ids else self.opening(so_far)
            text = self._reply_text(messages[: turn + 1], self.full_text(prompt[-PROMPT_END:]))
            reply = [*self._encoder.encode_behind(self._before_reply, text), self.end_of_turn]
            token_ids += prompt + reply
            mask += [False] * len(prompt) + [messages[turn].get("weight", 1) != 0] * len(reply)
        return token_ids, mask

    def writes_name(self, role: str) -> bool:
        """Return True if the template writes the `name` of a message in this role."""
        named = cast(Message, {"role": role, "content": "text", "name": MARKER})
        try:
            return MARKER in self._renderer.text([*((QUESTION,) if role != "system" else ()), named], generate=False)
        except UserError:  # `opening` will refuse the conversation, with a reason
            return True

    @property
    def _end_text(self) -> str:
        return cast(str, self._tokenizer.convert_ids_to_tokens(self.end_of_turn))

    def _reply_text(self, messages: Sequence[Message], prompt_end: str) -> str:
        """Return the text from the generation prompt, which ends in `prompt_end`, to the end of the last reply.

        A reply without `reasoning_content` and `tool_calls` is copied between the texts that the template writes around
        every reply. The template renders all other replies. Raises UserError if the template omits a part of the reply.
        """
        reply = messages[-1]
        beside = [key for key in ("reasoning_content", "tool_calls") if key in reply]
        if not beside:
            lead, content = self._lead_of(reply["content"], prompt_end)
            trail = "" if content.endswith(self._trail) else self._trail
            return f"{lead}{self._encoder.mark(content)}{trail}"
        # Put results after the calls: some templates write more into the very last message.
        results = [RESULT] * len(reply.get("tool_calls", ()))
        shown = [*messages, *results]
        prompt, whole = self._renderer.text(messages[:-1], generate=True), self._renderer.text(shown, generate=True)
        if not whole.startswith(prompt):  # the template writes the last question in another way
            prompt = self._renderer.text([*messages[:-1], REPLY, *results], generate=True).partition(MARKER)[0]
        text = whole[len(prompt) :] if whole.startswith(prompt) else ""
        written = self._encoder.unmark(text)
        functions = [call["function"] for call in reply.get("tool_calls", ())]
        calls = [(function["name"], function["arguments"]) for function in functions]
        reader, seen = CallReader(self.calls.own), written.partition(self._end_text)[0]
        read = [(call.name, call.values) for call in reader.read(seen, ()).calls] if self.calls.own else []
        lost = ["tool_calls"] if read != calls and calls else []
        texts = {"reasoning_content": reply.get("reasoning_content", ""), "content": reply["content"]}
        lost += [key for key, said in texts.items() if said.strip() not in written]
        if lost:
            raise UserError(
                f"the chat template of {self._renderer.name} does not write the `{lost[0]}` of a reply that has "
                f"{' and '.join(f'`{key}`' for key in beside)}, so the model would learn to reply without it. Write "
                "all that the model is to say into `content`, or take a model whose template writes it."
            )
        return text.removesuffix(self._renderer.behind_last_reply(shown)) + self._trail

    def _lead_of(self, content: str, prompt_end: str) -> tuple[str, str]:
        """Return the template's text before a reply, and the reply without the tags that are already in the prompt.

        If the template writes empty thoughts before replies, only a reply without thoughts gets them. If the prompt
        opens thoughts, a reply without thoughts gets the closing tag. Raises UserError if the prompt closes thoughts,
        but the reply has thoughts.
        """
        begun, opens = content.lstrip().startswith(OPEN_THOUGHTS), opens_thoughts(prompt_end)
        if begun and opens:
            return "", content.lstrip().removeprefix(OPEN_THOUGHTS).removeprefix("\n")
        if begun and prompt_end.rstrip().endswith(CLOSE_THOUGHTS):
            empty = EMPTY_THOUGHTS.match(content)
            if empty is None:
                raise UserError(
                    f"the generation prompt of {self._renderer.name}'s chat template ends in {CLOSE_THOUGHTS}, so the "
                    "model replies without thoughts, and a reply of the data has some. Remove these, or put a template "
                    "that lets the model think into its directory (chat_template.jinja)."
                )
            return "", content[empty.end() :]
        if begun or begins_in_thoughts(content):
            return "" if CLOSE_THOUGHTS in self._lead or content.startswith(self._lead) else self._lead, content
        if opens and CLOSE_THOUGHTS not in self._lead:
            return self._no_thoughts, content
        # A sampled reply may already start with the template's text.
        return "" if content.startswith(self._lead) else self._lead, content

    def _cut_excerpt(self, message: Message) -> Message:
        def count(text: str) -> int:
            return len(self._encoder.encode(self._encoder.mark(text)))

        excerpt, content, cut = message["excerpt"], message["content"], message.copy()
        begin, end = excerpt["begin"], excerpt["end"]
        cut["content"] = f"{content[:begin]}{shorten(content[begin:end], excerpt['max_tokens'], count)}{content[end:]}"
        del cut["excerpt"]
        return cut

    def _check_closed(self, messages: Sequence[Message]) -> None:
        """Raise UserError if the template does not end the last reply before the next message.

        Otherwise `continuation` would mistake a later end-of-turn token for the end of the reply, and drop the message
        in between.
        """
        gap = self._renderer.gap(messages)
        if self._template_closes and self.end_of_turn not in self._encoder.encode(gap):
            raise self._not_closed(messages)

    def _not_closed(self, messages: Sequence[Message]) -> UserError:
        return UserError(
            f"The chat template of {self._renderer.name} closes an assistant's turn with {self._end_text} before a "
            f"user's message, and not in a conversation with the roles {', '.join(m['role'] for m in messages)}, so it "
            "is not known how the last of them follow a reply. Let the environment send them in the role of the user, "
            "or take a model with another template."
        )

    def _check_tools(self, opening: Sequence[Message]) -> None:
        if self._knows_tools:
            return
        own, setting = self.calls.own, self.calls.setting
        if not own and setting == "template":
            writes = "does not write tools, calls of them and their results"
            if render_tools(self._tokenizer) is not None:
                writes = f"writes calls of tools in a form that slimrl does not know; it knows {', '.join(FORMS)}"
            raise UserError(
                f"The chat template of {self._renderer.name} {writes}, so this model cannot be offered any that way. "
                'Let the environment describe its tools in words (for wiki-search, `format = "tags"`), or take a model '
                "with such a template, as those of Qwen2.5 and Qwen3 have. If the template does write tools and "
                "results, set --model.tool_calls lenient, or the form in which the model writes calls."
            )
        if own not in ("", "hermes") and not self._template_closes:
            raise self._not_closed([*opening, REPLY, RESULT])
        # Check now, before the first call or mistake is sampled.
        self._check_closed([*opening, REPLY, QUESTION])
        one, two = (_reply(FORMS[own or "hermes"].write([CALL] * number)) for number in (1, 2))
        try:
            self._check_closed([*opening, two, RESULT, RESULT])
        except UserError:  # checked once more, below
            self._renderer.max_calls = 1
        # Environments answer an unreadable call, too, in the role `tool`.
        for reply in [one, two, *([_reply(f"{OPEN}{CLOSE}")] if own == "hermes" else [])]:
            self._check_closed([*opening, reply, RESULT])
            self._check_closed([*opening, reply, RESULT, reply, RESULT, RESULT])
        self._knows_tools = True

    def _first_special(self, text: str) -> int | None:
        special = {*self._tokenizer.all_special_ids, *self._tokenizer.added_tokens_decoder}
        return next((token for token in self._encoder.encode(text) if token in special), None)
