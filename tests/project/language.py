"""Counts what the house rules say of names, docstrings and comments; `python -m tests.project.language` lists them.

A function is named by a verb or by what it returns, never by a participle; a docstring is a sentence with a subject and
a verb; and where a reader would have to decode, a comment says why.
"""

import ast
import io
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.project.distributions import CORE, HOMES, all_files

# Words that end as participles do and are none, or are nouns of their own.
NO_PARTICIPLES = {
    *("embed", "feed", "need", "seed", "shed", "speed"),
    *("bring", "ending", "heading", "mapping", "opening", "padding", "packing", "pricing", "ranking", "rating"),
    *("sampling", "scoring", "setting", "spelling", "string", "timing", "training", "warning", "encoding", "rounding"),
}
# Past participles without the ending; `read`, `set`, `cut`, `hit` and `put` are verbs as they stand.
IRREGULAR = {
    *("begun", "bought", "bound", "brought", "built", "chosen", "done", "drawn", "fed", "felt", "forgotten", "found"),
    *("given", "gone", "grown", "heard", "held", "hidden", "kept", "known", "laid", "led", "left", "lent", "lost"),
    *("made", "met", "paid", "said", "seen", "sent", "shown", "sold", "spent", "spoken", "sought", "spun", "split_up"),
    *("taken", "taught", "thought", "thrown", "told", "understood", "won", "worn", "written"),
}
NO_SENTENCE = ("Of", "Those", "By", "Whoever", "Whose")
Function = ast.FunctionDef | ast.AsyncFunctionDef
Documented = ast.Module | ast.ClassDef | Function


@dataclass(frozen=True, slots=True)
class Place:
    """Something found: in which file, at which line, and what."""

    path: Path
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text}"


def is_participle(word: str) -> bool:
    """Whether a word is the past or present participle of a verb, as far as its ending tells."""
    if word in NO_PARTICIPLES:
        return False
    return word in IRREGULAR or (len(word) > 3 and word.endswith(("ed", "ing")))


def functions(source: str) -> Iterator[Function]:
    """Every function and method of a module that has a name of its own: no overload of an operator."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, Function) and not node.name.startswith("__"):
            yield node


def participles(source: str) -> list[Function]:
    """The functions whose name begins with a participle."""
    return [node for node in functions(source) if is_participle(node.name.strip("_").split("_")[0])]


def no_sentences(source: str) -> list[tuple[int, str]]:
    """The docstrings that begin with a word that no sentence of ours begins with: line and first line."""
    found = []
    for node in ast.walk(ast.parse(source)):
        text = ast.get_docstring(node) if isinstance(node, Documented) else None
        if text and text.split()[0] in NO_SENTENCE:
            found.append((node.body[0].lineno, text.splitlines()[0]))
    return found


def comment_share(source: str) -> tuple[int, int]:
    """The number of lines with a comment, and of lines with code: no blank line, docstring or comment alone."""
    documented = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, Documented) and ast.get_docstring(node, clean=False) is not None:
            documented |= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    comments, code = set(), set()
    layout = (tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        lines = range(token.start[0], token.end[0] + 1)
        if token.type == tokenize.COMMENT:
            comments |= set(lines)
        elif token.type not in layout:
            code |= set(lines) - documented
    return len(comments), len(code)


def sources(*packages: str) -> list[Path]:
    """The modules of the named packages of the core; of all distributions, if none is named."""
    core = HOMES[CORE] / "src" / CORE
    return sorted(path for name in packages for path in (core / name).rglob("*.py")) if packages else all_files()


def main(packages: list[str]) -> None:
    """Print every place, and the shares."""
    num_functions, num_comments, num_code, num_named = 0, 0, 0, 0
    for path in sources(*packages):
        source = path.read_text(encoding="utf-8")
        num_functions += sum(1 for _ in functions(source))
        for node in participles(source):
            num_named += 1
            print(Place(path, node.lineno, f"{node.name}: a participle"))
        for line, text in no_sentences(source):
            print(Place(path, line, f"{text!r}: no sentence"))
        comments, code = comment_share(source)
        num_comments, num_code = num_comments + comments, num_code + code
    print(f"{num_named} of {num_functions} functions named by a participle; comments {num_comments / num_code:.1%}")


if __name__ == "__main__":
    main(sys.argv[1:])
