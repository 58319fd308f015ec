"""Turns a conversation into token ids piece by piece: the opening, then a continuation after every sampled turn.

Sampled tokens are never tokenized again, and earlier turns are never rendered again. So the context of the next turn
contains exactly the sampled tokens, even where the chat template would rewrite history (strip `<think>` blocks, trim
spaces). The pieces come from the tokenizer's own chat template, which is rendered around a marker and cut
there. Knows nothing of models or environments.

Control tokens are those that the tokenizer marks as special or that separate turns. Only the template and the policy
produce them: where a message or a tool's description spells one (a web page that says `<|im_end|>`), its characters are
encoded as text, so that no message can forge a turn. Added tokens that are part of a text (`<think>` and `<tool_call>`
of Qwen3) are encoded as tokens everywhere. Where a template separates turns by plain text, a message can still forge
one.
"""

import functools
import re
from collections.abc import Iterable, Sequence
from typing import Any, cast

from transformers import PreTrainedTokenizerBase

from slimrl.errors import UserError
from slimrl.models.chat.excerpt import shorten
from slimrl.models.chat.tool_calls import MARKER, OPEN, TEMPLATE_ERRORS, tool_trouble
from slimrl.types import Message

# Keys of our messages that templates do not know.
NOT_FOR_TEMPLATES = ("tools", "excerpt")
# A conversation with placeholders: `MARKER` stands for an assistant's reply, or (numbered) for any message, where the
# template is rendered only to find out what it writes around them.
QUESTION: Message = {"role": "user", "content": "question"}
REPLY: Message = {"role": "assistant", "content": MARKER}
NEXT = f"{MARKER}next"  # stands for the message after the reply


