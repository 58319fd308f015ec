"""Recognises settings files for prime-rl, and translates them key by key; every key is reported.

There are three dialects: prime-rl up to v0.5, prime-rl since v0.6, and the flat files of the hosted `prime train`. A
key is taken unchanged, renamed, not needed here, or impossible; an impossible key stops the run.
"""
