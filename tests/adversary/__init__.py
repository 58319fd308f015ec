"""Attacks on slimrl, each of which once got through or has a sibling that did. `SECURITY.md` says what is promised."""
