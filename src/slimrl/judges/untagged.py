"""Removes all possible tags and control tokens of language models from a text, for any model family.

All tags and control tokens are names in brackets: `<|im_end|>`, `[/INST]`, `</response>`, `<start_of_turn>`, `]~b]`. So
no list of tags is needed: a text without angle and square brackets cannot contain a tag.
"""

import re
import unicodedata

# A comparison is not a tag, and its meaning must be kept.
COMPARISON = re.compile(r"(?<![-=])[<>]=?(?=\s?[-+]?[$£€.]?\d)")
IN_WORDS = {"<": " less than ", "<=": " at most ", ">": " more than ", ">=": " at least "}
NOT_SHOWN = {"Cc": "", "Cf": "", "Cs": "?"}  # control and invisible characters, half of a surrogate pair
KEPT = "\t\n"
ROUND = frozenset("(){}")
# Signs that look like an angle bracket, but are not brackets in Unicode.
LIKE_OPENING = frozenset("‹❮˂ᐸ◁◀◂◃◄⏴⯇⮜🞀≺⋖⪡≪⋘⫷⪻⊲⊰")
LIKE_CLOSING = frozenset("›❯˃ᐳ▷▶▸▹►⏵⯈⮞🞂≻⋗⪢≫⋙⫸⪼⊳⊱")
QUOTES = frozenset("„‚〝")  # quotation marks that Unicode classifies as opening brackets


def without_tags(text: str) -> str:
    """Replace all brackets except braces by round brackets, and remove invisible characters. A "<" before a number
    becomes "less than".

    >>> without_tags("1874</response>"), without_tags("<｜im▁end｜>"), without_tags("<5 [1]")
    ('1874(/response)', '(｜im▁end｜)', ' less than 5 (1)')
    """
    shown = "".join(map(_visible, text))
    return "".join(map(_round, COMPARISON.sub(lambda found: IN_WORDS[found[0]], shown)))


def _visible(character: str) -> str:
    if character in KEPT:
        return character
    return NOT_SHOWN.get(unicodedata.category(character), character)


def _round(character: str) -> str:
    """Return a round bracket for any bracket except a brace, and for similar signs such as "＜", which tokenizers may
    normalise to "<". Return any other character unchanged."""
    if character in ROUND or character in QUOTES:
        return character
    normal, category = unicodedata.normalize("NFKD", character), unicodedata.category(character)
    if category == "Ps" or "<" in normal or "[" in normal or character in LIKE_OPENING:
        return "("
    if category == "Pe" or ">" in normal or "]" in normal or character in LIKE_CLOSING:
        return ")"
    return character
