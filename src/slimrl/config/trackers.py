"""The sections of experiment trackers: other programs that show runs. Each tracker needs an extra of slimrl. Local
files are always written."""

from typing import ClassVar, Literal

from pydantic import Field

from slimrl.config.base import Config


class TrackerConfig(Config):
    """A program that shows runs. By default it is on if a project is named."""

    first: ClassVar[tuple[str, ...]] = ("project", "enabled")

    project: str = Field(default="", pattern=r"^[\w. -]*$")
    """The project to log to; naming one turns the program on."""

    enabled: Literal["auto"] | bool = "auto"
    """Send metrics to the program; `auto` does if a `project` is named."""

    @property
    def is_on(self) -> bool:
        """True if the settings turn this tracker on."""
        return bool(self.project) if self.enabled == "auto" else self.enabled


class WandbConfig(TrackerConfig):
    """Weights & Biases, in addition to the local files. Needs the extra `wandb`."""

    project: str = ""
    """The project to log to; naming one turns Weights & Biases on. The variable WANDB_MODE is respected: `disabled`
    turns it off, `offline` keeps everything here."""

    entity: str = ""
    """Team or user that owns the project; if empty, your own default."""

    name: str = ""
    """Name of the run; if empty, W&B makes one up."""


class TrackioConfig(TrackerConfig):
    """Trackio, which keeps runs on this machine and shows them in the browser (`trackio show`). The variables
    TRACKIO_DIR, TRACKIO_SPACE_ID and TRACKIO_SERVER_URL set its storage, with their usual effect. Needs the extra
    `trackio`."""

    name: str = ""
    """The prefix of the run's name; if empty, the name of `output_dir`."""


class TensorboardConfig(Config):
    """TensorBoard's event files, in `tensorboard/` of the run's directory. Needs the extra `tensorboard`."""

    enabled: bool = False
    """Write them, at every step."""
