"""The finding on the judge that `.env` or the environment names; no test depends on the machine that it runs on."""

from pathlib import Path

import pytest

from slimrl.errors import UserError
from slimrl.monitor.findings import Level
from slimrl_search.doctor import judge
from slimrl_search.services.judges import JudgeSettings
from tests.io.replying import Answer, Asked, server


def test_a_judge_is_told_by_what_it_answers() -> None:
    settings = JudgeSettings("qwen", "http://127.0.0.1:9/v1")
    assert judge.judge_finding(settings, ["qwen"], "").level is Level.OK
    assert judge.judge_finding(settings, ["other"], "").level is Level.NOTE
    assert judge.judge_finding(settings, [], "refused").level is Level.PROBLEM
    none = JudgeSettings("", "http://127.0.0.1:9/v1")
    assert judge.judge_finding(none, [], "refused").level is Level.OK
    assert "qwen3" in judge.judge_finding(none, ["qwen3"], "").found


def test_the_judge_is_read_from_a_file_of_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".env").write_text("JUDGE_MODEL=qwen\nJUDGE_BASE_URL=http://127.0.0.1:9/v1\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("JUDGE_MODEL", raising=False)
    monkeypatch.delenv("JUDGE_BASE_URL", raising=False)
    (found,) = judge.probe()
    assert found.level is Level.PROBLEM and "qwen at http://127.0.0.1:9/v1 does not answer" in found.found
    monkeypatch.setenv("JUDGE_BASE_URL", "http://me:secret@127.0.0.1:9/v1")
    with pytest.raises(UserError) as error:
        judge.probe()
    assert "secret" not in str(error.value)


def test_a_judges_key_is_read_where_its_model_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("JUDGE_MODEL", "JUDGE_BASE_URL", "JUDGE_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)

    def answer(asked: Asked) -> Answer:
        """Answer a request that has the judge's key, and refuse all others."""
        knows_it = asked.headers["Authorization"] == "Bearer judge-key-12345"
        return Answer(200 if knows_it else 401, {"data": [{"id": "qwen"}]})

    with server(answer) as (url, _):
        (tmp_path / ".env").write_text(f"JUDGE_MODEL=qwen\nJUDGE_BASE_URL={url}\nJUDGE_API_KEY=judge-key-12345\n")
        (found,) = judge.probe()
        assert (found.level, found.found) == (Level.OK, f"qwen at {url} answers")
        monkeypatch.setenv("JUDGE_API_KEY", "another-key-12345")  # the environment counts more
        (found,) = judge.probe()
        assert found.level is Level.PROBLEM and "401" in found.found and "key-12345" not in found.found
