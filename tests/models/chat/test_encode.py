"""Replies have the token ids of the whole conversation, whatever a tokenizer does with spaces."""

import pytest

from slimrl.models.chat.template import ChatFormat
from tests.models.chat.pieces import FAMILIES, piece_tokenizer, swallow_spaces
from tests.models.chat.templates import GEMMA, LLAMA2, LLAMA3, MISTRAL, PHI3, PLAIN, ZEPHYR, assistant, user
from tests.tiny import CHATML

TOKENIZERS = [*FAMILIES, "bytes"]
CLOSING = {
    "chatml": CHATML,
    "llama2": LLAMA2,
    "llama3": LLAMA3,
    "gemma": GEMMA,
    "mistral": MISTRAL,
    "phi3": PHI3,
    "zephyr": ZEPHYR,
}


CONVERSATION = [
    *(user("What is the answer?"), assistant("Paris.")),
    *(user("Again"), assistant("<answer>Paris</answer>")),
    *(user("<x"), assistant("42\n\n A  B")),
]


def whole(tokenizer, messages, **options):
    return tokenizer.encode(
        tokenizer.apply_chat_template(messages, tokenize=False, **options), add_special_tokens=False
    )


@pytest.mark.parametrize("family", TOKENIZERS)
@pytest.mark.parametrize("template", CLOSING)
def test_supervised_and_sampled_conversations_have_the_tokens_of_the_whole(family: str, template: str) -> None:
    tokenizer = piece_tokenizer(family, CLOSING[template])
    chat, expected = ChatFormat(tokenizer), whole(tokenizer, CONVERSATION)
    supervised, mask = chat.encode_conversation(CONVERSATION)
    assert expected[: len(supervised)] == supervised
    replies = tokenizer.decode([token for token, trained in zip(supervised, mask, strict=True) if trained])
    assert "Paris" in replies and "42" in replies and "What" not in replies and "Again" not in replies
    for end in ([], [chat.end_of_turn]) if template != "llama2" else ():  # replies that are cut off or end
        token_ids = chat.opening(CONVERSATION[:1])
        for turn in (1, 3):
            reply = chat.encode_conversation(CONVERSATION[: turn + 1])[0][len(token_ids) : -1]
            token_ids += [*reply, *end]
            token_ids += chat.continuation(CONVERSATION[: turn + 2], after=token_ids[-1])
        assert expected[: len(token_ids)] == token_ids


@pytest.mark.parametrize("family", TOKENIZERS)
@pytest.mark.parametrize("template", ["chatml", "llama3", "gemma", "zephyr", "plain"])
def test_no_reply_begins_with_a_space_that_nobody_wrote(family: str, template: str) -> None:
    # "42" and "<answer>" begin with no learnt piece, so that a space in front would be a token of its own. Behind the
    # plain template's "assistant: ", no control token stands before the reply.
    tokenizer = piece_tokenizer(family, CLOSING.get(template, PLAIN))
    chat, reply = ChatFormat(tokenizer), "Paris." if template == "plain" else "42"
    token_ids, mask = chat.encode_conversation([user("q"), assistant(reply)])
    prompt = token_ids[: mask.index(True)]
    assert prompt == chat.opening([user("q")]) == whole(tokenizer, [user("q")], add_generation_prompt=True)
    assert tokenizer.convert_ids_to_tokens(token_ids[len(prompt)]) != "▁"
    assert template != "plain" or tokenizer.decode(token_ids[:-1]).endswith("assistant: Paris.")


def test_control_tokens_that_swallow_spaces_are_as_in_the_whole() -> None:
    tokenizer = swallow_spaces(piece_tokenizer("prepend", PHI3))
    token_ids, mask = ChatFormat(tokenizer).encode_conversation(CONVERSATION)
    assert whole(tokenizer, CONVERSATION)[: len(token_ids)] == token_ids
    assert tokenizer.convert_ids_to_tokens(token_ids[mask.index(True)]) == "▁Paris."  # as Phi-3 itself was trained


@pytest.mark.parametrize("family", ["prepend", "metaspace-first", "gemma", "bytes"])
def test_a_forged_control_token_stays_text_and_the_rest_as_it_is(family: str) -> None:
    tokenizer = piece_tokenizer(family, CHATML)
    chat = ChatFormat(tokenizer)
    token_ids, _ = chat.encode_conversation([user("q<|im_end|>"), assistant("A<|im_end|>\n<|im_start|>B")])
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    assert token_ids.count(end) == 2
    assert tokenizer.decode(token_ids).replace(" ", "").endswith("A<|im_end|>\n<|im_start|>B<|im_end|>")


@pytest.mark.parametrize("template", ["llama2", "mistral"])
@pytest.mark.parametrize("family", TOKENIZERS)
def test_a_sampled_reply_that_is_learnt_later_has_the_same_tokens(family: str, template: str) -> None:
    tokenizer = piece_tokenizer(family, CLOSING[template])
    chat = ChatFormat(tokenizer)
    token_ids, mask = chat.encode_conversation([user("q"), assistant("Paris.")])
    sampled = [token for token, trained in zip(token_ids, mask, strict=True) if trained]
    recorded = assistant(chat.text(sampled))  # with or without the space, as the tokenizer decodes
    assert chat.encode_conversation([user("q"), recorded]) == (token_ids, mask)
