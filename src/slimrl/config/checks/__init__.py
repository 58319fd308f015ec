"""Rules about several settings or sections. Each rule is a generator of `Faults`, and never changes a setting.

A setting without effect is an error: a clip range for a loss that does not clip would be a silent mistake. But a
section that is switched off (`wandb.enabled = false`, `warmup.max_steps = 0`) keeps its settings, so that one flag can
switch it on.
"""
