"""Loads and saves the policy: one module for sampling and training, its tokenizer, and its chat format.

Knows nothing of optimizers: the module is in the compute dtype, and the trainer keeps separate float32 master weights.
"""

import contextlib
import copy
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GenerationConfig, PreTrainedTokenizerBase

from slimrl.config.model import ModelConfig
from slimrl.errors import UserError
from slimrl.io.checksums import new_directory, seal
from slimrl.models.adapter import base_model_name, merge, read_adapter
from slimrl.models.allocator import keep_freed_memory
from slimrl.models.chat.template import ChatFormat
from slimrl.models.check import check_forward
from slimrl.models.device import DtypeChoice, choose_device, choose_dtype, set_threads
from slimrl.models.forward.attention import ATTENTION
from slimrl.models.forward.fused import can_fuse
from slimrl.models.history import write_history
from slimrl.models.lora import adapt, adapter_tensors, is_adapted, keep_merged, merge_parameters, save_adapter
from slimrl.models.quiet import no_progress_bars
from slimrl.models.resolve import loadable_name, resolve

DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32}


@dataclass(frozen=True, slots=True)
class Policy:
    """A loaded model.

    `source` is the model's name as the user gave it; `gflops` are the measured speeds that decided the dtype.
    """

    module: nn.Module
    tokenizer: PreTrainedTokenizerBase
    chat: ChatFormat
    source: str
    dtype: torch.dtype
    device: torch.device
    gflops: Mapping[str, float] = field(default_factory=dict)


def load_policy(config: ModelConfig) -> Policy:
    """Load the policy of this configuration: a causal LM without dropout and without its own KV cache.

    The model is downloaded or converted first if necessary. The call sets the process's number of threads, and makes
    malloc keep freed memory. Raises UserError if the model cannot be found, read, or trained by slimrl.
    """
    set_threads(config.num_threads)
    keep_freed_memory()
    device = choose_device(config.device)
    base_name = _base_name(config)
    directory = resolve(base_name)
    choice = choose_dtype(device) if config.dtype == "auto" else DtypeChoice(DTYPES[config.dtype])
    with explain_failure("tokenizer", directory):
        tokenizer = AutoTokenizer.from_pretrained(directory, trust_remote_code=False)
    module = _load_module(directory, choice.dtype)
    if base_name != config.name:
        _merge_adapter(module, Path(os.path.expanduser(config.name)))
    if config.lora.rank > 0:
        adapt(module, config.lora, loadable_name(config.name, directory))
    module.to(device)
    # Merge after the move, so that the merged matrices are on the device, too. Only the fused forwards read them.
    if config.lora.rank > 0 and can_fuse(module):
        keep_merged(module)
    check_forward(module)
    if len(tokenizer) > module.get_input_embeddings().num_embeddings:
        raise UserError(
            f"The tokenizer in {directory} has {len(tokenizer)} tokens, but the model only "
            f"{module.get_input_embeddings().num_embeddings} embeddings: they do not belong together."
        )
    with explain_failure("tokenizer", directory):  # a tokenizer may fail only now, on its first use
        chat = ChatFormat(tokenizer, _as_ids(module.generation_config.eos_token_id), date_of(config), config.tool_calls)
    return Policy(module, tokenizer, chat, config.name, choice.dtype, device, choice.gflops)


def load_chat(config: ModelConfig) -> ChatFormat:
    """Load the chat format of a model, but not its weights. Use it in a process that samples from a server."""
    directory = resolve(_base_name(config))
    with explain_failure("tokenizer", directory):
        tokenizer = AutoTokenizer.from_pretrained(directory, trust_remote_code=False)
        try:
            ids = GenerationConfig.from_pretrained(directory).eos_token_id
        except OSError:  # the model has no such file
            ids = AutoConfig.from_pretrained(directory, trust_remote_code=False).eos_token_id
        return ChatFormat(tokenizer, _as_ids(ids), date_of(config), config.tool_calls)


def date_of(config: ModelConfig) -> date | None:
    """Return the date in the settings; None for `auto`."""
    return None if config.date == "auto" else date.fromisoformat(config.date)


