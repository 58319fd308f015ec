"""Names, docstrings and comments keep to the house rules; `tests/project/language.py` counts."""

from collections import Counter

import pytest

from tests.project.distributions import HOMES, files_of
from tests.project.language import (
    WORDY,
    comment_share,
    functions,
    is_participle,
    no_sentences,
    participles,
    sources,
    wordy,
)

pytestmark = pytest.mark.slow

MAX_PARTICIPLES = 0.01
MIN_COMMENTS = 0.05


def test_functions_are_named_by_verbs_or_by_what_they_return() -> None:
    texts = [path.read_text(encoding="utf-8") for path in sources()]
    found = [node.name for text in texts for node in participles(text)]
    assert len(found) < MAX_PARTICIPLES * sum(len(list(functions(text))) for text in texts), found


def test_docstrings_are_sentences() -> None:
    found = {str(path): no_sentences(path.read_text(encoding="utf-8")) for path in sources()}
    assert {name: places for name, places in found.items() if places} == {}


@pytest.mark.parametrize("package", HOMES)
def test_docstrings_and_comments_are_in_plain_english(package: str) -> None:
    counts, num_words = Counter[str](), 0
    for path in files_of(package):
        found, words, _ = wordy(path.read_text(encoding="utf-8"))
        counts, num_words = counts + found, num_words + words
    shares = {kind: 1000 * counts[kind] / num_words for kind in WORDY}
    assert {kind: share for kind, share in shares.items() if share > WORDY[kind][1]} == {}


@pytest.mark.parametrize("package", ["inference", "trainer", "models"])
def test_where_a_reader_decodes_a_comment_stands(package: str) -> None:
    shares = [comment_share(path.read_text(encoding="utf-8")) for path in sources(package)]
    num_comments, num_code = (sum(counts) for counts in zip(*shares, strict=True))
    assert num_comments >= MIN_COMMENTS * num_code


@pytest.mark.parametrize("word", ["written", "parsed", "merging", "held", "told"])
def test_a_participle_is_known_by_its_ending_or_by_heart(word: str) -> None:
    assert is_participle(word)


@pytest.mark.parametrize("word", ["seed", "read", "embed", "setting", "opening", "find", "red"])
def test_verbs_and_nouns_are_no_participles(word: str) -> None:
    assert not is_participle(word)


def test_places_are_found() -> None:
    source = '''"""Of a module."""\n\n\ndef written(text):\n    """Whoever reads."""\n    return text  # why\n'''
    assert [node.name for node in participles(source)] == ["written"]
    assert [text for _, text in no_sentences(source)] == ["Of a module.", "Whoever reads."]
    assert comment_share(source) == (1, 2)


def test_wordy_expressions_are_counted() -> None:
    found, num_words, places = wordy('"""What it says is no sum of those of others, and ends."""\n# it goes on\n')
    assert num_words == 15 and len(places) == 6
    assert found == {"what": 1, "tell, say, speak": 1, "is no": 1, "that of": 1, "come, begin, end, go on": 2}
