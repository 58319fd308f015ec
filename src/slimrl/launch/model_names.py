"""Checks the names of a command's models before anything heavy is imported: a mistyped one is answered at once."""

from slimrl.config.base import CommandConfig
from slimrl.config.check import TemplateConfig
from slimrl.config.model import ModelConfig
from slimrl.config.run import RLConfig
from slimrl.config.teacher import ModelTeacherConfig
from slimrl.models.names import kind_of


def check_model_names(config: CommandConfig) -> None:
    """Raises UserError if a model's name can be nothing: no packaged model, no file, and no name of the Hub."""
    model = vars(config).get("model")
    if isinstance(model, ModelConfig | TemplateConfig) and model.name:
        kind_of(model.name)
    if isinstance(config, RLConfig) and isinstance(config.teacher, ModelTeacherConfig) and config.teacher.name:
        kind_of(config.teacher.name, "teacher.name")
