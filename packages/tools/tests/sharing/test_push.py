"""`slimrl push` in a process of its own, against a stand-in of the Hub over loopback."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from huggingface_hub import ModelCard

from packages.tools.tests.sharing.fake_hub import TOKEN, fake_hub
from packages.tools.tests.sharing.runs import KEY, finished_run
from slimrl import cli
from slimrl.io.checksums import find_damage

pytestmark = pytest.mark.slow


def push(*words, endpoint="http://127.0.0.1:9", token=TOKEN, **variables):
    """The command's exit status, output and errors."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "HUGGING"))}
    home = variables.pop("home", "/nonexistent")
    environ = {**kept, "HF_ENDPOINT": endpoint, "HF_HUB_DISABLE_XET": "1", "HF_HOME": home, **variables}
    if token:
        environ["HF_TOKEN"] = token
    command = [sys.executable, "-m", "slimrl", "push", *map(str, words)]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout, done.stderr


def plan(capsys, *words):
    """The same of a dry run, which needs no process of its own, since it looks at nothing but files."""
    status = cli.run(["push", *map(str, words), "--dry-run"])
    return status, *capsys.readouterr()


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    return finished_run(tmp_path_factory.mktemp("push") / "my_run", adapter=True)


@pytest.fixture
def hub():
    with fake_hub() as hub:
        yield hub


def pushed(hub, *words):
    """The output of a command that must go well."""
    status, said, errors = push(*words, endpoint=hub.endpoint)
    assert status == 0, errors
    return said


def refused(hub, *words, **variables):
    """The errors of a command that must be refused."""
    status, _, errors = push(*words, endpoint=hub.endpoint, **variables)
    assert status == 2
    return errors


def download(hub, repository, directory, revision="main"):
    for name, content in hub.files(repository, revision).items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(content)
    return directory


def test_weights_arrive_whole_and_with_a_card_of_the_repositorys_name(run, tmp_path, hub):
    assert pushed(hub, run, "mine", "--private").splitlines()[-1] == f"{hub.endpoint}/me/mine"
    assert hub.repos["me/mine"]["private"]
    got = download(hub, "me/mine", tmp_path)
    weights = run / "weights" / "step_2"
    for name in ("model-00001-of-00002.safetensors", "config.json", "adapter/adapter_model.safetensors"):
        assert (got / name).read_bytes() == (weights / name).read_bytes()
    assert find_damage(got) == "" and find_damage(got / "adapter") == ""
    assert (got / "adapter" / "README.md").read_text() == "It loads `HuggingFaceTB/SmolLM2-135M-Instruct`.\n"
    card = ModelCard.load(got / "README.md")
    assert card.data.eval_results[0].metric_value == 0.875
    assert 'name = "me/mine"' in card.text
    assert (got / "training.png").read_bytes() == (run / "training.png").read_bytes()
    assert not (weights / "README.md").exists()  # nothing was written here


def test_an_adapter_goes_alone_and_names_a_base_that_others_have(run, tmp_path, hub):
    pushed(hub, run, "me/adapter", "--what", "adapter")
    got = download(hub, "me/adapter", tmp_path)
    assert sorted(path.name for path in got.iterdir()) == [
        "README.md", "SHA256SUMS", "adapter_config.json", "adapter_model.safetensors", "training.png",
    ]  # fmt: skip
    assert find_damage(got) == ""
    assert str(run) not in (got / "adapter_config.json").read_text()
    assert (
        '"base_model_name_or_path": "HuggingFaceTB/SmolLM2-135M-Instruct"' in (got / "adapter_config.json").read_text()
    )
    assert ModelCard.load(got / "README.md").data.to_dict()["library_name"] == "peft"


def test_a_run_goes_without_rollouts_checkpoints_places_and_secrets(tmp_path, hub):
    own = finished_run(tmp_path / "own_run")
    (own / "eval.toml").write_text(f'output_dir = "{own}"\nnote = "{KEY}"\n')
    (own / "plan.json").write_text('{"peak_gb": 3.5}')
    (own / "monitors.jsonl").write_text(f'{{"step": 1, "message": "{KEY}"}}\n{{"step": 2}}\n')
    said = pushed(hub, own, "me/run", "--what", "run")
    files = hub.files("me/run")
    assert "files of rollouts stay here" in said
    assert not [name for name in files if "rollouts/" in name or name.endswith("greedy.jsonl") or "checkpoints" in name]
    assert {"run/config.toml", "run/metrics.jsonl", "run/summary.json", "run/held_out/final.json"} <= files.keys()
    assert files["run/plan.json"] == b'{"peak_gb": 3.5}'
    assert files["run/monitors.jsonl"] == b'{"step": 1, "message": "[key]"}\n{"step": 2}\n'
    texts = b"".join(content for name, content in files.items() if not name.endswith((".png", ".safetensors")))
    assert KEY.encode() not in texts and str(tmp_path).encode() not in texts


def test_rollouts_go_if_asked_for_unless_they_hold_a_key(tmp_path, hub):
    own = finished_run(tmp_path / "own_run")
    pushed(hub, own, "me/run", "--what", "run", "--rollouts")
    assert "run/rollouts/step_000000.jsonl" in hub.files("me/run")
    (own / "rollouts" / "step_000001.jsonl").write_text(f'{{"messages": ["my key is {KEY}"]}}\n')
    errors = refused(hub, own, "me/other", "--what", "run", "--rollouts")
    assert "step_000001.jsonl:1 has something that looks like a key" in errors
    assert "me/other" not in hub.repos


