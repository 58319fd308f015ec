"""The keys of the configuration's classes and their expected values, for the help, for loading and for error messages.

A path is a tuple of keys, for example `("orchestrator", "env", "0", "id")`. The key of a list's element is its index,
written in digits.
"""

import difflib
import inspect
import re
import types
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from typing import Any, Literal, Union, get_args, get_origin

import annotated_types
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from slimrl.config.base import Config
from slimrl.errors import UserError, nearest

Path = tuple[str, ...]

# The smallest similarity of a suggested setting, because a bad hint is worse than no hint. The similarity of `gpro` and
# `grpo` is 0.75; the similarity of `sandbox` and `wandb` is 0.67.
NEAR = 0.7

# Names of settings in other trainers and papers, with the last key of the equivalent setting in slimrl.
WORDS = {
    **dict.fromkeys(("group_size", "num_generations", "n_samples", "num_rollouts"), "rollouts_per_example"),
    **dict.fromkeys(("learning_rate", "lr_rate", "learning-rate"), "lr"),
    **dict.fromkeys(("kl", "beta", "kl_coef", "kl_coeff", "kl_loss_coef", "init_kl_coef"), "kl_beta"),
    **dict.fromkeys(("max_new_tokens", "max_completion_length", "response_length"), "max_tokens"),
    **dict.fromkeys(("epsilon", "clip_range", "cliprange", "clip_ratio", "clip_eps"), "eps_low"),
    **dict.fromkeys(("num_steps", "num_train_steps", "total_steps"), "max_steps"),
    **dict.fromkeys(("max_length", "max_seq_length", "context_length", "max_model_len"), "seq_len"),
    **dict.fromkeys(("model_name", "model_name_or_path", "model_path"), "name"),
    **dict.fromkeys(("save_steps", "save_interval", "ckpt_interval"), "interval_steps"),
    **dict.fromkeys(("report_to", "wandb_project"), "project"),
    **dict.fromkeys(("lora_r", "lora_rank"), "rank"),
}
TYPES = {float: "number", int: "integer", bool: "true or false", str: "text", Any: "any value"}
BOUNDS = {annotated_types.Gt: ">", annotated_types.Ge: ">=", annotated_types.Lt: "<", annotated_types.Le: "<="}


@dataclass(frozen=True, slots=True)
class Spec:
    """The description of a value in the configuration: its type, constraints, default and help text. It wraps
    pydantic's `FieldInfo`."""

    field: FieldInfo

    @property
    def annotation(self) -> Any:
        """The type without `Annotated`."""
        return self.field.annotation

    @property
    def options(self) -> tuple["Spec", ...]:
        """The members of a union; empty for any other type."""
        is_union = get_origin(self.annotation) in (Union, types.UnionType)
        return tuple(map(spec_of, get_args(self.annotation))) if is_union else ()

    @property
    def sections(self) -> tuple[type[Config], ...]:
        """The class of a section, or of each of its variants; empty for a plain value."""
        members = [one.annotation for one in self.options] or [self.annotation]
        return tuple(one for one in members if isinstance(one, type) and issubclass(one, Config))

    @property
    def is_list(self) -> bool:
        return get_origin(self.annotation) is list

    @property
    def item(self) -> "Spec":
        """The spec of a list's elements; the spec itself if it is not a list."""
        return spec_of(get_args(self.annotation)[0]) if self.is_list else self

    @property
    def is_list_of_numbers(self) -> bool:
        return self.is_list and self.item.annotation in (int, float)

    @property
    def is_open(self) -> bool:
        """True if any key is allowed in the value. This holds for a dictionary and for values in a dictionary."""
        return self.annotation is Any or get_origin(self.annotation) is dict

    @property
    def is_switch(self) -> bool:
        """True if a flag without a value turns the setting on. Some of these settings may also be `auto`."""
        return bool in (self.annotation, *(one.annotation for one in self.options))

    @property
    def is_verbatim(self) -> bool:
        """True if text is kept unchanged and never converted to a number. For example, a name may be `123`."""
        if self.options:
            return all(one.is_verbatim for one in self.options)
        if get_origin(self.annotation) is Literal:
            return all(isinstance(value, str) for value in get_args(self.annotation))
        return self.annotation is str

    @property
    def default(self) -> Any:
        """The default value; None if the user must set a value."""
        return None if self.is_required else self.field.get_default(call_default_factory=False)

    @property
    def is_required(self) -> bool:
        return self.field.default is PydanticUndefined


def spec_of(annotation: Any) -> Spec:
    """Return the spec of a type, with the constraints of its `Annotated` layers."""
    return Spec(FieldInfo.from_annotation(annotation))


ANYTHING = spec_of(Any)  # made once, because a file may have thousands of keys in such a section


def below(spec: Spec, key: str) -> Spec | None:
    """Return the spec of the value at `key` in `spec`; None if `spec` does not have this key."""
    if spec.is_open:
        return ANYTHING
    if spec.is_list:
        return spec.item if key.isdecimal() else None
    return next((Spec(one.model_fields[key]) for one in spec.sections if key in one.model_fields), None)


