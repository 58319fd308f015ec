"""Shows the first rows of supervised data in the form that the model reads, with the trained tokens marked.

`sft --dry-run` prints the rows after the settings, as comments of TOML, so that the output is still a valid settings
file.
"""

import os
from itertools import groupby

from slimrl.config.data import FileDataConfig, HubDataConfig
from slimrl.config.run import SFTConfig
from slimrl.errors import UserError, visible
from slimrl.launch.supervised import encode_row
from slimrl.models.chat.stand_in import stand_in_chat
from slimrl.models.chat.template import ChatFormat
from slimrl.models.load import load_chat
from slimrl.models.names import ModelKind, kind_of
from slimrl.trainer.sft.data import first_rows

NUM_ROWS = 3
MAX_CHARACTERS = 4000
BEGIN, END = "⟦", "⟧"


def show_rows(config: SFTConfig) -> str:
    """Return the first rows as comments. Return an empty text for experts, and only a remark for a data set on the Hub,
    because a dry run downloads nothing.

    For a model in a local directory, its own template writes the rows; for any other model, ChatML is used instead.
    Raises UserError naming the first bad row.
    """
    data = config.data
    if not isinstance(data, FileDataConfig | HubDataConfig):
        return ""
    if isinstance(data, HubDataConfig) and not os.path.isdir(data.name):
        return f"# The rows of {data.name} are not shown: a dry run downloads nothing.\n"
    lines = list[str]()
    rows = first_rows(data, NUM_ROWS, lines.append)
    is_own = kind_of(config.model.name) is ModelKind.DIRECTORY
    chat = load_chat(config.model) if is_own else stand_in_chat()
    writer = f"the template of {config.model.name}" if is_own else f"ChatML, in place of that of {config.model.name}"
    lines.append(f"the first rows as written by {writer}; what is learnt stands between {BEGIN} and {END}:")
    for row in rows:
        try:
            lines += ["", f"{row.where}: {_mark_trained(*encode_row(row, chat), chat)}"]
        except UserError as error:
            if is_own:
                raise
            lines += ["", f"{error}"]
    return "".join(f"# {line}".rstrip() + "\n" for text in lines for line in text.split("\n"))


def _mark_trained(token_ids: list[int], mask: list[bool], chat: ChatFormat) -> str:
    text = ""
    for trained, places in groupby(range(len(mask)), mask.__getitem__):
        part = chat.full_text([token_ids[place] for place in places])
        text += f"{BEGIN}{part}{END}" if trained else part
    return f"{len(mask)} tokens, {sum(mask)} of them are learnt\n{visible(text, MAX_CHARACTERS)}"
