"""Names that no model has seen: a different one for every number, pronounceable, the same on every machine."""

ONSETS = ("b", "br", "d", "dr", "f", "g", "gl", "h", "k", "kr", "l", "m", "n", "p", "r", "s", "fl", "t", "tr", "v", "z")
# No name can be read as two pairs of syllables: no onset begins with a coda and goes on.
VOWELS = ("a", "e", "i", "o", "u", "ae", "ia", "ou")
CODAS = ("", "l", "n", "r", "s", "th", "m")
SYLLABLES = tuple(onset + vowel + coda for onset in ONSETS for vowel in VOWELS for coda in CODAS)
SHUFFLE = 362_437  # a prime that does not divide len(SYLLABLES) ** 2: multiplying by it visits every number once


def name_of(number: int, seed: int) -> str:
    """Two syllables for the first 1.3 million numbers, then more; equal numbers and seeds have equal names, different
    numbers different ones.

    >>> name_of(0, 0) == name_of(0, 0), len({name_of(n, 7) for n in range(5000)})
    (True, 5000)
    """
    base = len(SYLLABLES) ** 2
    rest, low = divmod(number, base)
    low = (low * SHUFFLE + seed * 7_919 + 104_729) % base
    syllables = [SYLLABLES[low // len(SYLLABLES)], SYLLABLES[low % len(SYLLABLES)]]
    while rest:
        rest, place = divmod(rest, len(SYLLABLES))
        syllables.append(SYLLABLES[place])
    return "".join(syllables).capitalize()
