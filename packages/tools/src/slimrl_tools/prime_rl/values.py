"""Converts the values of prime-rl's keys to slimrl's terms, with the rules of single keys. Conversions raise ValueError
for impossible values."""

from typing import Any

from slimrl_tools.prime_rl.rules import Found, Impossible, NotNeeded, Outcome, Renamed, Rule

ENVIRONMENTS = ("alphabet-sort", "matching-game", "reverse-text", "wiki-search", "wordle")
# Matrices of architectures that slimrl refuses to train; other trainers name them by default, for any model.
OF_OTHER_ARCHITECTURES = ("experts", "fc1_latent_proj", "fc2_latent_proj", "in_proj", "out_proj")
DEFAULT_SFT_LENGTH = 128  # of prime-rl's `data.seq_len`


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
    """Return the matrices to adapt, without matrices of unsupported architectures."""
    kept = [str(name) for name in value if name not in OF_OTHER_ARCHITECTURES]
    if not kept:
        raise ValueError(f"slimrl adapts attention and MLP, and none of {value}")
    return kept


def only_item(value: Any) -> Any:
    """Return the item of a list of one, or any other value unchanged."""
    if not isinstance(value, list):
        return value
    if len(value) != 1:
        raise ValueError(f"found {len(value)} values, and slimrl takes one")
    return value[0]


def at_least_one(value: Any) -> int:
    """Return a factor rounded up to a whole number."""
    return max(1, -(-int(float(value) * 1000) // 1000))


def min_lr_ratio(found: Found) -> Outcome:
    """Translate a lowest learning rate, which is absolute there and a share of the peak here."""
    *section, scheduler, _ = found.path
    target = (*section, scheduler.removesuffix("r"), "min_lr_ratio")
    if found.value == 0:
        return Renamed(target, 0.0)
    if not (peak := found.beside("optim", "lr", up=2)):
        return Impossible(
            f"it is a share of the peak here, and {'.'.join([*section, 'optim.lr'])} is not set in this file"
        )
    return Renamed(target, round(found.value / peak, 12), "a share of the peak here")


def decay_steps(found: Found) -> Outcome:
    """Translate the steps over which a schedule falls: here, all steps after its warm-up."""
    rest = (found.get("max_steps") or 0) - (found.beside("warmup_steps") or 0)
    if found.value == rest:
        return NotNeeded("a schedule falls from its warm-up to the end of the run here too")
    return Impossible("a schedule falls from its warm-up to the end of the run here, not over its last steps")


def resume(found: Found) -> Outcome:
    """Translate the checkpoint that a run resumes from."""
    if found.value == -1:
        return Renamed(("resume",), True)
    return Impossible("a run is continued from its newest checkpoint: give --resume on the command line")


def turn_on(found: Found) -> Outcome:
    """Turn W&B on by the bare name of its section."""
    return Renamed(("wandb", "enabled"), found.value is not False, "a section by its bare name turns W&B on")


def harness(found: Found) -> Outcome:
    """Translate the agent loop of an environment."""
    if found.value in ("null", "default"):
        return NotNeeded("slimrl has one agent loop")
    return Impossible(f"slimrl has one agent loop, and no harness `{found.value}`")


def filtering(found: Found) -> Outcome:
    """Translate the switch that replaces groups without a signal."""
    if found.value is False:
        return Renamed(("orchestrator", "resample_factor"), 1, "groups without a signal are not replaced")
    return NotNeeded("groups without a signal are replaced anyway, up to orchestrator.resample_factor")


def temperature(found: Found) -> Outcome:
    """Translate the temperature of evaluations."""
    return Renamed(("eval", "temperatures"), [float(found.value)], "held-out tasks are tried at this temperature alone")


def num_examples(found: Found) -> Outcome:
    """Translate the number of held-out tasks; -1 means all of them there."""
    if found.value == -1:
        return Impossible("say how many held-out tasks, as in eval.num_examples = 200: all of them would take long")
    return Renamed(("eval", "num_examples"), found.value)


def evaluated_environment(found: Found) -> Outcome:
    """Translate an environment of evaluations, which must be one that the file trains on."""
    ends = (("id",), ("taskset", "id"), ("env", "taskset", "id"), ("env", "id"))
    trained = [
        _bare(value)
        for path, value in found.file.items()
        if "eval" not in path and any(path[-len(end) :] == end for end in ends) and {"env", "source"} & set(path)
    ]
    if _bare(found.value) in trained:
        return NotNeeded("held-out tasks of the environments that are trained on are evaluated anyway")
    return Impossible(
        "`rl` evaluates on held-out tasks of its own environments alone; evaluate others with `slimrl eval`"
    )


def server_teacher(found: Found) -> Outcome:
    """Translate the address of a teacher behind a server."""
    return Renamed(("teacher", "base_url"), only_item(found.value), 'with teacher.type = "server"')


def teacher_name(found: Found) -> Outcome:
    """Translate the teacher's model. Its key here differs for a server and for a model that is loaded."""
    return Renamed(("teacher", "model" if found.beside("client", "base_url", up=2) else "name"), found.value)


def hosted_model(found: Found) -> Outcome:
    """Translate a model given by its name, where other dialects have a section; the header of an empty section is
    ignored."""
    return NotNeeded("it is empty") if found.value == {} else Renamed(("model", "name"), found.value)


def data_type(found: Found) -> Outcome:
    """Translate the kind of data to train on."""
    if found.value == "fake":
        return Impossible("`slimrl trainer` trains on made-up samples")
    return NotNeeded("data.name is a data set of the Hub, or a directory")


def micro_batch(found: Found) -> Outcome:
    """Translate the size of a micro-batch, which is counted in sequences there and in tokens here."""
    length = found.get("data.seq_len") or DEFAULT_SFT_LENGTH
    return Renamed(("micro_batch_tokens",), found.value * length, "counted in tokens here")


def first_of(key: str) -> Rule:
    """Return a rule for a key of several data sets: slimrl takes only the first."""

    def rule(found: Found) -> Outcome:
        if found.stars[0] != "0":
            return Impossible("slimrl trains on one of the data sets: put them together into one data set")
        return Renamed(tuple(key.split(".")), found.value)

    return rule


def _bare(name: Any) -> str:
    """Return the name of an environment without its owner and version."""
    return str(name).rsplit("/", 1)[-1].partition("@")[0]
