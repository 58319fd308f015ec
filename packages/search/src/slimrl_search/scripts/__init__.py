"""The programs in the repository's `scripts/`, as command lines of the commands: there is one trainer and one
evaluation."""