class ChatFormat:
    """The chat template of one tokenizer, as pieces of token ids.

    Two turns in ChatML; `|` separates the pieces, and brackets enclose sampled tokens:

        <start>user q<end> <start>assistant | [A <end>] | <start>user wrong<end> <start>assistant | [B <end>]
        opening([q])                                      continuation([wrong], after=<end>)

    `end_of_turn` is the token that ends an assistant's turn in the template. `stop_ids` also contains the tokenizer's
    end-of-sequence token and `more_stop_ids` (a model's generation config may name more). Raises UserError for a
    tokenizer without a chat template, or one whose turns have no end token.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, more_stop_ids: Iterable[int] = ()) -> None:
        if not tokenizer.chat_template:
            raise UserError(
                f"The tokenizer of {tokenizer.name_or_path} has no chat template, so it is not known how to write a "
                "conversation. Use an instruct model, or put a file chat_template.jinja into the model's directory."
            )
        self._tokenizer = tokenizer
        self._known_roles: set[tuple[str, ...]] = set()
        self._closed_before: set[tuple[str, ...]] = set()
        self._knows_tools = False
        self._control = _pattern([])  # not known yet, and the placeholders rendered here contain none
        self._check_roles(("user", "assistant", "user"))
        # The first special token after the reply ends a turn; without any, the end-of-sequence token does.
        eos: int | None = tokenizer.eos_token_id
        at_the_end = self._first_special(self._render([QUESTION, REPLY], generate=False).partition(MARKER)[2])
        end_of_turn = eos if at_the_end is None else at_the_end
        if end_of_turn is None:
            raise UserError(
                f"The chat template of {tokenizer.name_or_path} closes an assistant's turn without a special token, "
                "and the tokenizer has no eos_token, so the model cannot end its turn. Set eos_token in "
                "tokenizer_config.json."
            )
        self.end_of_turn: int = end_of_turn
        self.stop_ids = frozenset({end_of_turn, *more_stop_ids, *(() if eos is None else (eos,))})
        # Whether the template itself ends a reply that another message follows; not all do.
        between = self._render([QUESTION, REPLY, QUESTION], generate=False).partition(MARKER)[2]
        self._template_closes = self._first_special(between) == end_of_turn
        # Tokens that separate turns are control tokens, even if the tokenizer does not mark them as special.
        added = tokenizer.added_tokens_decoder
        parting = {token for token in self._encode(between) if token in added and not added[token].content.isspace()}
        control = (token for number, token in added.items() if token.special or number in parting)
        self._control = _pattern(token.content for token in control)

    def opening(self, messages: Sequence[Message]) -> list[int]:
        """The token ids of a conversation's first messages and of the generation prompt.

        Raises UserError if the template refuses these roles or leaves a message out, or if the first message has tools
        and the template does not support them.
        """
        if messages and "tools" in messages[0]:
            self._check_tools()
        self._check_roles(tuple(message["role"] for message in messages))
        return self._encode(self._render(messages, generate=True))

    def continuation(self, messages: Sequence[Message], after: int) -> list[int]:
        """The token ids between the last sampled token, `after`, and the assistant's next turn; their loss mask is 0.

        They are the end of the sampled turn (without the end-of-turn token if that was sampled itself), the new
        messages, and the next generation prompt. Raises UserError as `opening` does, and if the template ends a turn
        before these messages in another way than before a user's.
        """
        roles = tuple(message["role"] for message in messages)
        self._check_roles(("user", "assistant", *roles))
        self._check_closed(roles)
        # Rendered after a placeholder for the reply: what follows the first marker is the continuation.
        token_ids = self._encode(self._render([QUESTION, REPLY, *messages], generate=True).partition(MARKER)[2])
        # If the policy sampled the end-of-turn token itself, the template's own must not follow it.
        if self._template_closes and after == self.end_of_turn:
            if after not in token_ids:
                raise self._not_closed(roles)
            return token_ids[token_ids.index(after) + 1 :]
        return token_ids

    def cut_excerpts(self, messages: Sequence[Message]) -> list[Message]:
        """The messages, with every excerpt cut to its maximal number of tokens."""
        return [self._cut_excerpt(message) for message in messages]

    def text(self, token_ids: Sequence[int]) -> str:
        """The text of token ids without special tokens: the reply that an environment sees."""
        decoded = self._tokenizer.decode(token_ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return cast(str, decoded)

    def full_text(self, token_ids: Sequence[int]) -> str:
        """The text of token ids with special tokens, for people who read rollouts."""
        return cast(str, self._tokenizer.decode(token_ids, clean_up_tokenization_spaces=False))

    def encode_conversation(self, messages: Sequence[Message]) -> tuple[list[int], list[bool]]:
        """The token ids of a whole conversation and its loss mask: true for assistant turns and their end tokens.

        The pieces are those of rollouts, so that supervised training and RL see the same sequences. Raises UserError
        unless the conversation begins with another role and ends with the assistant.
        """
        messages = self.cut_excerpts(messages)
        turns = [index for index, message in enumerate(messages) if message["role"] == "assistant"]
        if not turns or turns[0] == 0 or turns[-1] != len(messages) - 1:
            raise UserError(
                "A conversation to learn from must begin with a user or system message and end with an assistant "
                f"message; this one has the roles: {', '.join(message['role'] for message in messages) or 'none'}."
            )
        token_ids: list[int] = []
        mask: list[bool] = []
        for previous, turn in zip([None, *turns[:-1]], turns, strict=True):
            if previous is None:
                prompt = self.opening(messages[:turn])
            else:
                prompt = self.continuation(messages[previous + 1 : turn], after=self.end_of_turn)
            reply = [*self._encode(self._mark_controls(messages[turn]["content"])), self.end_of_turn]
            token_ids += prompt + reply
            mask += [False] * len(prompt) + [True] * len(reply)
        return token_ids, mask

    def _cut_excerpt(self, message: Message) -> Message:
        if "excerpt" not in message:
            return message
        excerpt, content, cut = message["excerpt"], message["content"], message.copy()
        begin, end = excerpt["begin"], excerpt["end"]
        text = shorten(content[begin:end], excerpt["max_tokens"], self._count_tokens)
        cut["content"] = f"{content[:begin]}{text}{content[end:]}"
        del cut["excerpt"]
        return cut

    def _count_tokens(self, text: str) -> int:
        return len(self._encode(self._mark_controls(text)))

    def _render(self, messages: Sequence[Message], generate: bool) -> str:
        plain = [{key: value for key, value in message.items() if key not in NOT_FOR_TEMPLATES} for message in messages]
        tools = messages[0].get("tools") if messages else None
        try:
            text = self._tokenizer.apply_chat_template(
                self._mark_controls(plain),
                tools=self._mark_controls(tools),
                tokenize=False,
                add_generation_prompt=generate,
            )
        except TEMPLATE_ERRORS as error:
            raise UserError(
                f"The chat template of {self._tokenizer.name_or_path} refuses a conversation with the roles "
                f"{', '.join(message['role'] for message in messages) or '(none)'}: {error}. Let the environment send "
                "other roles, for example the instructions as part of the first user message."
            ) from error
        return cast(str, text)

    def _check_roles(self, roles: tuple[str, ...]) -> None:
        """Raise UserError if the template leaves out a message of these roles; some do so silently.

        Numbered markers are rendered, once for each sequence of roles, and looked for in the text.
        """
        if roles in self._known_roles:
            return
        markers = [f"{MARKER}{index}." for index in range(len(roles))]
        messages = [{"role": role, "content": marker} for role, marker in zip(roles, markers, strict=True)]
        text = self._render(cast(list[Message], messages), generate=True)
        if lost := [role for role, marker in zip(roles, markers, strict=True) if marker not in text]:
            raise UserError(
                f"The chat template of {self._tokenizer.name_or_path} leaves out the {lost[0]} message of a "
                f"conversation with the roles {', '.join(roles)}. Let the environment send that text in another role."
            )
        self._known_roles.add(roles)

    def _check_closed(self, roles: tuple[str, ...]) -> None:
        """Raise UserError if the template does not end the reply before a message in the first of these roles.

        `continuation` would else take a later end-of-turn token for the reply's, and drop the message in between.
        """
        if not self._template_closes or roles in self._closed_before:
            return
        messages = [QUESTION, REPLY, *({"role": role, "content": NEXT} for role in roles)]
        text = self._render(cast(list[Message], messages), generate=True).partition(MARKER)[2].partition(NEXT)[0]
        if self.end_of_turn not in self._encode(text):
            raise self._not_closed(roles)
        self._closed_before.add(roles)

    def _not_closed(self, roles: tuple[str, ...]) -> UserError:
        end = self._tokenizer.convert_ids_to_tokens(self.end_of_turn)
        return UserError(
            f"The chat template of {self._tokenizer.name_or_path} closes an assistant's turn with {end} before a "
            f"user's message, and not before messages with the roles {', '.join(roles) or '(none)'}, so it is not "
            "known how they follow a reply. Let the environment send them in the role of the user, or take a model "
            "with another template."
        )

    def _check_tools(self) -> None:
        trouble = "" if self._knows_tools else tool_trouble(self._tokenizer)
        if not trouble and OPEN not in self.text(self._encode(OPEN)):
            trouble = f"writes {OPEN} as a special token, which is no part of a reply"
        if trouble:
            raise UserError(
                f"The chat template of {self._tokenizer.name_or_path} {trouble}, so this model cannot be offered any "
                'that way. Let the environment describe its tools in words (for wiki-search, `format = "tags"`), or '
                "take a model with such a template, as those of Qwen2.5 and Qwen3 have."
            )
        self._knows_tools = True

    def _first_special(self, text: str) -> int | None:
        special = {*self._tokenizer.all_special_ids, *self._tokenizer.added_tokens_decoder}
        return next((token for token in self._encode(text) if token in special), None)

    def _mark_controls(self, content: Any) -> Any:
        """A text, or a structure of texts, with marks around every control token that it spells, for `_encode`.

        The marks are two private-use characters, which are removed from texts that contain them.
        """
        return _templates().mark_control_tokens(content, self._control)

    def _encode(self, text: str) -> list[int]:
        """The token ids of a rendered text. Marked control tokens are encoded as plain text.

        No special tokens are added: the template writes them all, the first one included.
        """
        # The shortcut matters: the other branch loops over all added tokens, and some tokenizers have thousands.
        if _mark() not in text:
            return cast(list[int], self._tokenizer.encode(text, add_special_tokens=False))
        try:
            return cast(list[int], _templates().encode_marked_chat(self._tokenizer, text))
        except ValueError as error:
            raise UserError(f"A message cannot be written for {self._tokenizer.name_or_path}: {error}.") from error


def _templates() -> Any:
    """The module of transformers that marks control tokens.

    It is imported on first use: SLIME's contract tests replace transformers by a stub of few names, with which this
    module must load.
    """
    from transformers.utils import chat_template_utils

    return chat_template_utils


@functools.cache
def _mark() -> str:
    """The character that transformers puts before a marked control token."""
    return cast(str, _templates().mark_control_tokens("x", re.compile("x")))[0]


def _pattern(tokens: Iterable[str]) -> re.Pattern[str]:
    """A pattern that matches any of these tokens, the longest first; it never matches if there are none."""
    return re.compile("|".join(map(re.escape, sorted(tokens, key=len, reverse=True))) or "(?!)")
