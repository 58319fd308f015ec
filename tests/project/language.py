"""Counts the house rules for names, docstrings and comments; `python -m tests.project.language` lists the places.

A function is named by a verb or by its result, never by a participle; a docstring is a sentence with a subject and a
verb; a comment stands where a reader would have to decode; and both are written in plain English (`WORDY`).
"""

import ast
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.project.distributions import CORE, HOMES, all_files

# Words that end as participles do and are none, or are nouns of their own.
NO_PARTICIPLES = {
    *("embed", "feed", "need", "seed", "shed", "speed"),
    *("beginning", "bring", "ending", "everything", "heading", "mapping", "opening", "padding", "packing", "pricing"),
    *("ranking", "rating", "sampling", "scoring", "setting", "spelling", "string", "timing", "training", "warning"),
    *("encoding", "rounding"),
}
# Past participles without the ending; `read`, `set`, `cut`, `hit` and `put` are verbs as they stand.
IRREGULAR = {
    *("begun", "bought", "bound", "brought", "built", "chosen", "done", "drawn", "fed", "felt", "forgotten", "found"),
    *("given", "gone", "grown", "heard", "held", "hidden", "kept", "known", "laid", "led", "left", "lent", "lost"),
    *("made", "met", "paid", "said", "seen", "sent", "shown", "sold", "spent", "spoken", "sought", "spun", "split_up"),
    *("taken", "taught", "thought", "thrown", "told", "understood", "won", "worn", "written"),
}
# Words that a reader from abroad stumbles over, and the most that docstrings and comments may have of them, in 1,000
# words. Well-kept projects have 0 to 0.5, 0.1, 1.8, 0.1 and 0.2 of them.
WORDY = {
    "what": (re.compile(r"\bwhat(ever)?\b", re.IGNORECASE), 1.0),
    "tell, say, speak": (re.compile(r"\b(tells?|told|says?|said|speaks?|spoken)\b", re.IGNORECASE), 0.2),
    "come, begin, end, go on": (
        re.compile(r"\b(comes?|came|coming|begins?|began|begun|ends|ended|go(es)? on|went on)\b", re.IGNORECASE),
        3.6,
    ),
    "that of": (re.compile(r"\b(that|those) of\b", re.IGNORECASE), 0.2),
    "is no": (re.compile(r"\b(is|are) no\b", re.IGNORECASE), 0.4),
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


def texts(source: str) -> Iterator[tuple[int, str]]:
    """The docstrings and comments of a module, each with its line."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, Documented) and (text := ast.get_docstring(node)):
            yield node.body[0].lineno, text
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def wordy(source: str) -> tuple[Counter[str], int, list[tuple[int, str]]]:
    """The number of wordy expressions of each kind, the number of words, and the places: line and words around."""
    found: Counter[str] = Counter()
    num_words, places = 0, []
    for line, text in texts(source):
        num_words += len(re.findall(r"[A-Za-z']+", text))
        for kind, (pattern, _) in WORDY.items():
            for match in pattern.finditer(text):
                found[kind] += 1
                around = " ".join(text[max(0, match.start() - 40) : match.end() + 40].split())
                places.append((line, f"{kind}: ... {around} ..."))
    return found, num_words, places


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
    """The modules of the named packages of the core or of the named plug-ins (`slimrl_view`); all, if none is named."""
    homes = {
        name: HOMES[name] / "src" / name if name in HOMES else HOMES[CORE] / "src" / CORE / name for name in packages
    }
    return sorted(path for home in homes.values() for path in home.rglob("*.py")) if packages else all_files()


def main(packages: list[str]) -> None:
    """Print every place, and the shares."""
    num_functions, num_comments, num_code, num_named, num_words = 0, 0, 0, 0, 0
    counts: Counter[str] = Counter()
    for path in sources(*packages):
        source = path.read_text(encoding="utf-8")
        num_functions += sum(1 for _ in functions(source))
        for node in participles(source):
            num_named += 1
            print(Place(path, node.lineno, f"{node.name}: a participle"))
        for line, text in no_sentences(source):
            print(Place(path, line, f"{text!r}: no sentence"))
        found, words, places = wordy(source)
        counts, num_words = counts + found, num_words + words
        for line, text in places:
            print(Place(path, line, text))
        comments, code = comment_share(source)
        num_comments, num_code = num_comments + comments, num_code + code
    print(f"{num_named} of {num_functions} functions named by a participle; comments {num_comments / num_code:.1%}")
    shares = (f"{kind} {1000 * counts[kind] / num_words:.1f} (at most {most})" for kind, (_, most) in WORDY.items())
    print(f"in 1,000 words of docstrings and comments: {'; '.join(shares)}")


if __name__ == "__main__":
    main(sys.argv[1:])
