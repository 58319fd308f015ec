"""The weights of a judge: here, packaged, or from the Hub as huggingface_hub fetches them."""

from pathlib import Path

import httpx
import pytest
from huggingface_hub.errors import LocalEntryNotFoundError, RepositoryNotFoundError

from slimrl.errors import UserError
from slimrl.models.names import find_packaged_file
from slimrl_search.services import weights
from slimrl_search.services.weights import find_gguf, find_model

REFUSED = httpx.Response(404, request=httpx.Request("GET", "http://127.0.0.1:9"))
FILES = ["m-Q8_0.gguf", "m-q4_k_m-00001-of-00002.gguf", "m-q4_k_m-00002-of-00002.gguf", "mmproj-Q4_K_M.gguf", "a.txt"]


@pytest.mark.parametrize(
    ("files", "wanted", "found"),
    [
        (FILES, ":Q8_0", "m-Q8_0.gguf"),
        (FILES, ":q8_0", "m-Q8_0.gguf"),
        (FILES, "", "m-q4_k_m-00001-of-00002.gguf"),
        ([*FILES, "m-q4_k_m.gguf"], ":Q4_K_M", "m-q4_k_m.gguf"),
        (["x.Q4_K_M.gguf"], ":Q4_K_M", "x.Q4_K_M.gguf"),
        (["Q4_K_M/m-Q4_K_M.gguf"], ":Q4_K_M", "Q4_K_M/m-Q4_K_M.gguf"),
        (["IQ4_K_M/m-IQ4_K_M.gguf"], ":Q4_K_M", ""),
        (FILES[:2], ":Q4_K_M", ""),  # not all parts
        (FILES, ":Q2_K", ""),
        ([], ":Q4_K_M", ""),
    ],
)
def test_a_file_is_chosen_by_its_name_or_quantisation_with_all_its_parts(
    files: list[str], wanted: str, found: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for name in files:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    monkeypatch.setattr(weights, "snapshot_download", lambda *args, **filters: str(tmp_path))
    if found:
        assert find_gguf(f"owner/judge{wanted}") == tmp_path / found
    else:
        with pytest.raises(UserError, match=r"owner/judge has no whole \.gguf file .*owner/judge/tree/main"):
            find_gguf(f"owner/judge{wanted}")


def test_a_file_here_and_the_packaged_model_need_no_network(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("judge.gguf").touch()
    assert find_gguf("judge.gguf") == tmp_path / "judge.gguf"
    assert find_gguf("smollm2-135m") == find_packaged_file("smollm2-135m")
    assert find_model(str(tmp_path)) == str(tmp_path)
    assert (find_model("qwen3-4b"), find_model("owner/model")) == ("Qwen/Qwen3-4B", "owner/model")


@pytest.mark.parametrize("name", ["missing.gguf", "qwen", "a/b/c", "./weights/missing.gguf", "../weights/missing.gguf"])
def test_a_name_that_is_nothing_lists_those_that_are(name: str):
    with pytest.raises(UserError, match=r"JUDGE_MODEL is .*Known: qwen2\.5:3b.*owner/repository:Q8_0"):
        find_gguf(name)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (RepositoryNotFoundError("404", response=REFUSED), "there is no model owner/judge on the .* or it is private"),
        (httpx.ConnectError("All connection attempts failed"), "could not be fetched: All .* the download resumes"),
        (LocalEntryNotFoundError("no snapshot\nmore"), "could not be fetched: no snapshot Run"),
        (OSError("Consistency check failed"), "could not be fetched: Consistency"),
    ],
)
def test_what_the_hub_says_is_one_line_that_tells_what_to_do(error: Exception, said: str, monkeypatch):
    def fail(*_: object, **__: object) -> str:
        raise error

    monkeypatch.setattr(weights, "snapshot_download", fail)
    with pytest.raises(UserError, match=said) as raised:
        find_gguf("owner/judge")
    assert "\n" not in str(raised.value)