def save_policy(
    policy: Policy, directory: Path, history: Sequence[str] = (), leads: bool = True, run: str = ""
) -> None:
    """Save weights, config, generation config, tokenizer and chat template, for transformers to load.

    The tensors are the module's, in the compute dtype: exactly the policy that was sampled and evaluated. A LoRA
    adapter is merged into the tensors, and is also saved separately in `adapter/`, in PEFT's format. `history` names
    the training stages so far, and `run` is the id of the run. The files and their checksums (`io/checksums.py`) are
    written to a temporary directory. Then this directory replaces `directory`. All processes that share a sharded
    module must call this, but only the process with `leads` writes. Raises OSError if the files cannot be written.
    """
    module: Any = policy.module
    state = _state_to_save(module, leads)
    adapter = adapter_tensors(module) if is_adapted(module) else {}
    if not leads:
        return
    with new_directory(directory) as temporary, no_progress_bars():
        module.save_pretrained(temporary, state_dict=state)
        config = copy.deepcopy(module.config)
        config.use_cache = True  # only slimrl's own forward needs False
        config.dtype = policy.dtype
        config.save_pretrained(temporary)
        policy.tokenizer.save_pretrained(temporary)
        if adapter:
            (temporary / "adapter").mkdir()
            save_adapter(module, adapter, temporary / "adapter", policy.source)
            seal(temporary / "adapter")  # the adapter is also used alone
        write_history(temporary, history, directory.name, run)


def save_weights(policy: Policy, directory: Path, leads: bool = True, base: str = "") -> None:
    """Save only the weights, for samplers that load them immediately. With `base`, the fingerprint of the base model's
    weights, save only the LoRA adapter. The directory gets its name only when it is complete. It has no checksums, and
    may be lost in a power cut. Raises OSError if the files cannot be written."""
    module: Any = policy.module
    state = adapter_tensors(module) if base else _state_to_save(module, leads)
    if not leads:
        return
    with new_directory(directory, lasts=False) as temporary, no_progress_bars():
        if base:
            save_adapter(module, state, temporary, policy.source, base)
        else:
            module.save_pretrained(temporary, state_dict=state)


def _state_to_save(module: nn.Module, leads: bool) -> dict[str, Tensor]:
    """Return the tensors of a module, sharded or not, in the compute dtype, with adapters merged. Only the process with
    `leads` gets the parameters."""
    # Merge parameters instead of `state_dict()`: tied weights then appear once, as transformers expects.
    state, buffers = merge_parameters(module, keep=leads, device="cpu"), dict(module.named_buffers())
    return state | {name: tensor for name, tensor in module.state_dict().items() if name in buffers}


@contextlib.contextmanager
def explain_failure(what: str, where: object) -> Iterator[None]:
    """Context manager: convert any exception to a UserError that names the failed part, `what`, and the place of its
    files, `where`.

    transformers raises many kinds of exceptions here, and the library tokenizers raises plain `Exception`. The cause is
    always in the files.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        reason = f"cannot be loaded: {type(error).__name__}: {error}"
        if "trust_remote_code" in str(error):
            reason = (
                "needs Python code of its own (`auto_map` in its config), which slimrl never runs: it could do "
                "anything here. Use a model of an architecture that transformers has."
            )
        elif error.args == (ATTENTION,):  # a KeyError, for example of Falcon
            reason = (
                "cannot be trained: its attention in transformers cannot be replaced by slimrl's, as the attention of "
                "Llama, Qwen, Gemma, Phi and most newer models can."
            )
        raise UserError(f"The {what} in {where} {reason}") from error


def _base_name(config: ModelConfig) -> str:
    """Return the name of the base model: the adapter's base if `config.name` is an adapter's directory, else
    `config.name`.

    Raises UserError if `config.name` is an adapter and `config.lora` asks to train another adapter on top of it.
    """
    base_name = base_model_name(Path(os.path.expanduser(config.name)))
    if base_name is not None and config.lora.rank > 0:
        raise UserError(
            f"model.name = {config.name} is an adapter, and model.lora.rank = {config.lora.rank} asks for another one "
            "on top, which would be of use only together with it. Train on weights with the adapter merged in, such as "
            "a run's `weights/step_N`."
        )
    return base_name or config.name


def _merge_adapter(module: nn.Module, directory: Path) -> None:
    parameters = dict(module.named_parameters())
    with torch.no_grad():
        for name, weight in merge(read_adapter(directory, module), parameters).items():
            parameters[name].copy_(weight)


def _load_module(directory: Path, dtype: torch.dtype) -> Any:
    with explain_failure("model", directory), no_progress_bars():
        module, report = AutoModelForCausalLM.from_pretrained(
            directory,
            dtype=dtype,
            attn_implementation=ATTENTION,
            output_loading_info=True,
            trust_remote_code=False,  # otherwise transformers would ask on a terminal
            weights_only=True,
        )
    if missing := sorted(report["missing_keys"]):
        raise UserError(
            f"The weights in {directory} lack {len(missing)} tensors that its config.json calls for, such as "
            f"{missing[0]}. The config and the weights do not belong together, or the export was incomplete."
        )
    module.config.use_cache = False
    return module.eval()


def _as_ids(ids: int | list[int] | None) -> tuple[int, ...]:
    """Return the end-of-sequence tokens of a config, which may be one id, several, or none."""
    return () if ids is None else (ids,) if isinstance(ids, int) else tuple(ids)