@pytest.mark.nightly
def test_an_upload_that_was_interrupted_goes_on_with_what_is_missing(run, hub):
    hub.refuse_uploads_after = 1
    errors = refused(hub, run, "me/mine")
    assert "What has arrived is not sent again: `" in errors
    assert f"slimrl push {run} me/mine` goes on" in errors
    assert len(hub.puts) == 1 and hub.files("me/mine") == {}
    hub.refuse_uploads_after = 1_000_000
    pushed(hub, run, "me/mine")
    assert len(hub.puts) == len(set(hub.puts))  # none was sent twice
    for name, content in hub.files("me/mine").items():
        if name.endswith(".safetensors"):
            assert content == (run / "weights" / "step_2" / name).read_bytes()


def test_a_revision_is_a_branch_that_is_made(run, hub):
    said = pushed(hub, run / "weights" / "step_2", "me/a", "--revision", "best")
    assert said.splitlines()[-1] == f"{hub.endpoint}/me/a/tree/best"
    assert hub.files("me/a") == {} and "config.json" in hub.files("me/a", "best")


def test_a_dry_run_lists_files_and_asks_nobody(run, hub):
    status, said, _ = push(run, "me/a", "--dry-run", endpoint=hub.endpoint, token="", HF_HUB_OFFLINE="1")
    assert (status, hub.requests) == (0, [])
    assert "30,000 B  model-00001-of-00002.safetensors" in said
    assert "README.md  (changed for the upload)" in said
    assert "nothing was uploaded; it would go to me/a, public if it is new" in said


def test_ones_own_readme_goes_as_it_is(tmp_path, hub):
    own = finished_run(tmp_path / "own_run")
    (own / "weights" / "step_2" / "README.md").write_text("---\nlicense: mit\n---\nMine.\n")
    pushed(hub, own, "me/a")
    assert hub.files("me/a")["README.md"] == b"---\nlicense: mit\n---\nMine.\n"


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("words", "variables", "told"),
    [
        (["me/a"], {"token": "", "home": "HOME"}, ["hf auth login", "slimrl push ", " me/a"]),
        (["me/a"], {"token": "hf_" + "wrong" * 5}, ["does not take the token", "hf auth login"]),
        (["others/a"], {}, ["may not write to others/a", "hf auth whoami"]),
        (["me/a"], {"HF_HUB_OFFLINE": "1"}, ["env -u HF_HUB_OFFLINE"]),
        (["me/public", "--private"], {}, ["is there already, and public: nothing was uploaded"]),
    ],
)
def test_failures_name_what_to_do(words, variables, told, run, tmp_path, hub):
    hub.repos["me/public"] = {"private": False, "branches": {"main": {}}}
    errors = refused(
        hub, run, *words, **{name: value.replace("HOME", str(tmp_path)) for name, value in variables.items()}
    )
    assert all(part in errors for part in told), errors
    assert hub.puts == []


@pytest.mark.nightly
def test_a_hub_that_does_not_answer_is_named(run):
    status, _, errors = push(run, "me/a")  # nobody listens there
    assert status == 2 and "cannot be reached" in errors and "goes on" in errors


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("nowhere", "me/a"), "nowhere does not exist"),
        (("HELD_OUT", "me/a"), "is neither a run with weights nor a directory of weights"),
        (("RUN", "me/a/b"), "'me/a/b' can be no repository"),
        (("RUN", "me/a b"), "OWNER/NAME"),
    ],
)
def test_mistakes_are_answered_before_the_network(run, words, said, capsys):
    places = {"RUN": run, "HELD_OUT": run / "held_out"}
    status, _, errors = plan(capsys, *(places.get(word, word) for word in words))
    assert status == 2 and said in errors


def test_damaged_weights_are_not_uploaded(tmp_path, capsys):
    own = finished_run(tmp_path / "own_run")
    (own / "weights" / "step_2" / "config.json").write_text("{}")
    status, _, errors = plan(capsys, own, "me/a")
    assert status == 2 and "is damaged: config.json is not as written" in errors


def test_weights_without_their_run_go_without_a_card(run, tmp_path, capsys):
    moved = shutil.copytree(run / "weights" / "step_2", tmp_path / "a" / "b" / "moved")
    status, said, _ = plan(capsys, moved, "me/a")
    assert status == 0 and "they go without a model card" in said and "README.md  (" not in said
    status, _, errors = plan(capsys, moved, "me/a", "--what", "run")
    assert status == 2 and "lies in no run's directory" in errors


def test_weights_of_a_run_that_is_not_done_say_how_far_it_is(run, tmp_path, capsys):
    half = finished_run(tmp_path / "half", "--max_steps", "5")
    for source in (half, half / "weights" / "step_2"):
        _, said, _ = plan(capsys, source, "me/a")
        assert "note: the run is not done: these are its weights of step 2 of 5\n" in said
    assert "is not done" not in plan(capsys, run, "me/a")[1]