def find(root: Spec, path: Path) -> Spec | None:
    """Return the spec of the value at a path, or None for an unknown path."""
    spec: Spec | None = root
    for key in path:
        spec = below(spec, key) if spec else None
    return spec


def field_names(section: type[Config]) -> list[str]:
    """Return the names of a section's settings in the order of the help: first the names in the class's `first`, then
    its own fields, then inherited fields."""
    # pydantic puts inherited fields first, but readers of the help look for the class's own fields.
    declared = [name for base in section.__mro__ for name in inspect.get_annotations(base)]
    return [name for name in dict.fromkeys((*section.first, *declared)) if name in section.model_fields]


def keys_below(spec: Spec) -> list[str]:
    """Return the keys in a section, in the order of the help; empty for a plain value, a list or a dictionary."""
    return list(dict.fromkeys(key for section in spec.sections for key in field_names(section)))


def leaves(spec: Spec, path: Path = ()) -> Iterator[tuple[Path, Spec]]:
    """Yield path and spec of every setting below `spec`, in the order of the help. In a list of sections, the index is
    0."""
    for key in keys_below(spec):
        field = below(spec, key)
        assert field is not None
        if field.item.sections:
            yield from leaves(field.item, (*path, key, "0") if field.is_list else (*path, key))
        else:
            yield (*path, key), field


def describe(spec: Spec) -> str:
    """Describe the allowed values, for example `integer >= 1`, `one of "test", "train"` or `list of numbers >= 0`."""
    constraints = spec.field.metadata
    if spec.options and not spec.sections:
        return " or ".join(map(describe, spec.options))
    if get_origin(spec.annotation) is Literal:
        values = [f'"{value}"' for value in get_args(spec.annotation)]
        return values[0] if len(values) == 1 else f"one of {', '.join(values)}"
    if spec.is_list:
        # The plural of the words below.
        many = re.sub(r"\b(number|integer)\b", r"\1s", describe(spec.item)).replace("a section", "sections")
        return f"list of {many}{', at least one' if annotated_types.MinLen(1) in constraints else ''}"
    if spec.annotation in TYPES:
        bounds = [f"{BOUNDS[type(one)]} {astuple(one)[0]}" for one in constraints if type(one) in BOUNDS]
        bounds += ["(not empty)"] if annotated_types.MinLen(1) in constraints else []
        bounds += [f"such as {example}" for example in constraints if isinstance(example, str)]
        return f"{TYPES[spec.annotation]} {' and '.join(bounds)}".rstrip()
    if len(spec.sections) > 1:
        kinds = [describe(Spec(section.model_fields["type"])) for section in spec.sections]
        return f"a section with type = {' or '.join(kinds)}"
    return "a section" if spec.sections else "a dictionary"


def spell(path: Path) -> str:
    """Return the path as a dotted key, as in a flag or a file."""
    return ".".join(path)


def where(path: Path, origin: str) -> str:
    """Return a prefix for a message: the key and its origin, or only the key if the origin is the key's flag."""
    return f"--{spell(path)}" if origin == f"--{spell(path)}" else f"{spell(path)} ({origin})"


def locate(root: Spec, path: Path, origin: str) -> Spec:
    """Return the spec of the value at `path`. For an unknown path, raise UserError with the nearest known name."""
    if (spec := find(root, path)) is None:
        raise UserError(f"{where(path, origin)}: {explain_unknown(root, path)}")
    return spec


def explain_unknown(root: Spec, path: Path) -> str:
    """Return a message about an unknown path: the reason, or up to three suggested settings. The suggestions are, in
    this order of preference: settings with the name that `WORDS` has for the unknown key; settings with the same name,
    but one section more or fewer; settings with a similar spelling."""
    parents = ((path[:end], find(root, path[:end])) for end in range(len(path) - 1, -1, -1))
    above, parent = next((above, spec) for above, spec in parents if spec)
    key = path[len(above)]
    if parent.is_list:
        return f"{spell(above)} is a list, whose elements are named by number, as in `{spell(above)}.0`."
    if not parent.sections:
        return f"{spell(above)} is {describe(parent)} and has no settings inside it."
    known = [leaf for leaf, _ in leaves(root)]
    # Do not suggest settings in a completely different section.
    nested = [leaf for leaf in known if set(leaf) <= set(path) or set(path) <= set(leaf)]
    found = (
        [leaf for leaf in known if leaf[-1] == WORDS.get(key)]
        or [leaf for leaf in nested if leaf[-1] == path[-1]]
        or [leaf for leaf in known if len(leaf) == len(path) and all(map(_is_near, leaf, path))]
    )
    if meant := sorted(found, key=lambda leaf: -len(set(leaf) & set(path)))[:3]:
        return f"there is no such setting. Did you mean {' or '.join(f'`{spell(leaf)}`' for leaf in meant)}?"
    return f"there is no such setting.{nearest(key, keys_below(parent), NEAR)}"


def _is_near(one: str, other: str) -> bool:
    return difflib.SequenceMatcher(None, one, other).ratio() >= NEAR
