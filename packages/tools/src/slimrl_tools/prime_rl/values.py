"""Values of another trainer's keys in slimrl's terms. Each function raises ValueError for what slimrl cannot do."""

from collections.abc import Mapping
from typing import Any

from slimrl.config.reading.schema import Path
from slimrl_tools.prime_rl.rules import Found, Impossible, NotNeeded, Outcome, Renamed, Rule

ENVIRONMENTS = ("alphabet-sort", "matching-game", "reverse-text", "wiki-search", "wordle")
# Matrices of architectures that slimrl refuses to train; other trainers name them by default, for any model.
OF_OTHER_ARCHITECTURES = ("experts", "fc1_latent_proj", "fc2_latent_proj", "in_proj", "out_proj")


def environment_id(value: Any) -> str:
    """The id of an environment without its owner and version: `primeintellect/wordle-v1@0.2` is `wordle`."""
    name = str(value).rsplit("/", 1)[-1].partition("@")[0].replace("_", "-")
    known = [one for one in ENVIRONMENTS if name == one or name.removesuffix("-v1") == one]
    if known:
        return known[0]
    if ":" in str(value):  # one of the user's own, as slimrl names it
        return str(value)
    raise ValueError(
        f"slimrl has no environment `{name}`, but {', '.join(ENVIRONMENTS)}, and those of your own "
        "(docs/environments.md)"
    )


def lora_targets(value: Any) -> list[str]:
    """The matrices to adapt, without those that no model here has."""
    kept = [str(name) for name in value if name not in OF_OTHER_ARCHITECTURES]
    if not kept:
        raise ValueError(f"slimrl adapts attention and MLP, and none of {value}")
    return kept


def only_item(value: Any) -> Any:
    """The one item of a list of one, or the value itself if it is no list."""
    if not isinstance(value, list):
        return value
    if len(value) != 1:
        raise ValueError(f"found {len(value)} values, and slimrl takes one")
    return value[0]


def at_least_one(value: Any) -> int:
    """A factor, rounded up to a whole number."""
    return max(1, -(-int(float(value) * 1000) // 1000))


def min_lr_ratio(section: str) -> Rule:
    """A rule for a lowest learning rate that is absolute there, and a share of the peak here."""
    optim = "trainer.optim.lr" if section.startswith("trainer") else "optim.lr"

    def rule(found: Found) -> Outcome:
        if found.value == 0:
            return Renamed((*section.split("."), "min_lr_ratio"), 0.0)
        peak = found.get(optim)
        if not peak:
            return Impossible(f"it is a share of the peak here, and {optim} is not set in this file")
        return Renamed((*section.split("."), "min_lr_ratio"), round(found.value / peak, 12), "a share of the peak here")

    return rule


def decay_steps(scheduler: str) -> Rule:
    """A rule for the steps over which a schedule falls: here all that follow its warm-up."""

    def rule(found: Found) -> Outcome:
        rest = (found.get("max_steps") or 0) - (found.get(f"{scheduler}.warmup_steps") or 0)
        if found.value == rest:
            return NotNeeded("a schedule falls from its warm-up to the end of the run here too")
        return Impossible("a schedule falls from its warm-up to the end of the run here, not over its last steps")

    return rule


def unless_set(key: str, other: str, why: str) -> Rule:
    """A rule that renames a key to `key`, unless the file has `other` too, which counts more."""

    def rule(found: Found) -> Outcome:
        return NotNeeded(why) if found.get(other) is not None else Renamed(tuple(key.split(".")), found.value)

    return rule


def same_as(*keys: str, why: str, otherwise: str) -> Rule:
    """A rule for a key that must be equal to one of other keys of the file."""

    def rule(found: Found) -> Outcome:
        return NotNeeded(why) if found.value in [found.get(key) for key in keys] else Impossible(otherwise)

    return rule


def of_a_training_environment(value: Any, file: Mapping[Path, Any]) -> bool:
    """Whether the environment of this id is among those that the file trains on."""
    ends = (("id",), ("taskset", "id"), ("env", "taskset", "id"), ("env", "id"))
    trained = [
        str(found)
        for path, found in file.items()
        if "eval" not in path and any(path[-len(end) :] == end for end in ends) and {"env", "source"} & set(path)
    ]
    bare = [str(one).rsplit("/", 1)[-1].partition("@")[0] for one in (value, *trained)]
    return bare[0] in bare[1:]
