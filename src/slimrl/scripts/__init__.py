"""What the programs in `scripts/` do, as command lines of the commands: one trainer, one evaluation."""
