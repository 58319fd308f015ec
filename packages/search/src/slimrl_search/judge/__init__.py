"""The command `slimrl judge`: labelled answers, and a judge's agreement with them."""
