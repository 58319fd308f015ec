"""Contains the functions to which `keys.toml` refers. A conversion returns slimrl's value for a value of prime-rl. A
rule returns the outcome for a key.

A conversion raises ValueError for an impossible value.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from slimrl.config.reading.schema import Path, spell

ENVIRONMENTS = ("alphabet-sort", "matching-game", "reverse-text", "wiki-search", "wordle")
# Matrices of architectures that slimrl cannot train. Other trainers adapt them by default, so files for any model list
# them.
OF_OTHER_ARCHITECTURES = ("experts", "fc1_latent_proj", "fc2_latent_proj", "in_proj", "out_proj")
DEFAULT_SFT_LENGTH = 128  # the default of prime-rl's `data.seq_len`
REPLACED = "groups without a signal are replaced anyway, up to orchestrator.resample_factor"
HELD_OUT = "held-out tasks of the environments that are trained on are evaluated anyway"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome for a key: it is renamed, not needed in slimrl, or impossible. An impossible key prevents the run.

    `why` is the reason, or a note on a renamed key. `path` and `value` are the name and value of a renamed key in
    slimrl.
    """

    kind: Literal["renamed", "not_needed", "impossible"]
    why: str = ""
    path: Path = ()
    value: Any = None


@dataclass(frozen=True, slots=True)
class Found:
    """A key of the file that matches a pattern. `stars` are the keys matched by the pattern's `*`, and `rest` the keys
    matched by its `**`. `file` maps the path of each plain value in the file to the value."""

    path: Path
    value: Any
    stars: Path
    rest: Path
    file: Mapping[Path, Any]

    def get(self, key: str) -> Any:
        """Return the value of the file's key `key`, with dots; None if the file lacks it."""
        return self.file.get(tuple(key.split(".")))

    def beside(self, *keys: str, up: int = 1) -> Any:
        """Return the value of a neighbouring key: at this key's path, its last `up` names are replaced with `keys`.
        Return None if the file lacks the neighbour."""
        return self.file.get((*self.path[:-up], *keys))


def renamed(key: str, value: Any, why: str = "") -> Outcome:
    """Return the outcome for a key that is called `key` in slimrl, with its new value."""
    return Outcome("renamed", why, tuple(key.split(".")), value)


def name_of(path: Path) -> str:
    """Return a path as a report shows it: `orchestrator.env[0].id`."""
    return spell(tuple(f"[{key}]" if key.isdecimal() else key for key in path)).replace(".[", "[")


def environment_id(value: Any) -> str:
    """Return the id of an environment without its owner and version: `wordle` for `primeintellect/wordle-v1@0.2`."""
    name = _bare(value).replace("_", "-")
    known = [one for one in ENVIRONMENTS if name == one or name.removesuffix("-v1") == one]
    if known:
        return known[0]
    if ":" in str(value):  # a user's own environment, as slimrl names it
        return str(value)
    raise ValueError(
        f"slimrl has no environment `{name}`, but {', '.join(ENVIRONMENTS)}, and those of your own "
        "(docs/environments.md)"
    )


def lora_targets(value: Any) -> list[str]:
    """Return the matrices to adapt, without the matrices of architectures that slimrl does not support."""
    kept = [str(name) for name in value if name not in OF_OTHER_ARCHITECTURES]
    if not kept:
        raise ValueError(f"slimrl adapts attention and MLP, and none of {value}")
    return kept


def number(value: Any) -> float:
    """Convert a number to a float."""
    return float(value)


def is_on(value: Any) -> bool:
    """Return True unless the value turns a section off."""
    return value is not False


def temperatures(value: Any) -> list[float]:
    """Return a list with the temperature as its only element."""
    return [float(value)]


def loss_type(name: Any) -> Any:
    """Return the name of a loss. prime-rl's `default` becomes `aipo`, the default of slimrl."""
    return "aipo" if name == "default" else name


def only_item(value: Any) -> Any:
    """Return the only item of a list, or any other value unchanged. Raises ValueError for a list without exactly one
    item."""
    if not isinstance(value, list):
        return value
    if len(value) != 1:
        raise ValueError(f"found {len(value)} values, and slimrl takes one")
    return value[0]


