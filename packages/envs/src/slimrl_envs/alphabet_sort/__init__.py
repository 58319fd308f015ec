"""Keep a growing list of names sorted, over several turns."""
