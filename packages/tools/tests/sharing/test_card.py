import json
import os
import tomllib

import pytest
from huggingface_hub import ModelCard

from packages.tools.tests.sharing.runs import KEY, finished_run, save_weights
from slimrl.config.reading.load import load
from slimrl.config.reading.saved import write_config
from slimrl.config.run import SFTConfig
from slimrl.errors import UserError
from slimrl.io.checksums import check_sums
from slimrl.monitor.sinks import JsonlSink, Monitor
from slimrl_tools.sharing.card import write_card
from slimrl_tools.sharing.facts import read_facts
from slimrl_tools.sharing.places import shareable

pytestmark = pytest.mark.slow


@pytest.fixture
def run(tmp_path):
    return finished_run(tmp_path / "my_run")


@pytest.fixture
def weights(run):
    return run / "weights" / "step_2"


def test_a_card_has_the_runs_numbers(run, weights):
    assert write_card(run, weights) == weights / "README.md"
    card = ModelCard.load(weights / "README.md")
    assert (card.data.base_model, card.data.license) == ("HuggingFaceTB/SmolLM2-135M-Instruct", "apache-2.0")
    assert card.data.to_dict()["library_name"] == "transformers" and {"slimrl", "aipo", "reverse-text"} <= set(
        card.data.tags
    )
    assert "| greedy | after RL | 0.875 | 0.844 to 0.906 | 200 |" in card.text
    assert "tokens sampled | 1,200" in card.text and "## Not measured" in card.text
    assert "![The curves of its training](training.png)" in card.text
    assert (weights / "training.png").read_bytes() == (run / "training.png").read_bytes()


def test_a_card_damages_no_weights_and_tells_no_places(run, weights, tmp_path):
    write_card(run, weights)
    check_sums(weights)
    assert 'output_dir = "my_run"' in (weights / "README.md").read_text()
    assert str(tmp_path) not in (weights / "README.md").read_text()


def test_a_card_that_is_there_is_left_as_it_is(run, weights):
    (weights / "README.md").write_text("Mine.\n")
    assert write_card(run, weights) is None
    assert (weights / "README.md").read_text() == "Mine.\n"


def test_a_card_of_a_step_that_was_not_evaluated_says_so(run, weights):
    os.rename(weights, run / "weights" / "step_1")
    card = ModelCard.load(write_card(run, run / "weights" / "step_1"))
    assert "The weights of step 1 themselves were not evaluated" in card.text
    assert "time, evaluations" not in card.text  # which is that of the whole run


def test_damaged_files_of_a_run_leave_out_what_they_would_tell(run, weights):
    (run / "held_out" / "final.json").write_text("{")
    card = write_card(run, weights)
    assert "not evaluated" in card.read_text()
    card.unlink()
    (run / "summary.json").write_text("[")
    with pytest.raises(UserError, match=r"summary\.json is no JSON"):
        write_card(run, weights)


def test_supervised_runs_have_cards_too(tmp_path):
    write_config(
        load(SFTConfig, ["--data.type", "expert", "--data.env.id", "wordle", "--max_steps", "2"], {}), tmp_path
    )
    with Monitor([JsonlSink(tmp_path / "metrics.jsonl")]) as monitor:
        monitor.log(0, {"sft/val_loss": 2.5})
        monitor.log(2, {"sft/val_loss": 1.25})
    save_weights(tmp_path, adapter=False)
    card = ModelCard.load(write_card(tmp_path, tmp_path / "weights" / "step_2"))
    assert "sft" in card.data.tags and "| after step 2 | 1.250 |" in card.text


def test_the_base_model_of_a_second_run_is_that_of_the_first(tmp_path):
    first = finished_run(tmp_path / "first")
    write_card(first, first / "weights" / "step_2")
    second = finished_run(tmp_path / "second", "--model.name", str(first / "weights" / "step_2"))
    base = read_facts(second, second / "weights" / "step_2").base
    assert (base.name, base.hub_name, base.licence) == ("step_2", "HuggingFaceTB/SmolLM2-135M-Instruct", "apache-2.0")


