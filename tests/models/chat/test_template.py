"""Conversations in pieces: sampled tokens are kept, and the whole text is the chat template's."""

import random
from collections.abc import Sequence
from itertools import chain

import pytest
from transformers import PreTrainedTokenizerFast

from slimrl.errors import UserError
from slimrl.models.chat.template import ChatFormat
from slimrl.types import Message
from tests.models.chat.templates import END_OF_TURN, TEMPLATES, assistant, result, system, templated_tokenizer, user
from tests.tiny import tiny_tokenizer

# Every family but those whose template rewrites earlier turns.
FAITHFUL = sorted(TEMPLATES.keys() - {"qwen3"})
ASKED = [user("q"), assistant("A")]
SEARCH = {
    "type": "function",
    "function": {
        "name": "search",
        "description": "Finds pages.",
        "parameters": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
    },
}
OFFERED: Message = {**user("q"), "tools": [SEARCH]}


def chat_of(family: str, **settings: list[int]) -> tuple[PreTrainedTokenizerFast, ChatFormat]:
    tokenizer = templated_tokenizer(family)
    return tokenizer, ChatFormat(tokenizer, **settings)


def some_text(rng: random.Random) -> str:
    """Text without spaces at its ends, which several templates trim."""
    return "x" + "".join(rng.choices("ab 019\n\t.é漢🎉<|>{}", k=rng.randrange(12))) + "y"


def some_conversation(rng: random.Random, family: str) -> list[Message]:
    """Alternating turns; with a system message, tool messages and double user messages where the family allows."""
    free = family in ("chatml", "default-system", "llama3", "tools")
    messages = [system(some_text(rng))] if free and rng.random() < 0.5 else []
    for _ in range(rng.randrange(1, 4)):
        messages += [user(some_text(rng))]
        if free and rng.random() < 0.3:
            messages += [result(some_text(rng))]
        messages += [assistant(some_text(rng))]
    return messages


def rollout(chat: ChatFormat, messages: Sequence[Message], replies: Sequence[list[int]]) -> list[int]:
    """The token ids of an episode in which the policy samples exactly `replies`, up to the last of them."""
    turns = [index for index, message in enumerate(messages) if message["role"] == "assistant"]
    token_ids = chat.opening(messages[: turns[0]]) + replies[0]
    for turn, reply in zip(turns[1:], replies[1:], strict=True):
        token_ids += chat.continuation(messages[:turn], after=token_ids[-1]) + reply
    return token_ids


def one_by_one(tokenizer: PreTrainedTokenizerFast, text: str) -> list[int]:
    """A tokenisation that no tokenizer would choose, as sampling may well produce: every character on its own."""
    return [token for character in text for token in tokenizer.encode(character)]


@pytest.mark.parametrize("family", FAITHFUL)
@pytest.mark.parametrize("cut_off", [False, True])
def test_pieces_say_what_the_template_says(family: str, cut_off: bool) -> None:
    rng = random.Random(0)
    tokenizer, chat = chat_of(family)
    for _ in range(20):
        messages = some_conversation(rng, family)
        texts = [message["content"] for message in messages if message["role"] == "assistant"]
        end = [] if cut_off else [chat.end_of_turn]
        replies = [one_by_one(tokenizer, text) + end for text in texts]
        if family == "mistral":  # its template writes a space before every reply
            replies = [tokenizer.encode(" ") + reply for reply in replies]
        said = tokenizer.decode(rollout(chat, messages, replies))
        if family == "plain":  # nothing in its text marks the end of a turn, so the sampled end tokens stay visible
            said = said.replace("<eos>", "")
        expected = tokenizer.apply_chat_template(messages, tokenize=False)
        assert expected.startswith(said)
        assert expected[len(said) :].strip() in ("", END_OF_TURN.get(family, "<|im_end|>"))


@pytest.mark.parametrize("family", sorted(TEMPLATES))
def test_supervised_sequence_is_the_rollouts_with_replies_as_mask(family: str) -> None:
    rng = random.Random(1)
    tokenizer, chat = chat_of(family, more_stop_ids=[7])
    assert tokenizer.convert_ids_to_tokens(chat.end_of_turn) == END_OF_TURN.get(family, "<|im_end|>")
    assert chat.stop_ids == {chat.end_of_turn, tokenizer.eos_token_id, 7}
    for _ in range(10):
        messages = some_conversation(rng, family)
        texts = [message["content"] for message in messages if message["role"] == "assistant"]
        lead = " " if family == "mistral" else ""
        replies = [[*tokenizer.encode(lead + text), chat.end_of_turn] for text in texts]
        token_ids, mask = chat.encode_conversation(messages)
        assert token_ids == rollout(chat, messages, replies)
        assert len(mask) == len(token_ids)
        assert [token for token, trained in zip(token_ids, mask, strict=True) if trained] == list(chain(*replies))


