"""Find a word in six guesses."""
