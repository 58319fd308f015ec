"""The programs in the repository's `scripts/`. They make command lines for slimrl's commands, so slimrl has only one
trainer and one evaluation."""
