"""The packaged embedder, for real."""

import json

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


def test_one_that_cannot_be_loaded_is_named(embedder, tmp_path):
    assert embedder.fingerprint.startswith("all-MiniLM-L6-v2 ")
    with pytest.raises(UserError, match=r"the embedder `.*` cannot be loaded: .*extra \[search\]"):
        SentenceEmbedder(str(tmp_path))


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("own.C", {}),
        ("sentence_transformers.models.Router", {"types": {"a": "own.C"}, "structure": {"query": ["a"]}}),
        ("sentence_transformers.models.WordEmbeddings", {"tokenizer_class": "own.C"}),
    ],
)
def test_an_embedder_s_own_code_is_not_run(kind, settings, tmp_path):
    (tmp_path / "modules.json").write_text(json.dumps([{"idx": 0, "name": "0", "path": "", "type": kind}]))
    for name in ("config.json", "router_config.json", "wordembedding_config.json"):
        (tmp_path / name).write_text(json.dumps({**settings, "parameters": {}}))
    (tmp_path / "own.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass C: pass\n")
    with pytest.raises(UserError, match=f"consists of `{kind}`.*which may run Python code of the directory"):
        SentenceEmbedder(str(tmp_path))
    assert not (tmp_path / "ran").exists()