def test_sampled_tokens_and_thoughts_are_kept_where_the_template_would_change_them() -> None:
    for family, text in {"chatml": "The quick brown fox", "qwen3": "<think>\nhm\n</think>\n\nA"}.items():
        tokenizer, chat = chat_of(family)
        reply = [*one_by_one(tokenizer, text), chat.end_of_turn]
        assert family != "chatml" or tokenizer.encode(text) != reply[:-1]
        opening = chat.opening([user("q")])
        token_ids = rollout(chat, [user("q"), assistant(""), user("r"), assistant("")], [reply, [9]])
        assert token_ids[len(opening) : len(opening) + len(reply)] == reply
        assert tokenizer.decode(token_ids).count("<think>") == text.count("<think>")


NEXT = "\n<|im_start|>user\nr<|im_end|>\n<|im_start|>assistant\n"


@pytest.mark.parametrize(
    ("family", "after", "written"),
    [
        pytest.param("chatml", 9, f"<|im_end|>{NEXT}", id="completed after a cut"),
        pytest.param("chatml", 2, NEXT, id="not repeated after a stop"),
        pytest.param("llama3", 0, "<|eot_id|><|start_header_id|>user", id="completed after another stop token"),
    ],
)
def test_the_end_of_a_turn_stands_once(family: str, after: int, written: str) -> None:
    tokenizer, chat = chat_of(family, more_stop_ids=[0])
    assert tokenizer.decode(chat.continuation([*ASKED, user("r")], after)).startswith(written)


def test_end_tokens_in_a_message_are_not_taken_for_the_replys_and_no_text_shows_them() -> None:
    _, chat = chat_of("plain")
    token_ids = chat.continuation([*ASKED, user("say <eos> twice")], after=chat.end_of_turn)
    assert chat.text(token_ids).startswith("\nuser: say")
    tokenizer, chat = chat_of("chatml")
    assert chat.text([*tokenizer.encode(" a , b .\n"), chat.end_of_turn]) == " a , b .\n"


REFUSED = {
    "system in gemma": ("gemma", "opening", [system("s"), user("q")], r"roles system, user: System role not supported"),
    "two users in gemma": ("gemma", "continuation", [*ASKED, user("q"), user("r")], "must alternate"),
    "result in mistral": ("mistral", "continuation", [*ASKED, result("42")], "leaves out the tool message"),
    **{
        f"tools in {family}": (family, "opening", [OFFERED], r"does not write tools.*`format = \"tags\"`")
        for family in sorted(TEMPLATES.keys() - {"tools"})
    },
    **{
        f"nothing to learn {number}": ("chatml", "encode_conversation", messages, "end with an assistant message")
        for number, messages in enumerate([[], [user("q")], [assistant("a")], [*ASKED, user("r")]])
    },
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_conversation_that_cannot_be_written_is_a_clear_error(name: str) -> None:
    family, method, messages, message = REFUSED[name]
    chat = chat_of(family)[1]
    call = {
        "opening": chat.opening,
        "continuation": lambda messages: chat.continuation(messages, after=chat.end_of_turn),
        "encode_conversation": chat.encode_conversation,
    }
    with pytest.raises(UserError, match=message):
        call[method](messages)


def test_a_tokenizer_that_cannot_write_or_read_turns_is_refused() -> None:
    with pytest.raises(UserError, match=r"chat_template\.jinja"):
        ChatFormat(tiny_tokenizer(chat_template=None))
    tokenizer = templated_tokenizer("plain")
    tokenizer.eos_token = None
    with pytest.raises(UserError, match="eos_token"):
        ChatFormat(tokenizer)


def test_an_episode_with_tools_says_what_the_template_says() -> None:
    tokenizer, chat = chat_of("tools")
    call = '<tool_call>\n{"name": "search", "arguments": {"query": "x"}}\n</tool_call>'
    token_ids, _ = chat.encode_conversation([OFFERED, assistant(call), result("1"), result("2"), assistant("A")])
    calls = [{"function": {"name": "search", "arguments": {"query": "x"}}}]
    written: Message = {"role": "assistant", "content": "", "tool_calls": calls}
    whole = [user("q"), written, result("1"), result("2"), assistant("A")]
    assert tokenizer.decode(token_ids) + "\n" == tokenizer.apply_chat_template(whole, tools=[SEARCH], tokenize=False)


def test_an_excerpt_is_cut_to_its_tokens_and_nothing_else() -> None:
    tokenizer, chat = chat_of("chatml")
    text = "One two. Three four! " * 50
    message: Message = {**user(f"<{text}>"), "excerpt": {"begin": 1, "end": 1 + len(text), "max_tokens": 40}}
    fitted, whole = chat.cut_excerpts([message, user("q" * 1000)])
    kept, note = fitted["content"].rsplit("\n", 1)
    assert 20 < len(tokenizer.encode(kept[1:])) <= 40 and kept.endswith(("two.", "four!")) and kept[0] == "<"
    assert note == f"[{len(text) - len(kept)} more characters were left out]>"
    assert "excerpt" not in fitted and whole == user("q" * 1000)
    assert chat.encode_conversation([message, assistant("A")]) == chat.encode_conversation([fitted, assistant("A")])
