"""Reads the tool calls of a reply in the form that `model.tool_calls` asks for, and rewrites them in one form.

Environments know one form, `<tool_call>{json}</tool_call>`, whatever the model writes: `CallReader.rewrite` gives them
the reply in this form. The sampled tokens and the reply in the conversation stay as they are.

A form is a mark in front of the calls, the calls as JSON or as Python, and a mark behind them. Forms without marks are
the whole reply. `FORMS` has the forms in which families of models write calls. They are searched in the visible part of
a reply, without thoughts.

    FORMS["json"].scan('{"name": "add", "arguments": {"a": 1}}')     one block with one call, add(a=1)
    FORMS["lfm"].scan("<|tool_call_start|>[add(a=1), add(a=2)]<|tool_call_end|>")    one block with two calls
"""

import json
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from slimrl.io.rows import DECODER
from slimrl.models.chat.python_calls import parse_python_calls, python_call
from slimrl.models.chat.thoughts import CLOSE, OPEN, visible_span
from slimrl.models.chat.tool_calls import KEYS, ToolCall, call_of, read_calls

AMBIGUOUS = "ambiguous"
NOT_OPEN = OPEN.replace("<", "< ")  # the opening tag as part of a text

Body = Callable[[str, int, str], tuple[list[ToolCall], int]]
"""A function that reads calls at a position of a text, up to the mark behind them, and returns them and their end. It
raises ValueError if there are none."""

MAX_MARKS = 1000  # marks in front of calls, after which a reply is not searched further
MAX_FAILURES = 32  # the same for marks without the Python calls that could follow them
SEPARATORS = " \t\r\n;,"
CALL_START = re.compile(r"\s*\[?\s*[^\W\d][\w.]*\(")  # most texts need not be parsed as Python
# Python up to a closing mark outside of quoted texts.
QUOTED = r"""(?P<body>(?:[^"']|"(?:[^"\\]|\\.)*+"|'(?:[^'\\]|\\.)*+')*?)"""


@dataclass(frozen=True, slots=True)
class Block:
    """The calls in the characters `begin` to `end` of a text."""

    begin: int
    end: int
    calls: tuple[ToolCall, ...]


def _read_json(text: str, at: int, closing: str, keys: Sequence[str] = KEYS) -> tuple[list[ToolCall], int]:
    """Read an object or a list of objects. Calls within any other JSON, or within broken JSON, do not count."""
    value, end = _decode(text, at)
    try:
        return [call_of(one, keys) for one in (value if isinstance(value, list) else [value])], end
    except ValueError as error:
        raise json.JSONDecodeError(str(error), text, end) from error


def _decode(text: str, at: int) -> tuple[Any, int]:
    """Return the JSON value at a position, and its end. Raise JSONDecodeError for other text."""
    try:
        return DECODER.raw_decode(text, at)
    except json.JSONDecodeError:
        raise
    except (ValueError, KeyError, RecursionError) as error:  # a huge number, a key twice, nested too deeply
        raise json.JSONDecodeError(str(error), text, len(text)) from error


def _read_lines(text: str, at: int, closing: str, keys: Sequence[str] = KEYS) -> tuple[list[ToolCall], int]:
    """Read objects or lists on lines of their own, or with semicolons or commas between them."""
    calls: list[ToolCall] = []
    while text.startswith(("{", "["), at):
        found, end = _read_json(text, at, closing, keys)
        calls += found
        at = next((place for place in range(end, len(text)) if text[place] not in SEPARATORS), len(text))
    return calls, at


def _read_python(text: str, at: int, closing: str) -> tuple[list[ToolCall], int]:
    """Read Python calls with keywords. Positional arguments have no names, so they are refused."""
    match = re.compile(QUOTED + (re.escape(closing) or r"\Z"), re.DOTALL).match(text, at)
    if match is None or not CALL_START.match(match["body"]):
        raise ValueError("no call, or no closing mark")
    calls = parse_python_calls(match["body"])
    if any(positional for _, positional, _ in calls):
        raise ValueError("positional arguments")
    return [call_of({"name": name, "arguments": keywords}) for name, _, keywords in calls], match.end("body")


def _read_named(text: str, at: int, closing: str) -> tuple[list[ToolCall], int]:
    """Read a name, `[ARGS]` and an object, or JSON."""
    head = re.compile(r"(?P<name>[\w.-]+)(?:\[CALL_ID\]\w*)?\[ARGS\]\s*").match(text, at)
    if head is None:
        return _read_json(text, at, closing)
    arguments, end = _decode(text, head.end())
    return [call_of({"name": head["name"], "arguments": arguments})], end


