"""An index that cannot be written to: what is copied of it, and what is said where that has no room."""

import os
from pathlib import Path
from typing import Any

import pytest

from packages.search.tests.retrieval.test_index import TITLES, Bars, Letters, built, corpus_of
from slimrl.errors import UserError
from slimrl_search.retrieval import readonly
from slimrl_search.retrieval.index import TitleIndex, build_index
from slimrl_search.retrieval.readonly import DATABASE, writable

pytest.importorskip("chromadb", reason="the extra [search] is not installed")


@pytest.fixture
def read_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory in which nothing can be written to, as far as can be asked: whoever is root is let write anyway."""
    access = os.access

    def asked(path: Any, mode: int) -> bool:
        return access(path, mode) and not (mode & os.W_OK and Path(path).is_relative_to(tmp_path / "read-only"))

    monkeypatch.setattr(os, "access", asked)
    (tmp_path / "read-only").mkdir()
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    return tmp_path / "read-only"


def test_an_index_that_can_be_written_to_is_used_itself(tmp_path: Path) -> None:
    build_index(tmp_path / "chroma", corpus_of(tmp_path), Letters(), Bars())
    assert writable(tmp_path / "chroma") == tmp_path / "chroma"


def test_of_another_the_database_is_copied_and_the_vectors_are_not(tmp_path: Path, read_only: Path) -> None:
    corpus = corpus_of(tmp_path)
    build_index(read_only / "chroma", corpus, Letters(), Bars())
    place = built(read_only)
    before = (place / DATABASE).read_bytes()
    copy = writable(read_only / "chroma")
    assert copy.is_relative_to(tmp_path / "tmp")
    assert (copy / place.name / DATABASE).stat().st_size <= (place / DATABASE).stat().st_size
    vectors = [path for path in (copy / place.name).iterdir() if path.name != DATABASE]
    assert vectors and all(path.is_symlink() for path in vectors)
    index = TitleIndex(copy, corpus, Letters())
    try:
        assert index.search("apollo eleven", 3)[0] == ("apollo_11", "Apollo 11")
        assert len(index.search("x", 100)) == len(TITLES)
    finally:
        index.close()
    assert before == (place / DATABASE).read_bytes()


def test_too_little_room_is_told_before_it_is_filled(
    tmp_path: Path, read_only: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build_index(read_only / "chroma", corpus_of(tmp_path), Letters(), Bars())
    monkeypatch.setattr(readonly, "ROOM_BYTES", 2**62)
    with pytest.raises(UserError, match="In the container raise DOCKER_TMP_LIMIT"):
        writable(read_only / "chroma")
    assert not list((tmp_path / "tmp").rglob(DATABASE))


def test_a_damaged_database_is_told(tmp_path: Path, read_only: Path) -> None:
    build_index(read_only / "chroma", corpus_of(tmp_path), Letters(), Bars())
    (built(read_only) / DATABASE).write_bytes(b"no database" * 1000)
    with pytest.raises(UserError, match=r"cannot be copied.*not a database"):
        writable(read_only / "chroma")
