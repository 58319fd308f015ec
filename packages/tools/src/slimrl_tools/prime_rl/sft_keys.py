"""The keys of prime-rl's files for `sft`, and what becomes of each; see `rl_keys.py`."""

from slimrl_tools.prime_rl.rules import (
    Found,
    Impossible,
    NotNeeded,
    Outcome,
    Renamed,
    Rule,
    Table,
    impossible,
    only,
    to,
    unneeded,
)
from slimrl_tools.prime_rl.shared_keys import CKPT, COMPUTE, DEPLOYMENT, LOGS, LORA, WANDB, optim, schedule
from slimrl_tools.prime_rl.values import only_item, same_as, unless_set

EVALUATION = "`sft` measures the loss on held-out conversations; measure the reward with `slimrl eval` afterwards"


def _data_type(found: Found) -> Outcome:
    if found.value == "fake":
        return Impossible("`slimrl trainer` trains on made-up samples")
    return NotNeeded("data.name is a data set of the Hub, or a directory")


def _micro_batch(found: Found) -> Outcome:
    seq_len = found.get("data.seq_len") or 128  # their default
    return Renamed(("micro_batch_tokens",), found.value * seq_len, "counted in tokens here")


def _one(key: str, plural: str) -> Rule:
    """A rule for a list whose first element alone can be taken."""

    def rule(found: Found) -> Outcome:
        if found.stars[0] != "0":
            return Impossible(f"slimrl trains on one of the {plural}: put them together into one data set")
        return Renamed(tuple(key.split(".")), found.value)

    return rule


SFT_KEYS: Table = {
    "data.type": _data_type,
    "data.name": to("data.name"),
    "data.seq_len": to("seq_len"),
    "data.batch_size": to("batch_size"),
    "data.micro_batch_size": _micro_batch,
    "data.subsets": to("data.subset", only_item),
    "data.splits": to("data.split", only_item),
    "data.source.*.dataset": _one("data.name", "data sets"),
    "data.source.*.name": _one("data.name", "data sets"),
    "data.source.*.subset": _one("data.subset", "data sets"),
    "data.source.*.split": _one("data.split", "data sets"),
    "data.probabilities.**": impossible("slimrl trains on one data set"),
    "data.stopping_strategy": unneeded("there is one data set"),
    "data.shuffle": only((True,), "conversations are shuffled anyway", "conversations are shuffled anyway"),
    "data.seed": unless_set("seed", "seed", "seed counts"),
    "data.pack_function": only(("cat",), "conversations are packed without padding", "packs have no padding here"),
    "data.loss_mask.assistant": only((True,), "the assistant's words are trained", "the assistant's words are trained"),
    "data.loss_mask.*": only(
        (False,), "only the assistant's words are trained", "only the assistant's words are trained"
    ),
    "data.length": unneeded("samples are not made up"),
    "data.input_ids": unneeded("samples are not made up"),
    "val.interval": to("val_interval_steps"),
    "val.data.name": same_as(
        "data.name",
        why="it is the same data set",
        otherwise="data.val_split is another split of the same data",
    ),
    "val.data.splits": to("data.val_split", only_item),
    "val.data.seq_len": unneeded("as in training"),
    "val.data.batch_size": unneeded("as in training"),
    "eval.**": impossible(EVALUATION),
    "inference.**": unneeded("`sft` samples nothing"),
    "tokenizer.name": same_as("model.name", why="it is the model's own", otherwise="the tokenizer is the model's own"),
    "tokenizer.**": impossible("tokenizer and chat template are the model's own"),
    "model.seq_len": unless_set("seq_len", "data.seq_len", "data.seq_len counts"),
    "clean_output_dir": only((False,), "nothing is overwritten", "delete the directory yourself, or name another one"),
    "bench.**": impossible("`slimrl trainer` measures the trainer alone"),
    "dry_run": only((False,), "it is off", "give --dry-run on the command line"),
    **LORA,
    **COMPUTE,
    **CKPT,
    **WANDB,
    **LOGS,
    **DEPLOYMENT,
    **optim("optim", "optim"),
    **schedule("scheduler", "schedule"),
}
