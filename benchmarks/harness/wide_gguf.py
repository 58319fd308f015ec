"""A quantised `.gguf` file written again with its matrices in bfloat16 or float32, for llama.cpp.

The model that slimrl computes with was converted from the same file, in bfloat16; so all sides have the same weights.
Vectors stay float32, as llama.cpp wants them, and everything else in the file is copied.
"""

import sys
from pathlib import Path

from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter, LlamaFileType, quants

from slimrl.models.names import PACKAGED, find_packaged_file

TYPES = {
    "bfloat16": (GGMLQuantizationType.BF16, LlamaFileType.MOSTLY_BF16),
    "float32": (GGMLQuantizationType.F32, LlamaFileType.ALL_F32),
}
WRITTEN_BY_ITSELF = ("GGUF.", "general.architecture", "general.file_type")


def source_gguf(model: str) -> Path:
    """The file that a model was converted from."""
    path = find_packaged_file(model) if model in PACKAGED else Path(model)
    if path.suffix != ".gguf":
        sys.exit(
            f"llama.cpp needs a .gguf file, and the model is {model}. Give a packaged model ({', '.join(PACKAGED)}) or "
            "a .gguf file as --model, or leave out --llama-bin."
        )
    return path


def write_wide(source: Path, target: Path, dtype: str) -> None:
    """Write the file; takes a few seconds."""
    matrix_type, file_type = TYPES[dtype]
    reader = GGUFReader(source)
    writer = GGUFWriter(target, reader.fields["general.architecture"].contents())
    writer.add_file_type(file_type)
    for field in reader.fields.values():
        if not field.name.startswith(WRITTEN_BY_ITSELF):
            inner = field.types[-1] if field.types[0] == GGUFValueType.ARRAY else None
            writer.add_key_value(field.name, field.contents(), field.types[0], inner)
    for tensor in reader.tensors:
        exact = quants.dequantize(tensor.data, tensor.tensor_type)
        if exact.ndim > 1:
            # By way of bfloat16 in either case, which is what the other sides' float32 weights were, too.
            rounded = quants.quantize(exact, GGMLQuantizationType.BF16)
            exact = rounded if dtype == "bfloat16" else quants.dequantize(rounded, GGMLQuantizationType.BF16)
        kind = matrix_type if exact.ndim > 1 else GGMLQuantizationType.F32
        writer.add_tensor(tensor.name, exact, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
