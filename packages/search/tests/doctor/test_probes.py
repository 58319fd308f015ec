"""The findings on the judge and the index; no test depends on the machine that it runs on."""

from pathlib import Path

import pytest

from slimrl.errors import UserError
from slimrl.monitor.findings import Level
from slimrl_search.doctor import judge, search
from tests.io.replying import Answer, Asked, server

NOWHERE = "http://127.0.0.1:9/v1"


@pytest.fixture
def variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file `.env` of the current directory, in which alone a judge may be named."""
    for name in ("JUDGE_MODEL", "JUDGE_BASE_URL", "JUDGE_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path / ".env"


@pytest.mark.parametrize(
    ("model", "key", "level", "found"),
    [
        ("qwen", "judge-key-12345", Level.OK, "qwen at URL answers"),
        ("other", "judge-key-12345", Level.NOTE, "does not list that model, but: qwen"),
        ("qwen", "another-key-12345", Level.PROBLEM, "401"),
        ("", "another-key-12345", Level.OK, "none is named"),
        ("", "judge-key-12345", Level.OK, "URL has qwen"),
    ],
)
def test_a_judge_is_told_by_what_it_answers(model: str, key: str, level: Level, found: str, variables: Path) -> None:
    def answer(asked: Asked) -> Answer:
        """Answer a request that has the judge's key, and refuse all others."""
        knows_it = asked.headers["Authorization"] == "Bearer judge-key-12345"
        return Answer(200 if knows_it else 401, {"data": [{"id": "qwen"}]})

    with server(answer) as (url, _):
        variables.write_text(f"JUDGE_MODEL={model}\nJUDGE_BASE_URL={url}\nJUDGE_API_KEY={key}\n")
        (one,) = judge.probe()
    assert one.level is level and found.replace("URL", url) in one.found and "key-12345" not in one.found


def test_the_environment_counts_more_than_the_file(variables: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    variables.write_text(f"JUDGE_MODEL=qwen\nJUDGE_BASE_URL={NOWHERE}\n")
    (found,) = judge.probe()
    assert found.level is Level.PROBLEM and f"qwen at {NOWHERE} does not answer" in found.found
    monkeypatch.setenv("JUDGE_BASE_URL", "http://me:secret@127.0.0.1:9/v1")
    with pytest.raises(UserError) as error:
        judge.probe()
    assert "secret" not in str(error.value)


def test_an_index_in_memory_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("chromadb")
    pytest.importorskip("sentence_transformers")
    assert search.probe()[0].level is Level.OK
    monkeypatch.setattr(search, "try_chroma", lambda: ["far", "near"])
    assert [one.level for one in search.probe()] == [Level.PROBLEM]
    monkeypatch.setattr(search, "find_spec", lambda name: None)
    assert [one.level for one in search.probe()] == [Level.NOTE]
