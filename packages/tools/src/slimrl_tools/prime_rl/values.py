"""Values of prime-rl's keys in slimrl's terms: conversions, which raise ValueError for what slimrl cannot do, and the
rules of single keys."""

from typing import Any

from slimrl_tools.prime_rl.rules import Found, Impossible, NotNeeded, Outcome, Renamed, Rule

ENVIRONMENTS = ("alphabet-sort", "matching-game", "reverse-text", "wiki-search", "wordle")
# Matrices of architectures that slimrl refuses to train; other trainers name them by default, for any model.
OF_OTHER_ARCHITECTURES = ("experts", "fc1_latent_proj", "fc2_latent_proj", "in_proj", "out_proj")
DEFAULT_SFT_LENGTH = 128  # of prime-rl's `data.seq_len`


def environment_id(value: Any) -> str:
    """The id of an environment without its owner and version: `primeintellect/wordle-v1@0.2` is `wordle`."""
    name = _bare(value).replace("_", "-")
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


def min_lr_ratio(found: Found) -> Outcome:
    """A lowest learning rate, which is absolute there and a share of the peak here."""
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
    """The steps over which a schedule falls, here all that follow its warm-up."""
    rest = (found.get("max_steps") or 0) - (found.beside("warmup_steps") or 0)
    if found.value == rest:
        return NotNeeded("a schedule falls from its warm-up to the end of the run here too")
    return Impossible("a schedule falls from its warm-up to the end of the run here, not over its last steps")


def resume(found: Found) -> Outcome:
    """The checkpoint that a run is continued from."""
    if found.value == -1:
        return Renamed(("resume",), True)
    return Impossible("a run is continued from its newest checkpoint: give --resume on the command line")


def turn_on(found: Found) -> Outcome:
    """W&B by the name of its section alone."""
    return Renamed(("wandb", "enabled"), found.value is not False, "a section by its bare name turns W&B on")


def harness(found: Found) -> Outcome:
    """The agent loop of an environment."""
    if found.value in ("null", "default"):
        return NotNeeded("slimrl has one agent loop")
    return Impossible(f"slimrl has one agent loop, and no harness `{found.value}`")


def filtering(found: Found) -> Outcome:
    """Whether groups without a signal are replaced."""
    if found.value is False:
        return Renamed(("orchestrator", "resample_factor"), 1, "groups without a signal are not replaced")
    return NotNeeded("groups without a signal are replaced anyway, up to orchestrator.resample_factor")


def temperature(found: Found) -> Outcome:
    """The temperature of evaluations."""
    return Renamed(("eval", "temperatures"), [float(found.value)], "held-out tasks are tried at this temperature alone")


def num_examples(found: Found) -> Outcome:
    """The number of held-out tasks; -1 is all of them there."""
    if found.value == -1:
        return Impossible("say how many held-out tasks, as in eval.num_examples = 200: all of them would take long")
    return Renamed(("eval", "num_examples"), found.value)


def evaluated_environment(found: Found) -> Outcome:
    """An environment of evaluations, which must be one that the file trains on."""
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
    """The address of a teacher behind a server."""
    return Renamed(("teacher", "base_url"), only_item(found.value), 'with teacher.type = "server"')


def teacher_name(found: Found) -> Outcome:
    """The teacher's model, which a server calls by another key than a model that is loaded here."""
    return Renamed(("teacher", "model" if found.beside("client", "base_url", up=2) else "name"), found.value)


def hosted_model(found: Found) -> Outcome:
    """The model by its name, where other dialects have a section; the header of an empty section says nothing."""
    return NotNeeded("it is empty") if found.value == {} else Renamed(("model", "name"), found.value)


def data_type(found: Found) -> Outcome:
    """The kind of data to train on."""
    if found.value == "fake":
        return Impossible("`slimrl trainer` trains on made-up samples")
    return NotNeeded("data.name is a data set of the Hub, or a directory")


def micro_batch(found: Found) -> Outcome:
    """The size of a micro-batch, which is counted in sequences there and in tokens here."""
    length = found.get("data.seq_len") or DEFAULT_SFT_LENGTH
    return Renamed(("micro_batch_tokens",), found.value * length, "counted in tokens here")


def first_of(key: str) -> Rule:
    """A rule for a key of several data sets, of which slimrl takes the first alone."""

    def rule(found: Found) -> Outcome:
        if found.stars[0] != "0":
            return Impossible("slimrl trains on one of the data sets: put them together into one data set")
        return Renamed(tuple(key.split(".")), found.value)

    return rule


def _bare(name: Any) -> str:
    """The name of an environment without its owner and version."""
    return str(name).rsplit("/", 1)[-1].partition("@")[0]
