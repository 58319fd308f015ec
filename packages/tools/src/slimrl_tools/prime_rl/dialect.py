"""prime-rl's settings as a dialect of slimrl's (`config/reading/names.py`)."""

from collections.abc import Sequence

from slimrl.config.reading.names import IsKnown
from slimrl.config.reading.schema import Path
from slimrl.config.reading.sources import Setting
from slimrl_tools.prime_rl.rules import is_listed
from slimrl_tools.prime_rl.translation import SECTIONS_AS_VALUES, TABLES, Translation, is_foreign, translate


class PrimeRL:
    """The settings of prime-rl, in its three dialects."""

    name = "prime-rl"

    def has(self, command: str, path: Path) -> bool:
        return is_listed(TABLES.get(command, {}), path)

    def has_plain(self, path: Path) -> bool:
        return path in SECTIONS_AS_VALUES

    def is_foreign(self, source: Sequence[Setting], command: str, is_known: IsKnown) -> bool:
        return is_foreign(source, command, is_known)

    def translate(self, source: Sequence[Setting], command: str, is_known: IsKnown) -> Translation:
        return translate(source, command, is_known)


PRIME_RL = PrimeRL()
