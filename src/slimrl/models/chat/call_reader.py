"""Reads the tool calls of a reply in the form that `model.tool_calls` asks for, and rewrites them in one form.

Environments know one form, `<tool_call>{json}</tool_call>`, whatever the model writes: `CallReader.rewrite` gives them
the reply in this form. The sampled tokens and the reply in the conversation stay as they are.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from slimrl.models.chat.call_forms import ANYWHERE, FORMS, Block
from slimrl.models.chat.tags import OPEN
from slimrl.models.chat.thoughts import visible_span
from slimrl.models.chat.tool_calls import ToolCall, read_calls

AMBIGUOUS = "ambiguous"
NOT_OPEN = OPEN.replace("<", "< ")  # the opening tag as part of a text


@dataclass(frozen=True, slots=True)
class Reading:
    """The texts and calls of a reply, in order, and the form of the calls. The form is empty if there are no calls. It
    is `AMBIGUOUS` if the reply has several different calls to choose from; then all of it is text."""

    parts: list[str | ToolCall]
    form: str = ""

    @property
    def calls(self) -> list[ToolCall]:
        return [part for part in self.parts if isinstance(part, ToolCall)]


@dataclass(frozen=True, slots=True)
class CallReader:
    """A reader of calls. `own` is the form of the chat template, or empty if it has none. `setting` is `template`,
    `lenient` or the name of a form.

    A lenient reader tries every form, also within a pair of tags such as `<answer>`. It reads a call in another form
    than `own` only if the call's name is one of the tools' names. It never chooses: if a reply has different calls in
    several places, none of them counts. Calls in thoughts never count.
    """

    own: str = "hermes"
    setting: str = "template"

    @property
    def is_lenient(self) -> bool:
        return self.setting == "lenient"

    @property
    def form_to_write(self) -> str:
        """The form in which the model learns to write calls, and the only form of a reader that is not lenient."""
        return (self.own or "hermes") if self.setting in ("template", "lenient") else self.setting

    @property
    def marks(self) -> set[str]:
        """The marks around calls. A reply must show them, even if they are special tokens."""
        return {mark for name in (FORMS if self.is_lenient else [self.form_to_write]) for mark in FORMS[name].marks}

    def read(self, reply: str, names: Collection[str]) -> Reading:
        """Return the texts and calls of a whole reply. `names` are the names of the tools."""
        if self._reads_tags_only:
            parts = read_calls(reply)
            return Reading(parts, "hermes" if any(isinstance(part, ToolCall) for part in parts) else "")
        begin, end = visible_span(reply)
        readings = list(self._readings(reply[begin:end], names))
        distinct = {tuple(call.pair for block in blocks for call in block.calls) for _, blocks in readings}
        if len(distinct) != 1:
            return Reading([reply], AMBIGUOUS if distinct else "")
        form, blocks = readings[0]
        if self.is_lenient:
            blocks = [_with_tags(reply[begin:end], block) for block in blocks]
        return Reading(_split(reply, begin, blocks), form)

    def rewrite(self, reply: str, reading: Reading) -> str:
        """Return the reply with the calls of `reading`, and no others, in the form `hermes`."""
        if [call.pair for call in CallReader().read(reply, ()).calls] == [call.pair for call in reading.calls]:
            return reply
        return "\n".join(
            part.replace(OPEN, NOT_OPEN) if isinstance(part, str) else FORMS["hermes"].write([part])
            for part in reading.parts
        )

    @property
    def _reads_tags_only(self) -> bool:
        return self.form_to_write == "hermes" and not self.is_lenient

    def _readings(self, visible: str, names: Collection[str]) -> Iterator[tuple[str, Sequence[Block]]]:
        """Yield each reading of a text: the name of a form, and blocks of calls that belong together."""
        only = self.form_to_write
        for name, form in [*FORMS.items(), ("json", ANYWHERE)] if self.is_lenient else [(only, FORMS[only])]:
            blocks = form.scan(visible)
            for group in [blocks] if form.is_list else [[block] for block in blocks]:
                is_known = all(call.name in names for block in group for call in block.calls)
                if group and (is_known or not self.is_lenient or name == self.own):
                    yield name, group
            for block in blocks:  # no other form reads them, too
                visible = f"{visible[: block.begin]}{' ' * (block.end - block.begin)}{visible[block.end :]}"


def _with_tags(text: str, block: Block) -> Block:
    """Extend a block over a pair of tags that holds nothing else."""
    begin = max(0, text.rfind("<", 0, block.begin))
    tag = re.fullmatch(r"<(\w+)>", text[begin : block.begin].strip())
    closing = re.compile(rf"\s*+</{tag[1]}>").match(text, block.end) if tag else None
    return replace(block, begin=begin, end=closing.end()) if closing else block


def _split(reply: str, offset: int, blocks: Sequence[Block]) -> list[str | ToolCall]:
    """Return the calls of blocks and the texts around them, without the white space around calls. The positions of
    blocks count from `offset`."""
    parts: list[str | ToolCall] = []
    at = 0
    for block in blocks:
        parts += [reply[at : offset + block.begin].rstrip(), *block.calls]
        at = offset + block.end
    return [part for part in [*parts, reply[at:].rstrip()] if part]
