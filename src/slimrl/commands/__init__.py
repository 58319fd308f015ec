"""The commands, one file for each. No command imports another."""
