"""`slimrl push`, against a stand-in of the Hub's own client that keeps what it gets in memory."""

import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from huggingface_hub import ModelCard
from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

from packages.tools.tests.sharing.runs import KEY, finished_run
from slimrl import cli
from slimrl.io.checksums import find_damage
from slimrl_tools.commands import push as client

pytestmark = pytest.mark.slow
ENDPOINT = client.constants.ENDPOINT


class Hub:
    """The Hub and its client. `error` is what the next upload fails with."""

    def __init__(self) -> None:
        self.repos: dict[str, dict[str, Any]] = {}
        self.error: Exception | None = None

    def __call__(self, token: str) -> "Hub":
        assert token == KEY
        return self

    def files(self, repo: str) -> dict[str, bytes]:
        return self.repos[repo]["files"]

    def create_repo(self, name: str, private: bool | None, exist_ok: bool) -> None:
        self.repos.setdefault(name, {"private": bool(private), "files": {}})

    def repo_info(self, name: str) -> SimpleNamespace:
        return SimpleNamespace(private=self.repos[name]["private"])

    def upload_folder(self, repo_id: str, folder_path: Path, commit_message: str) -> None:
        if self.error:
            raise self.error
        found = {path.relative_to(folder_path).as_posix(): path for path in folder_path.rglob("*") if path.is_file()}
        self.files(repo_id).update({name: path.read_bytes() for name, path in found.items()})


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return finished_run(tmp_path_factory.mktemp("push") / "my_run", adapter=True)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Hub:
    made = Hub()
    monkeypatch.setattr(client, "HfApi", made)
    monkeypatch.setattr(client, "get_token", lambda: KEY)
    return made


Push = Callable[..., str]


@pytest.fixture
def push(hub: Hub, capsys: pytest.CaptureFixture[str]) -> Push:
    """A function that runs the command, and returns its output, or its errors if it must end with a status."""

    def run_command(*words: object, status: int = 0) -> str:
        assert cli.run(["push", *map(str, words)]) == status
        shown = capsys.readouterr()
        return shown.err if status else shown.out

    return run_command


def download(hub: Hub, repository: str, directory: Path) -> Path:
    for name, content in hub.files(repository).items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(content)
    return directory


def test_weights_arrive_whole_and_with_a_card_of_the_repositorys_name(
    run: Path, tmp_path: Path, hub: Hub, push: Push
) -> None:
    assert push(run, "me/mine", "--private").splitlines()[-1] == f"{ENDPOINT}/me/mine"
    assert hub.repos["me/mine"]["private"]
    got = download(hub, "me/mine", tmp_path)
    weights = run / "weights" / "step_2"
    for name in ("model-00001-of-00002.safetensors", "config.json", "adapter/adapter_model.safetensors"):
        assert (got / name).read_bytes() == (weights / name).read_bytes()
    assert find_damage(got) == "" and find_damage(got / "adapter") == ""
    assert (got / "adapter" / "README.md").read_text() == "It loads `HuggingFaceTB/SmolLM2-135M-Instruct`.\n"
    config = (got / "adapter" / "adapter_config.json").read_text()
    assert '"base_model_name_or_path": "HuggingFaceTB/SmolLM2-135M-Instruct"' in config and str(run) not in config
    assert 'name = "me/mine"' in ModelCard.load(got / "README.md").text
    assert (got / "training.png").read_bytes() == (run / "training.png").read_bytes()
    assert not (weights / "README.md").exists()  # nothing was written here


def test_a_dry_run_lists_files_and_asks_nobody(
    run: Path, hub: Hub, push: Push, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "get_token", lambda: None)
    said = push(run, "me/a", "--dry-run")
    assert hub.repos == {}
    assert "30,000 B  model-00001-of-00002.safetensors" in said
    assert "README.md  (changed for the upload)" in said
    assert "nothing was uploaded; it would go to me/a, public if it is new" in said


@pytest.mark.parametrize(
    ("own", "shown"),
    [("---\nlicense: mit\n---\nMine.\n", "Mine.\n"), ("Load it by `OWNER/NAME`.\n", "Load it by `me/a`.\n")],
)
def test_ones_own_readme_goes_with_the_repositorys_name(
    own: str, shown: str, tmp_path: Path, hub: Hub, push: Push
) -> None:
    made = finished_run(tmp_path / "own_run")
    (made / "weights" / "step_2" / "README.md").write_text(own)
    push(made, "me/a")
    assert hub.files("me/a")["README.md"].decode().endswith(shown)
    assert (made / "weights" / "step_2" / "README.md").read_text() == own


def refusal(status: int) -> HfHubHTTPError:
    return HfHubHTTPError("refused", response=httpx.Response(status, request=httpx.Request("POST", ENDPOINT)))


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (refusal(401), ["may not write to me/a (401)", "hf auth login", "slimrl push ", " me/a"]),
        (refusal(403), ["may not write to me/a (403)", "hf auth whoami"]),
        (refusal(500), ["failed (", "refused", "me/a` goes on"]),
        (httpx.ConnectError("nobody is there"), [ENDPOINT, "nobody is there", "is not sent again", "me/a` goes on"]),
        (OfflineModeIsEnabled("HF_HUB_OFFLINE is set"), ["HF_HUB_OFFLINE"]),
        (RuntimeError("the line broke"), ["the line broke", "goes on"]),
    ],
)
def test_failures_name_what_to_do(error: Exception, told: list[str], run: Path, hub: Hub, push: Push) -> None:
    hub.error = error
    errors = push(run, "me/a", status=2)
    assert all(part in errors for part in told), errors


def test_without_a_token_and_in_a_public_repository_nothing_is_uploaded(
    run: Path, hub: Hub, push: Push, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.create_repo("me/public", False, exist_ok=True)
    assert "is there already, and public: nothing was uploaded" in push(run, "me/public", "--private", status=2)
    monkeypatch.setattr(client, "get_token", lambda: None)
    assert "hf auth login" in push(run, "me/public", status=2)
    assert hub.files("me/public") == {}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("nowhere", "me/a"), "nowhere does not exist"),
        (("HELD_OUT", "me/a"), "is neither a run with weights nor a directory of weights"),
        (("RUN", "me/a/b"), "'me/a/b' can be no repository"),
        (("RUN", "a"), "Write it as `OWNER/NAME`"),
    ],
)
def test_mistakes_are_answered_before_the_network(words: tuple[str, ...], said: str, run: Path, push: Push) -> None:
    places = {"RUN": run, "HELD_OUT": run / "held_out"}
    assert said in push(*(places.get(word, word) for word in words), "--dry-run", status=2)


def test_damaged_weights_are_not_uploaded(tmp_path: Path, push: Push) -> None:
    own = finished_run(tmp_path / "own_run")
    (own / "weights" / "step_2" / "config.json").write_text("{}")
    assert "is damaged: config.json is not as written" in push(own, "me/a", "--dry-run", status=2)


def test_weights_without_their_run_go_without_a_card(run: Path, tmp_path: Path, push: Push) -> None:
    moved = shutil.copytree(run / "weights" / "step_2", tmp_path / "a" / "b" / "moved")
    assert "  README.md" not in push(moved, "me/a", "--dry-run")
