"""Recognises settings files for prime-rl, translates them key by key, and reports every key.

There are three dialects: prime-rl up to v0.5, prime-rl since v0.6, and the flat files of the hosted `prime train`. Each
key has one of four outcomes: it is taken unchanged, renamed, not needed in slimrl, or impossible in slimrl. An
impossible key stops the run.
"""
