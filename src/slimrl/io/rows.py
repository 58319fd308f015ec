"""Reads rows of JSONL files, parquet files and Hub data sets, one after the other."""

import io
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from slimrl.errors import UserError, require
from slimrl.io.regular_file import open_regular
from slimrl.io.text import hash_number, is_too_deep

MAX_ROW_BYTES = 2**24

T = TypeVar("T")


def file_rows(path: Path, check: str) -> Iterator[tuple[Any, str]]:
    """Yield the rows of a `.parquet` or JSONL file, each with its place as `file:line`. A line that is not JSON is
    yielded as text.

    Raise UserError if the file cannot be read, or if an object has a duplicate key. The message asks the user to check
    the setting `check`.
    """
    if path.suffix == ".parquet":
        if not path.is_file():
            raise UserError(f"{path} cannot be read: no such file. Check {check}.")
        yield from _with_places(_parquet(path, check), str(path))
        return
    with open_regular(path, f" Check {check}.") as raw, io.BufferedReader(raw) as file:
        # Only "\n" separates lines: Unicode's other line breaks may occur inside a JSON text.
        for number, line in enumerate(iter(lambda: file.readline(MAX_ROW_BYTES + 1), b""), 1):
            if len(line) > MAX_ROW_BYTES:
                raise UserError(f"{path}:{number} is longer than the {MAX_ROW_BYTES >> 20} MiB that a row may have.")
            if line.strip():
                encoding = "utf-8-sig" if number == 1 else "utf-8"
                yield _parse_line(_decode(line, encoding, f"{path}:{number}"), f"{path}:{number}"), f"{path}:{number}"


def hub_rows(name: str, split: str, check: str, subset: str = "") -> Iterator[tuple[Any, str]]:
    """Yield the rows of one split of a data set, each with its place. `name` is an id on the Hub or a local directory.
    `subset` is one of the data set's configurations; empty for the default. Downloads are cached and resumed. Raise
    UserError if the data set cannot be loaded. The message asks the user to check the setting `check`."""
    import httpx  # slow to import, and few commands download data

    datasets = _datasets()
    try:
        rows = datasets.load_dataset(name, subset or None, split=split)
    except (OSError, ValueError, httpx.HTTPError, datasets.exceptions.DatasetsError) as error:
        raise UserError(
            f"cannot load the split `{split}` of {name}: {type(error).__name__}: {error}. Check {check}; a private "
            "data set needs `hf auth login`, and HF_HUB_OFFLINE=1 allows only what is in the cache."
        ) from error
    yield from _with_places(rows, f"{name} ({split})")


def preview(row: Any) -> str:
    """Return the first characters of a row, for a message about it."""
    return f"{row if isinstance(row, str) else json.dumps(row, default=str):.120}"


def hash_fraction(content: Any) -> float:
    """Return a hash of the content, as JSON, in [0, 1). Callers compare this number with a share to decide whether an
    item is held out. So the decision does not depend on the item's position or on other items."""
    return hash_number(json.dumps(content, sort_keys=True)) / 2**48


def draw(items: Sequence[T], num: int, content: Callable[[T], Any]) -> list[T]:
    """Return `num` items, or all items if there are fewer, in their original order. The items are chosen by a hash of
    their `content`: every call chooses the same items, spread over the whole list. A larger draw includes all items of
    a smaller draw."""
    drawn = sorted(range(len(items)), key=lambda place: hash_fraction(content(items[place])))[:num]
    return [items[place] for place in sorted(drawn)]


def _with_places(rows: Any, name: str) -> Iterator[tuple[Any, str]]:
    return ((row, f"{name}:{number}") for number, row in enumerate(rows, 1))


def _parquet(path: Path, check: str) -> Any:
    datasets = _datasets()
    try:
        return datasets.Dataset.from_parquet(str(path))
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        raise UserError(
            f"{path} cannot be read as a parquet file: {type(error).__name__}: {str(error).strip()} "
            f"Check {check}; JSONL must not be called .parquet."
        ) from error


def _decode(line: bytes, encoding: str, where: str) -> str:
    try:
        return line.decode(encoding).rstrip("\n")
    except UnicodeDecodeError as error:
        raise UserError(f"{where} is not UTF-8 text ({error}); it must be JSONL, or be called .parquet.") from None


def _parse_line(line: str, where: str) -> Any:
    try:
        row = DECODER.decode(line)
    except KeyError as error:
        raise UserError(f"{where} has the key {error!s:.80} twice; only one of the values can be meant.") from None
    except (ValueError, RecursionError):  # no JSON, a number with thousands of digits, or nested too deeply
        return line
    return line if is_too_deep(row) else row


def _object_of(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Build a JSON object from pairs of key and value. If a key occurs twice, raise KeyError with this key."""
    row = dict(pairs)
    if len(row) < len(pairs):
        raise KeyError(Counter(key for key, _ in pairs).most_common(1)[0][0])
    return row


DECODER = json.JSONDecoder(object_pairs_hook=_object_of)


def _datasets() -> Any:
    return require("datasets", "data", "reading parquet files and Hub data sets (JSONL needs no extra)")
