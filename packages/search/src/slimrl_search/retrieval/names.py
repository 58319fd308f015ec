"""The module makes invented, pronounceable names: a distinct one for each number, the same on every machine."""

ONSETS = ("b", "br", "d", "dr", "f", "g", "gl", "h", "k", "kr", "l", "m", "n", "p", "r", "s", "fl", "t", "tr", "v", "z")
# A name splits into syllables in one way only, so distinct syllables give distinct names: a coda that is followed by
# more consonants is never an onset.
VOWELS = ("a", "e", "i", "o", "u", "ae", "ia", "ou")
CODAS = ("", "l", "n", "r", "s", "th", "m")
SYLLABLES = tuple(onset + vowel + coda for onset in ONSETS for vowel in VOWELS for coda in CODAS)
SHUFFLE = 362_437  # a prime that does not divide len(SYLLABLES) ** 2: multiplying by it visits every number once


def name_of(number: int, seed: int) -> str:
    """Return the name of a number: two syllables for the first 1.3 million numbers, then more. Distinct numbers have
    distinct names.

    >>> name_of(0, 0) == name_of(0, 0), len({name_of(n, 7) for n in range(5000)})
    (True, 5000)
    """
    base = len(SYLLABLES) ** 2
    rest, low = divmod(number, base)
    # A permutation of the pairs of syllables, so that the names of neighbouring numbers do not sound alike.
    low = (low * SHUFFLE + seed * 7_919 + 104_729) % base
    syllables = [SYLLABLES[low // len(SYLLABLES)], SYLLABLES[low % len(SYLLABLES)]]
    while rest:
        rest, place = divmod(rest, len(SYLLABLES))
        syllables.append(SYLLABLES[place])
    return "".join(syllables).capitalize()
