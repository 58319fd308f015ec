"""Checks the names of a command's models before heavy imports: a mistyped name is refused at once."""

from slimrl.config.base import CommandConfig
from slimrl.config.check import TemplateConfig
from slimrl.config.model import ModelConfig
from slimrl.config.run import RLConfig
from slimrl.config.teacher import ModelTeacherConfig
from slimrl.models.names import kind_of


def check_model_names(config: CommandConfig) -> None:
    """Raise UserError if a name is neither a packaged model, nor a file or directory, nor a possible id of the Hub."""
    model = vars(config).get("model")
    if isinstance(model, ModelConfig | TemplateConfig) and model.name:
        kind_of(model.name)
    if isinstance(config, RLConfig) and isinstance(config.teacher, ModelTeacherConfig) and config.teacher.name:
        kind_of(config.teacher.name, "teacher.name")