def test_an_unknown_base_and_its_licence_are_not_made_up(tmp_path):
    run = finished_run(tmp_path / "run", "--model.name", "somebody/some-model")
    card = ModelCard.load(write_card(run, run / "weights" / "step_2"))
    assert (card.data.base_model, card.data.license) == ("somebody/some-model", None)
    assert "Not known here: see the page of `somebody/some-model`" in card.text


def test_what_is_no_directory_of_weights_is_refused(tmp_path):
    run = finished_run(tmp_path / "run")
    with pytest.raises(UserError, match="no directory of weights"):
        write_card(run, run / "held_out")


@pytest.mark.parametrize(
    ("text", "shared"),
    [
        ('name = "/data/models/own"', 'name = "own"'),
        ('name = "~/models/own"', 'name = "own"'),
        (r"name = 'C:\Users\me\own'", 'name = "own"'),
        (f'key = "{KEY}"', 'key = "[key]"'),
        ('stop = ["</answer>", "a / b"]', 'stop = ["</answer>", "a / b"]'),
        ('name = "Qwen/Qwen3-0.6B"', 'name = "Qwen/Qwen3-0.6B"'),
        ('base_url = "http://localhost:8000/v1"', 'base_url = "http://localhost:8000/v1"'),
        ('base_url = "http://10.1.2.3:8000/v1"', 'base_url = "http://host.invalid:8000/v1"'),
        ('base_url = "http://[fd00::1]:8000"', 'base_url = "http://host.invalid:8000"'),
        ('judge = {url = "https://me:pw@judge.corp/v1"}', 'judge = {url = "https://[key]@host.invalid/v1"}'),
        ('host = "gpu3"', 'host = "host.invalid"'),
        ('server = "10.1.2.3:8000"', 'server = "host.invalid:8000"'),
        ('server = "vllm"', 'server = "vllm"'),
        ('anything = "file:///home/me/x"', 'anything = "x"'),
        ('note = "sqlite:////home/me/a.db"', 'note = "a.db"'),
        ('_name_or_path = "/home/me/my models/own/"', '_name_or_path = "own"'),
        (r'path = "\\\\server\\share\\own"', 'path = "own"'),
        ('baselines = ["/home/me/x", "random", "a/b"]', 'baselines = ["x", "random", "a/b"]'),
        ('data_dir = "/home/me"', 'data_dir = "~"'),
    ],
)
def test_texts_are_shared_without_places_and_secrets(text, shared):
    assert shareable(tomllib.loads(text)) == tomllib.loads(shared)


@pytest.mark.parametrize(
    "text",
    [
        'prompt = "Answer with yes / or /b/c here"',
        'prompt = "/no_think Answer with yes/no"',
        'prompt = "Path = /home/me/x, url = http://10.1.2.3/v1 # no \\"comment\\" /b/c"',
        'stop = ["/think", "/answer/done", "//"]',
        'note = "see http://10.1.2.3:8000/v1"',
    ],
)
def test_free_text_is_shared_as_it_is(text):
    assert shareable(tomllib.loads(text)) == tomllib.loads(text)


def test_secrets_in_free_text_are_hidden():
    assert shareable({"prompt": f"Say yes / or /b/c and {KEY}"}) == {"prompt": "Say yes / or /b/c and [key]"}


def test_a_cards_settings_are_the_runs_but_for_places(tmp_path):
    prompt = "Answer with yes / or /b/c here"
    args = {"prompt": prompt, "corpus": "file:///home/me/x", "judge": {"base_url": "http://10.1.2.3:8000/v1"}}
    run = finished_run(tmp_path / "run", "--orchestrator.env.0.args", json.dumps(args))
    card = write_card(run, run / "weights" / "step_2").read_text()
    settings = tomllib.loads(card.partition("```toml\n")[2].partition("```")[0])
    shared = {"prompt": prompt, "corpus": "x", "judge": {"base_url": "http://host.invalid:8000/v1"}}
    assert settings["orchestrator"]["env"][0]["args"].items() >= shared.items()
    assert f'prompt = "{prompt}"' in card and "/home/me" not in card and "10.1.2.3" not in card
