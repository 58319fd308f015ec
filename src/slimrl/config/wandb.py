"""The section `[wandb]`: Weights & Biases."""

from typing import Literal

from slimrl.config.base import Config


class WandbConfig(Config):
    """Weights & Biases, in addition to the local files. Needs the extra `wandb`."""

    project: str = ""
    """The project to log to; naming one turns Weights & Biases on. The variable WANDB_MODE is respected: `disabled`
    turns it off, `offline` keeps everything here."""

    enabled: Literal["auto"] | bool = "auto"
    """Send metrics to W&B; `auto` does if a `project` is named."""

    entity: str = ""
    """Team or user that owns the project; if empty, your own default."""

    name: str = ""
    """Name of the run; if empty, W&B makes one up."""

    @property
    def is_on(self) -> bool:
        """True if the settings turn W&B on."""
        return bool(self.project) if self.enabled == "auto" else self.enabled
