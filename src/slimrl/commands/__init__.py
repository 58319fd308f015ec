"""One file for each command; commands do not know one another."""