def _read_any(text: str, at: int, closing: str) -> tuple[list[ToolCall], int]:
    """Read JSON or Python."""
    is_json = re.compile(r"\[?\s*\{").match(text, at)
    return (_read_lines if is_json else _read_python)(text, at, closing)


@dataclass(frozen=True, slots=True)
class Form:
    """A form of calls. `left` and `right` are the marks around calls, as `write` spells them. `opening` is a pattern
    that replaces `left` for reading. With `is_whole` the calls are the whole text. `is_list` means that several blocks
    are a list of calls; otherwise they are different readings. `spelling` is how `write` spells the calls. `within` are
    marks inside of a block."""

    left: str
    body: Body
    right: str = ""
    opening: str = ""
    is_whole: bool = False
    is_list: bool = True
    spelling: Literal["lines", "each", "list", "python"] = "lines"
    key: str = "arguments"
    within: tuple[str, ...] = ()

    @property
    def marks(self) -> list[str]:
        """The marks around and within calls."""
        return [mark for mark in (self.left.strip(), self.right.strip(), *self.within) if mark]

    def scan(self, text: str) -> list[Block]:
        """Return the blocks of calls in a text, from left to right."""
        closing = self.right.strip()
        begin, end_of_text = (r"\A\s*", r"\Z") if self.is_whole else ("", "")
        opening = re.compile(f"{begin}(?:{self.opening or re.escape(self.left.strip())})\\s*")
        behind = re.compile(rf"\s*+{re.escape(closing)}{end_of_text}")
        blocks: list[Block] = []
        at, num_failures = 0, 0
        for _ in range(MAX_MARKS):
            mark = opening.search(text, at)
            if mark is None or at > len(text) or num_failures == MAX_FAILURES:
                break
            at = mark.end()
            try:
                calls, end = self.body(text, at, closing)
            except json.JSONDecodeError as error:
                at = max(at, error.pos)
            except ValueError:
                num_failures += 1  # Python must be read from every mark anew
            else:
                if calls and (match := behind.match(text, end)):
                    blocks.append(Block(mark.start(), match.end(), tuple(calls)))
                    at = match.end()
            at += at == mark.start()  # some marks are empty
        return blocks

    def write(self, calls: Sequence[ToolCall]) -> str:
        """Return the text of calls."""
        values = [{"name": call.name, self.key: call.values} for call in calls]
        texts = [json.dumps(value, ensure_ascii=False) for value in values]
        if self.spelling == "each":
            return "\n".join(f"{self.left}{text}{self.right}" for text in texts)
        if self.spelling == "list":
            texts = [json.dumps(values, ensure_ascii=False)]
        elif self.spelling == "python":
            texts = [f"[{', '.join(python_call(call.name, (), dict(call.values)) for call in calls)}]"]
        joined = "\n".join(texts)
        return f"{self.left}{joined}{self.right}"


# Forms of whole replies precede the others, because a mark within their strings is text. The form of a chat template is
# the first form that reads the template's own calls.
FORMS = {
    "llama": Form("", partial(_read_lines, keys=["parameters"]), "", r"(?:<\|python_tag\|>)?", True, key="parameters"),
    "json": Form("", _read_lines, is_whole=True),
    "python": Form("", _read_python, is_whole=True, spelling="python"),
    "hermes": Form(f"{OPEN}\n", _read_json, f"\n{CLOSE}", spelling="each"),
    "mistral": Form("[TOOL_CALLS]", _read_named, spelling="list", within=("[ARGS]", "[CALL_ID]")),
    "phi": Form("<|tool_call|>", _read_json, "<|/tool_call|>", spelling="list"),
    "granite": Form("<|tool_call|>", _read_json, "", rf"(?:<\|tool_call\|>|{OPEN})(?=\s*\[)", spelling="list"),
    "lfm": Form("<|tool_call_start|>", _read_any, "<|tool_call_end|>", spelling="python"),
    "smollm": Form("<code>\n", _read_python, "\n</code>", spelling="python"),
    "fenced": Form("```json\n", _read_any, "\n```", r"```(?:\w*[ \t]*\n|(?:json|python|tool_code)?)", is_list=False),
}
# JSON objects anywhere in a text, which only a lenient reader looks for.
ANYWHERE = Form("", _read_json, opening=r'(?=\{\s*"|\[\s*\{)', is_list=False)


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
