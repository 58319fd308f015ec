"""The findings on the container engine, the judge and the index; no test depends on the machine that it runs on."""

from pathlib import Path

import pytest

from slimrl.errors import UserError
from slimrl.monitor.findings import Level
from slimrl_search.doctor import container, judge, search
from slimrl_search.services.judges import JudgeSettings
from tests.io.replying import Answer, Asked, server

NOWHERE = "http://127.0.0.1:9/v1"


@pytest.mark.parametrize(
    ("docker", "found"), [("", "docker is not on the PATH"), ("exec /bin/sleep 60", "gives no answer")]
)
def test_an_engine_that_is_missing_or_hangs_is_a_note(docker: str, found: str, tmp_path: Path, monkeypatch) -> None:
    if docker:
        (tmp_path / "docker").write_text(f"#!/bin/sh\n{docker}\n")
        (tmp_path / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("slimrl_search.services.container.ENGINE_S", 0.2)
    (engine,) = container.probe()
    assert engine.level is Level.NOTE and found in engine.found


@pytest.mark.parametrize(
    ("model", "models", "trouble", "level", "found"),
    [
        ("qwen", ["qwen"], "", Level.OK, "answers"),
        ("qwen", ["other"], "", Level.NOTE, "other"),
        ("qwen", [], "refused", Level.PROBLEM, "refused"),
        ("", [], "refused", Level.OK, "none is named"),
        ("", ["qwen3"], "", Level.OK, "qwen3"),
    ],
)
def test_a_judge_is_told_by_what_it_answers(model, models, trouble, level, found) -> None:
    one = judge.judge_finding(JudgeSettings(model, NOWHERE), models, trouble)
    assert one.level is level and found in one.found


@pytest.fixture
def variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file `.env` of the current directory, in which alone a judge may be named."""
    for name in ("JUDGE_MODEL", "JUDGE_BASE_URL", "JUDGE_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path / ".env"


def test_the_judge_is_read_from_a_file_of_variables(variables: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    variables.write_text(f"JUDGE_MODEL=qwen\nJUDGE_BASE_URL={NOWHERE}\n")
    (found,) = judge.probe()
    assert found.level is Level.PROBLEM and f"qwen at {NOWHERE} does not answer" in found.found
    monkeypatch.setenv("JUDGE_BASE_URL", "http://me:secret@127.0.0.1:9/v1")
    with pytest.raises(UserError) as error:
        judge.probe()
    assert "secret" not in str(error.value)


def test_a_judges_key_is_read_where_its_model_is(variables: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(asked: Asked) -> Answer:
        """Answer a request that has the judge's key, and refuse all others."""
        knows_it = asked.headers["Authorization"] == "Bearer judge-key-12345"
        return Answer(200 if knows_it else 401, {"data": [{"id": "qwen"}]})

    with server(answer) as (url, _):
        variables.write_text(f"JUDGE_MODEL=qwen\nJUDGE_BASE_URL={url}\nJUDGE_API_KEY=judge-key-12345\n")
        (found,) = judge.probe()
        assert (found.level, found.found) == (Level.OK, f"qwen at {url} answers")
        monkeypatch.setenv("JUDGE_API_KEY", "another-key-12345")  # the environment counts more
        (found,) = judge.probe()
        assert found.level is Level.PROBLEM and "401" in found.found and "key-12345" not in found.found


def test_an_index_in_memory_is_tried() -> None:
    pytest.importorskip("chromadb")
    assert search.chroma_finding(search.try_chroma()).level is Level.OK
    assert search.chroma_finding(["far", "near"]).level is Level.PROBLEM
    assert search.embedder_finding(None).level is Level.NOTE
