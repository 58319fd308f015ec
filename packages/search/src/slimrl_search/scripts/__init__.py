"""The code of the programs in the repository's `scripts/`. The programs only write command lines for slimrl's commands,
so there is no second trainer or evaluation."""
