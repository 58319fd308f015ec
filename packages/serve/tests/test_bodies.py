"""Bodies are refused cheaply, at the first bad item of a list."""

from typing import Any

import pytest
from pydantic import ValidationError

from slimrl_serve.bodies import Body, ChatBody, CompletionBody, DetokenizeBody, TokenizeBody

USER = {"role": "user", "content": "hi"}
MANY = [None] * 1000


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (CompletionBody, {"prompt": MANY}),
        (CompletionBody, {"prompt": [MANY]}),
        (CompletionBody, {"prompt": [[1, None]] * 1000}),
        (CompletionBody, {"prompt": "a", "stop": MANY}),
        (CompletionBody, {"prompt": "a", "stop_token_ids": MANY}),
        (CompletionBody, {"prompt": "a", "logit_bias": {str(index): None for index in range(1000)}}),
        (ChatBody, {"messages": MANY}),
        (ChatBody, {"messages": [{"role": "user", "content": MANY}]}),
        (ChatBody, {"messages": [{**USER, "tool_calls": MANY}]}),
        (ChatBody, {"messages": [USER], "tools": MANY}),
        (TokenizeBody, {"messages": MANY}),
        (DetokenizeBody, {"tokens": MANY}),
    ],
)
def test_a_list_of_mistakes_is_a_few_errors(kind: type[Body], fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as caught:
        kind.model_validate(fields)
    assert caught.value.error_count() <= 5
