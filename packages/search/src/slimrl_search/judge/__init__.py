"""The command `slimrl judge`: it measures how often a judge agrees with labelled answers."""
