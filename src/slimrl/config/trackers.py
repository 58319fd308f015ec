"""The sections of other programs that show runs, each an extra. Local files are written whatever stands here."""

from typing import Literal

from pydantic import Field

from slimrl.config.base import Config


class WandbConfig(Config):
    """Weights & Biases, beside the local files that are always written. Needs the extra `wandb`."""

    project: str = ""
    """The project to log to; naming one turns Weights & Biases on. The variable WANDB_MODE is respected: `disabled`
    turns it off, `offline` keeps everything here."""

    enabled: Literal["auto"] | bool = "auto"
    """Send metrics to Weights & Biases; `auto` does if a `project` is named."""

    entity: str = ""
    """Team or user that owns the project; empty is your own default."""

    name: str = ""
    """Name of the run; empty lets W&B make one up."""

    @property
    def is_on(self) -> bool:
        """Whether the settings ask for Weights & Biases."""
        return bool(self.project) if self.enabled == "auto" else self.enabled


class TrackioConfig(Config):
    """Trackio, which keeps runs on this machine and shows them in the browser (`trackio show`). Needs the extra
    `trackio`."""

    project: str = Field(default="", pattern=r"^[\w. -]*$")
    """The project to log to; naming one turns Trackio on."""

    enabled: Literal["auto"] | bool = "auto"
    """Send metrics to Trackio; `auto` does if a `project` is named. The variables TRACKIO_DIR, TRACKIO_SPACE_ID and
    TRACKIO_SERVER_URL say where it keeps them, and have their usual effect."""

    name: str = ""
    """What the name of the run begins with; empty is that of `output_dir`."""

    @property
    def is_on(self) -> bool:
        """Whether the settings ask for Trackio."""
        return bool(self.project) if self.enabled == "auto" else self.enabled


class TensorboardConfig(Config):
    """TensorBoard's event files, in `tensorboard/` of the run's directory. Needs the extra `tensorboard`."""

    enabled: bool = False
    """Write them, at every step."""
