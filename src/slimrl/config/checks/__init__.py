"""Rules that span settings or sections: generators of `Faults`, which never change anything.

A setting without effect is an error: a clip range for a loss that does not clip would be a silent mistake. But a
section that is switched off (`wandb.enabled = false`, `warmup.max_steps = 0`) keeps its settings, so that one flag can
switch it on.
"""
