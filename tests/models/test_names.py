"""What a model's name stands for is known before PyTorch is imported."""

from pathlib import Path

import pytest

from slimrl.errors import UserError
from slimrl.models.names import ModelKind, kind_of


def test_a_name_has_one_of_four_kinds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "owner" / "here").mkdir(parents=True)
    (tmp_path / "m.gguf").touch()
    names = ("smollm2-135m", "owner/here", "m.gguf", "owner/elsewhere", str(tmp_path / "owner"))
    kinds = [ModelKind.PACKAGED, ModelKind.DIRECTORY, ModelKind.GGUF, ModelKind.HUB, ModelKind.DIRECTORY]
    assert [kind_of(name) for name in names] == kinds


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("smollm2-135", "Did you mean `smollm2-135m`?"),
        ("outputs/x/weights/step_3", "there is no such file or directory"),
        ("./owner/x", "there is no such file or directory"),
        ("~/nowhere", "there is no such file or directory"),
        ("x.gguf", "there is no such file or directory"),
        ("notes.txt", "is the file notes.txt"),
        ("owner/with space", "is no packaged model and no directory here"),
    ],
)
def test_a_name_that_can_be_nothing_is_refused(
    name: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.txt").touch()
    with pytest.raises(UserError) as caught:
        kind_of(name)
    assert message in str(caught.value)


def test_a_missing_step_lists_the_steps_there_are(tmp_path: Path):
    for step in (5, 10, 100, 20, 15, 45, 3):
        (tmp_path / f"step_{step}").mkdir()
        (tmp_path / f"step_{step}" / "config.json").touch()
    (tmp_path / "notes").mkdir()
    with pytest.raises(
        UserError, match=f"There are step_10, step_15, step_20, step_45, step_100 and 2 more in {tmp_path}"
    ):
        kind_of(f"{tmp_path}/step_30")
