"""The programs in the repository's `scripts/`, as command lines of the commands: slimrl has one trainer and one
evaluation."""
