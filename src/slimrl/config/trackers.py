"""The sections of other programs that show runs, each an extra. Local files are always written."""

from typing import Literal

from pydantic import Field

from slimrl.config.base import Config


class WandbConfig(Config):
    """Weights & Biases, in addition to the local files. Needs the extra `wandb`."""

    project: str = ""
    """The project to log to; naming one turns Weights & Biases on. The variable WANDB_MODE is respected: `disabled`
    turns it off, `offline` keeps everything here."""

    enabled: Literal["auto"] | bool = "auto"
    """Send metrics to Weights & Biases; `auto` does if a `project` is named."""

    entity: str = ""
    """Team or user that owns the project; if empty, your own default."""

    name: str = ""
    """Name of the run; if empty, W&B makes one up."""

    @property
    def is_on(self) -> bool:
        """True if the settings turn Weights & Biases on."""
        return bool(self.project) if self.enabled == "auto" else self.enabled


class TrackioConfig(Config):
    """Trackio, which keeps runs on this machine and shows them in the browser (`trackio show`). Needs the extra
    `trackio`."""

    project: str = Field(default="", pattern=r"^[\w. -]*$")
    """The project to log to; naming one turns Trackio on."""

    enabled: Literal["auto"] | bool = "auto"
    """Send metrics to Trackio; `auto` does if a `project` is named. The variables TRACKIO_DIR, TRACKIO_SPACE_ID and
    TRACKIO_SERVER_URL set its storage, with their usual effect."""

    name: str = ""
    """The prefix of the run's name; if empty, the name of `output_dir`."""

    @property
    def is_on(self) -> bool:
        """True if the settings turn Trackio on."""
        return bool(self.project) if self.enabled == "auto" else self.enabled


class TensorboardConfig(Config):
    """TensorBoard's event files, in `tensorboard/` of the run's directory. Needs the extra `tensorboard`."""

    enabled: bool = False
    """Write them, at every step."""
