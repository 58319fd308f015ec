"""The plug-in of vLLM: it registers itself, and loads a directory of weights, or refuses it before anything changes."""

import importlib
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Generic, TypeVar

import pytest
import torch
from safetensors.torch import save_file

from slimrl.errors import UserError
from slimrl.io.checksums import seal

I = TypeVar("I")  # noqa: E741
U = TypeVar("U")


class FakeEngine(Generic[I, U]):
    """vLLM's base class, as far as the plug-in sees it."""

    update_info_cls: Callable[..., Any]

    def __init__(self, model: Any, directory: Path) -> None:
        self.model, self.device = model, torch.device("cpu")
        tied = SimpleNamespace(tie_word_embeddings=True)
        self.model_config = SimpleNamespace(model=str(directory), hf_config=tied)

    def parse_update_info(self, info: dict[str, Any]) -> Any:
        return self.update_info_cls(**info)


class FakeHead:
    """vLLM's output layer, whose weights are the embedding's."""

    quant_method: Any


class FakeModel:
    """A model of vLLM's, which notes what it was told."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.weights: dict[str, torch.Tensor] = {}
        self.lm_head = FakeHead()
        self.lm_head.quant_method = SimpleNamespace(process_weights_after_loading=lambda _: self.told.append("head"))

    def modules(self) -> list[Any]:
        return [self, self.lm_head]

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
        self.told.append("load")
        self.weights = dict(weights)


def directory_of(path: Path, **tensors: torch.Tensor) -> Path:
    path.mkdir()
    save_file(tensors, path / "model.safetensors")
    seal(path)
    return path


@pytest.fixture
def engine_of(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Path], Any]]:
    """Makes the plug-in's engine for a model's directory, with stand-ins for the modules of vLLM."""
    known: dict[str, tuple[str, str]] = {}

    def register(name: str, *engine: str) -> None:
        if name in known:
            raise ValueError(f"{name} is already registered")
        known[name] = engine[0], engine[1]

    for name, content in {
        "vllm": {},
        "vllm.distributed": {},
        "vllm.distributed.weight_transfer": {"WeightTransferEngineFactory": SimpleNamespace(register_engine=register)},
        "vllm.distributed.weight_transfer.base": {
            "WeightTransferEngine": FakeEngine,
            "WeightTransferInitInfo": object,
            "WeightTransferUpdateInfo": object,
        },
        "vllm.model_executor": {},
        "vllm.model_executor.layers": {},
        "vllm.model_executor.layers.vocab_parallel_embedding": {"ParallelLMHead": FakeHead},
        "vllm.model_executor.model_loader": {},
        "vllm.model_executor.model_loader.reload": {
            "initialize_layerwise_reload": lambda model: model.told.append("begin"),
            "finalize_layerwise_reload": lambda model, config: model.told.append("end"),
        },
    }.items():
        module = ModuleType(name)
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, name, module)
    plugin = importlib.import_module("slimrl_cluster.vllm_plugin")
    plugin.register()
    plugin.register()  # vLLM does so in each of its processes, and finds an installed one twice
    module_name, class_name = known["slimrl"]
    yield lambda directory: vars(importlib.import_module(module_name))[class_name](FakeModel(), directory)
    sys.modules.pop("slimrl_cluster.vllm_plugin.engine", None)


def test_a_directory_is_loaded_between_the_steps_of_vllms_reload(engine_of: Any, tmp_path: Path) -> None:
    engine = engine_of(directory_of(tmp_path / "first", w=torch.zeros(2, 3)))
    engine.start_weight_update()
    new = directory_of(tmp_path / "new", **{"w": torch.ones(2, 3), "lm_head.weight": torch.ones(2, 3)})
    engine.update_weights({"weight_dir": str(new)})
    engine.finish_weight_update()
    assert engine.model.told == ["begin", "load", "end", "head"]
    assert engine.model.weights["w"].equal(torch.ones(2, 3))


def test_files_that_the_index_does_not_name_are_left_alone(engine_of: Any, tmp_path: Path) -> None:
    engine = engine_of(directory_of(tmp_path / "first", w=torch.zeros(2, 3)))
    save_file({"w": torch.zeros(9), "old": torch.zeros(9)}, tmp_path / "first" / "adapter.safetensors")
    engine.update_weights({"weight_dir": str(directory_of(tmp_path / "new", w=torch.ones(2, 3)))})
    assert set(engine.model.weights) == {"w"}


@pytest.mark.parametrize("kind", ["shape", "missing", "unknown", "nothing", "damaged"])
def test_a_directory_that_is_not_the_models_changes_nothing(engine_of: Any, tmp_path: Path, kind: str) -> None:
    engine = engine_of(directory_of(tmp_path / "first", v=torch.zeros(1), w=torch.zeros(2, 3)))
    tensors = {"v": torch.ones(1), "w": torch.ones(2, 3)}
    match kind:
        case "shape":
            tensors["w"] = torch.ones(3, 2)
        case "missing":
            del tensors["w"]
        case "unknown":
            tensors["x"] = torch.ones(1)
    new = directory_of(tmp_path / "new", **tensors)
    if kind == "nothing":
        (new / "model.safetensors").unlink()
    if kind == "damaged":
        with (new / "model.safetensors").open("r+b") as file:
            file.seek(-1, 2)
            file.write(b"\x01")
    engine.start_weight_update()
    with pytest.raises(UserError, match=str(new)):
        engine.update_weights({"weight_dir": str(new)})
    assert engine.model.told == []


def test_after_half_loaded_weights_no_others_are_taken(engine_of: Any, tmp_path: Path) -> None:
    engine = engine_of(directory_of(tmp_path / "first", w=torch.zeros(2, 3)))
    new = directory_of(tmp_path / "new", w=torch.ones(2, 3))
    load_weights = engine.model.load_weights

    def fail(weights: Iterable[tuple[str, torch.Tensor]]) -> None:
        load_weights(weights)
        raise MemoryError

    engine.model.load_weights = fail
    with pytest.raises(MemoryError):
        engine.update_weights({"weight_dir": str(new)})
    with pytest.raises(UserError, match="half loaded: start vLLM again"):
        engine.update_weights({"weight_dir": str(new)})
    assert engine.model.told == ["begin", "load"]


def test_a_model_of_the_hub_is_looked_up_where_vllm_has_put_it(
    engine_of: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = engine_of(Path("someone/model"))
    engine.model_config.revision = "main"
    snapshot = directory_of(tmp_path / "snapshot", w=torch.zeros(2, 3))
    module = sys.modules["slimrl_cluster.vllm_plugin.engine"]

    def find(name: str, revision: str, local_files_only: bool) -> str:
        assert (name, revision, local_files_only) == ("someone/model", "main", True)
        return str(snapshot)

    monkeypatch.setattr(module, "snapshot_download", find)
    engine.update_weights({"weight_dir": str(directory_of(tmp_path / "new", w=torch.ones(2, 3)))})
    assert engine.model.weights["w"].equal(torch.ones(2, 3))
