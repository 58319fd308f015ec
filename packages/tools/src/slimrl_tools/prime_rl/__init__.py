"""Settings files that were written for prime-rl: recognised, and translated key by key, nothing in silence.

There are three dialects: prime-rl up to v0.5, prime-rl since v0.6, and the flat files of the hosted `prime train`. A
key is taken as it is, renamed, not needed here, or cannot be done, which stops the run.
"""
