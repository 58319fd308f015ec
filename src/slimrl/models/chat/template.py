"""Conversations as token ids, piece by piece: the opening, then after every sampled turn the continuation.

Nothing that was sampled is ever tokenised again, and earlier turns are never rendered again; so what the policy sees in
its next turn is exactly what it sampled, even where the chat template would rewrite history (strip `<think>` blocks,
trim spaces). The pieces come from the tokenizer's own chat template, by rendering it around a marker. Knows nothing of
models or environments.

Control tokens, those that the tokenizer marks as special or that part turns from one another, come from the template
and from the policy alone. Where a message or a tool's description spells one (a page that says `<|im_end|>`), its
characters are encoded, and no turn is forged. Tokens that are pieces of text (`<think>` and `<tool_call>` of Qwen3)
stay such tokens wherever they stand; and where a template parts turns by plain text, a message can still spell that.
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

# `MARKER` stands for an assistant's reply, or (numbered) for any message, when the template is rendered only to see its
# shape.
NOT_FOR_TEMPLATES = ("tools", "excerpt")
QUESTION: Message = {"role": "user", "content": "question"}
REPLY: Message = {"role": "assistant", "content": MARKER}
NEXT = f"{MARKER}next"  # a message behind the reply


class ChatFormat:
    """The chat template of one tokenizer, cut into pieces of token ids.

    Two turns in ChatML; `|` parts the pieces, and what stands in brackets was sampled:

        <start>user q<end> <start>assistant | [A <end>] | <start>user wrong<end> <start>assistant | [B <end>]
        opening([q])                                      continuation([wrong], after=<end>)

    `end_of_turn` is the token that the template closes an assistant's turn with; `stop_ids` also holds the tokenizer's
    end of sequence and the caller's `more_stop_ids` (a model's generation config may know more).
    Raises UserError for a tokenizer without a chat template, or one whose turns have no end token.
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
        self._control = _pattern([])  # the messages that are rendered here spell none
        self._check_roles(("user", "assistant", "user"))
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
        between = self._render([QUESTION, REPLY, QUESTION], generate=False).partition(MARKER)[2]
        self._template_closes = self._first_special(between) == end_of_turn
        # Some tokenizers do not mark these as special.
        added = tokenizer.added_tokens_decoder
        parting = {token for token in self._encode(between) if token in added and not added[token].content.isspace()}
        control = (token for number, token in added.items() if token.special or number in parting)
        self._control = _pattern(token.content for token in control)

    def opening(self, messages: Sequence[Message]) -> list[int]:
        """Token ids of the conversation so far, up to where the assistant begins to speak.

        Raises UserError if the template refuses these roles, leaves a message out, or does not know tools if there are
        any on the first message.
        """
        if messages and "tools" in messages[0]:
            self._check_tools()
        self._check_roles(tuple(message["role"] for message in messages))
        return self._encode(self._render(messages, generate=True))

    def continuation(self, messages: Sequence[Message], after: int) -> list[int]:
        """Token ids from behind the last sampled token, `after`, to where the assistant speaks again; mask 0 for all.

        First whatever closes the turn (all of it if the turn was cut off, the rest of it if `after` is the end-of-turn
        token), then the new messages and the next generation prompt. Raises UserError as `opening` does, and if the
        template closes a turn in another way before these messages than it does before a user's.
        """
        roles = tuple(message["role"] for message in messages)
        self._check_roles(("user", "assistant", *roles))
        self._check_closed(roles)
        # The first marker is the reply's; a later message may quote it.
        token_ids = self._encode(self._render([QUESTION, REPLY, *messages], generate=True).partition(MARKER)[2])
        if self._template_closes and after == self.end_of_turn:
            if after not in token_ids:
                raise self._not_closed(roles)
            return token_ids[token_ids.index(after) + 1 :]
        return token_ids

    def cut_excerpts(self, messages: Sequence[Message]) -> list[Message]:
        """The messages with their excerpts cut to as many tokens as they may have."""
        return [self._cut_excerpt(message) for message in messages]

    def text(self, token_ids: Sequence[int]) -> str:
        """What the tokens say, without special tokens: the reply that an environment gets to see."""
        decoded = self._tokenizer.decode(token_ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return cast(str, decoded)

    def full_text(self, token_ids: Sequence[int]) -> str:
        """What the tokens are, special tokens included: for a person who reads a rollout."""
        return cast(str, self._tokenizer.decode(token_ids, clean_up_tokenization_spaces=False))

    def encode_conversation(self, messages: Sequence[Message]) -> tuple[list[int], list[bool]]:
        """Token ids of a whole conversation and the mask of those to train: every assistant turn with its end token.

        Built from the pieces that rollouts are built from, so fine-tuning and RL see the same sequences. The
        conversation must begin with another role and end with the assistant's (UserError otherwise).
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
        excerpt, content, fitted = message["excerpt"], message["content"], message.copy()
        begin, end = excerpt["begin"], excerpt["end"]
        text = shorten(content[begin:end], excerpt["max_tokens"], self._count_tokens)
        fitted["content"] = f"{content[:begin]}{text}{content[end:]}"
        del fitted["excerpt"]
        return fitted

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
        """Render numbered markers in these roles, once, and see that none is missing: templates drop roles silently."""
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
        """Render markers once, and see that the reply is closed before a message in the first of these roles: a later
        closing would be taken for the reply's, and the message left out."""
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
        """A text, or whatever holds texts, with marks around the control tokens that they spell, for `_encode`. The
        marks are two private-use characters, which are taken out of texts that have them."""
        return _templates().mark_control_tokens(content, self._control)

    def _encode(self, text: str) -> list[int]:
        """The template writes its own control tokens, the first one included; what is marked is encoded as text."""
        if _mark() not in text:  # the rest goes through all added tokens, of which some tokenizers have thousands
            return cast(list[int], self._tokenizer.encode(text, add_special_tokens=False))
        try:
            return cast(list[int], _templates().encode_marked_chat(self._tokenizer, text))
        except ValueError as error:
            raise UserError(f"A message cannot be written for {self._tokenizer.name_or_path}: {error}.") from error


def _templates() -> Any:
    """Imported where it is used: SLIME's contract tests put a stub of few names in the place of transformers, with
    which what they import must load."""
    from transformers.utils import chat_template_utils

    return chat_template_utils


@functools.cache
def _mark() -> str:
    """What transformers puts before a control token."""
    return cast(str, _templates().mark_control_tokens("x", re.compile("x")))[0]


def _pattern(tokens: Iterable[str]) -> re.Pattern[str]:
    """Any of these tokens, the longest first; nothing if there are none."""
    return re.compile("|".join(map(re.escape, sorted(tokens, key=len, reverse=True))) or "(?!)")
