"""The packaged embedder, for real."""

import numpy as np
import pytest

from slimrl.errors import UserError
from slimrl_search.retrieval.embedding import SentenceEmbedder

pytestmark = pytest.mark.slow

pytest.importorskip("sentence_transformers", reason="the extra [search] is not installed")


@pytest.fixture(scope="module")
def embedder() -> SentenceEmbedder:
    return SentenceEmbedder()


def test_meaning_decides_and_not_letters(embedder):
    cat, kitten, senate, cot = embedder.embed(["A cat", "a young kitten", "the Roman senate", "A cot"])
    assert cat.shape == (384,) and cat.dtype == np.float32
    assert np.linalg.norm(cat) == pytest.approx(1.0, abs=1e-5)
    assert cat @ kitten > cat @ cot > cat @ senate


def test_a_text_has_the_same_vector_whatever_is_beside_it(embedder):
    texts = [f"Page {number} {'x' * number}" for number in range(40)]
    together = embedder.embed(texts)
    np.testing.assert_allclose(together[17], embedder.embed(texts[17:18])[0], atol=1e-5)


def test_a_model_that_is_not_installed_is_named(embedder, monkeypatch):
    assert embedder.fingerprint.startswith("all-MiniLM-L6-v2 ")
    monkeypatch.setattr("slimrl_search.retrieval.embedding.find_spec", lambda name: None)
    with pytest.raises(UserError, match="the embedder all-MiniLM-L6-v2 is not installed: "):
        SentenceEmbedder()