def at_least_one(value: Any) -> int:
    """Return a factor, rounded up to a whole number of at least 1."""
    return max(1, -(-int(float(value) * 1000) // 1000))


def resume(step: Any) -> bool:
    """Return True for -1, which means the newest checkpoint. Raises ValueError for another step, from which slimrl
    cannot resume."""
    if step != -1:
        raise ValueError("a run is continued from its newest checkpoint: give --resume on the command line")
    return True


def num_examples(num: Any) -> Any:
    """Return the number of held-out tasks. Raises ValueError for -1, which means all tasks in prime-rl."""
    if num == -1:
        raise ValueError("say how many held-out tasks, as in eval.num_examples = 200: all of them would take long")
    return num


def min_lr_ratio(found: Found) -> Outcome:
    """Translate the lowest learning rate, which is absolute in prime-rl and a share of the peak in slimrl."""
    *section, scheduler, _ = found.path
    target = ".".join((*section, scheduler.removesuffix("r"), "min_lr_ratio"))
    if found.value == 0:
        return renamed(target, 0.0)
    if not (peak := found.beside("optim", "lr", up=2)):
        key = ".".join([*section, "optim.lr"])
        return Outcome("impossible", f"it is a share of the peak here, and {key} is not set in this file")
    return renamed(target, round(found.value / peak, 12), "a share of the peak here")


def decay_steps(found: Found) -> Outcome:
    """Translate the number of steps over which the learning rate decays. In slimrl, it decays over all steps after its
    warm-up."""
    falls = "a schedule falls from its warm-up to the end of the run here"
    if found.value == (found.get("max_steps") or 0) - (found.beside("warmup_steps") or 0):
        return Outcome("not_needed", f"{falls} too")
    return Outcome("impossible", f"{falls}, not over its last steps")


def filtering(found: Found) -> Outcome:
    """Translate the switch that replaces groups without a learning signal."""
    if found.value is False:
        return renamed("orchestrator.resample_factor", 1, "groups without a signal are not replaced")
    return Outcome("not_needed", REPLACED)


def evaluated_environment(found: Found) -> Outcome:
    """Translate an environment for evaluations, which must be an environment that the file trains on."""
    ends = (("id",), ("taskset", "id"), ("env", "taskset", "id"), ("env", "id"))
    trained = [
        _bare(value)
        for path, value in found.file.items()
        if "eval" not in path and any(path[-len(end) :] == end for end in ends) and {"env", "source"} & set(path)
    ]
    if _bare(found.value) in trained:
        return Outcome("not_needed", HELD_OUT)
    return Outcome(
        "impossible",
        "`rl` evaluates on held-out tasks of its own environments alone; evaluate others with `slimrl eval`",
    )


def teacher_name(found: Found) -> Outcome:
    """Translate the teacher's model. In slimrl, a model on a server and a loaded model have different keys."""
    return renamed("teacher.model" if found.beside("client", "base_url", up=2) else "teacher.name", found.value)


def hosted_model(found: Found) -> Outcome:
    """Translate the key `model`. In hosted files, its value is a model's name; in other files, it is a section. An
    empty section is ignored."""
    return Outcome("not_needed", "it is empty") if found.value == {} else renamed("model.name", found.value)


def data_type(found: Found) -> Outcome:
    """Translate the kind of data to train on."""
    if found.value == "fake":
        return Outcome("impossible", "`slimrl trainer` trains on made-up samples")
    return Outcome("not_needed", "data.name is a data set of the Hub, or a directory")


def micro_batch(found: Found) -> Outcome:
    """Translate the size of a micro-batch, which is counted in sequences in prime-rl and in tokens in slimrl."""
    length = found.get("data.seq_len") or DEFAULT_SFT_LENGTH
    return renamed("micro_batch_tokens", found.value * length, "counted in tokens here")


def first_of(found: Found, key: str) -> Outcome:
    """Return the setting of the first data set under slimrl's name `key`. For a further data set, return that slimrl
    has no such setting."""
    if found.stars[0] == "0":
        return renamed(key, found.value)
    return Outcome("impossible", "slimrl trains on one of the data sets: put them together into one data set")


def _bare(name: Any) -> str:
    return str(name).rsplit("/", 1)[-1].partition("@")[0]
