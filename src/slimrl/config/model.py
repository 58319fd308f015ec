"""`[model]`: which weights, and how they are held in memory. The same section in every command."""

from typing import Annotated, Literal

from pydantic import Field

from slimrl.config.base import Config


class ModelConfig(Config):
    """The language model that is trained or evaluated."""

    name: str = Field(default="smollm2-135m", min_length=1)
    """Which weights to load: the packaged model `smollm2-135m` (needs no network), a directory in Hugging Face format
    such as `outputs/rl/weights/step_100`, a `.gguf` file, or the id of a model on the Hugging Face Hub."""

    device: str = Field(default="auto", min_length=1)
    """Where the model lives: `cpu`, `cuda`, `cuda:1`; `auto` takes the first GPU, or the CPU without one."""

    dtype: Literal["auto", "bfloat16", "float32"] = "auto"
    """Number format of the forward and backward pass. `auto` times both at start-up and takes bfloat16 where it is
    faster. The optimizer's own copy of the weights is float32 either way."""

    num_threads: Literal["auto"] | Annotated[int, Field(ge=1)] = "auto"
    """CPU threads for matrix products; `auto` means one for each physical core. Bit-for-bit equal runs need an equal
    number of threads."""
