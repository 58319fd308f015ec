"""Takes from a text what could be a tag or a control token of a language model, whichever family it is of.

All of these are names in brackets: `<|im_end|>`, `[/INST]`, `</response>`, `<start_of_turn>`, `]~b]`. So there is no
list of them: a text without angle and square brackets spells none.
"""

import re
import unicodedata

# A comparison is no tag, and its meaning counts.
COMPARISON = re.compile(r"(?<![-=])[<>]=?(?=\s?[-+]?[$£€.]?\d)")
IN_WORDS = {"<": " less than ", "<=": " at most ", ">": " more than ", ">=": " at least "}
NOT_SHOWN = {"Cc": "", "Cf": "", "Cs": "?"}  # controls, the invisible, and half of a pair, which cannot be sent
KEPT = "\t\n"
ROUND = frozenset("(){}")
# Signs that look like an angle bracket, and are none to Unicode.
LIKE_OPENING = frozenset("‹❮˂ᐸ◁◀◂◃◄⏴⯇⮜🞀≺⋖⪡≪⋘⫷⪻⊲⊰")
LIKE_CLOSING = frozenset("›❯˃ᐳ▷▶▸▹►⏵⯈⮞🞂≻⋗⪢≫⋙⫸⪼⊳⊱")
QUOTES = frozenset("„‚〝")  # which Unicode counts as opening brackets


def without_tags(text: str) -> str:
    """The text with round brackets for all others but braces, and without characters that are not shown. A "<" before
    a number becomes "less than".

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
    """A round bracket for any other, and for what a tokenizer may take for one: "＜" is "<" in its normal form."""
    if character in ROUND or character in QUOTES:
        return character
    normal, category = unicodedata.normalize("NFKD", character), unicodedata.category(character)
    if category == "Ps" or "<" in normal or "[" in normal or character in LIKE_OPENING:
        return "("
    if category == "Pe" or ">" in normal or "]" in normal or character in LIKE_CLOSING:
        return ")"
    return character
