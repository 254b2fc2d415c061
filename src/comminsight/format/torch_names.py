"""The names that PyTorch writes for collectives and element types, in profiles of any version."""

from __future__ import annotations

import re

from comminsight.model.ops import DTYPE_SIZE_BYTES, DType, Op

_EXTRA = re.compile(r"^\w+:|_coalesced|_base|_oop|_into_tensor|_tensor|_sparse|_|single$")
_OPS = {op.name.replace("_", "").lower(): op for op in Op if op} | {
    "alltoallv": Op.ALL_TO_ALL, "recvanysource": Op.RECV, "monitoredbarrier": Op.BARRIER,
}  # fmt: skip
_DTYPES = {
    "float": DType.FLOAT32, "double": DType.FLOAT64, "half": DType.FLOAT16,
    "bfloat16": DType.BFLOAT16, "long": DType.INT64, "long int": DType.INT64, "int": DType.INT32,
    "short": DType.INT16, "short int": DType.INT16, "char": DType.INT8,
    "signed char": DType.INT8, "byte": DType.UINT8, "unsigned char": DType.UINT8,
    "bool": DType.BOOL, "float8_e4m3fn": DType.FLOAT8_E4M3, "float8_e5m2": DType.FLOAT8_E5M2,
    "complexfloat": DType.COMPLEX64, "complexdouble": DType.COMPLEX128,
}  # fmt: skip


def op_of_call(name: str) -> Op:
    """The op of a name such as ``_allgather_base``, ``all_to_allv`` or ``nccl:broadcast``; UNKNOWN
    for groups of calls and names of no op."""
    word = name[:64].lower().partition(" ")[0]
    while (shorter := _EXTRA.sub("", word)) != word:
        word = shorter
    return _OPS.get(word, Op.UNKNOWN)


def element_bytes(name: str) -> int:
    """The size of an element of the type that a profile names; 0 unknown."""
    return DTYPE_SIZE_BYTES.get(dtype_of_name(name), 0)


def dtype_of_name(name: str) -> DType:
    """The element type that a profile names."""
    return _DTYPES.get(name.lower().removeprefix("c10::"), DType.UNKNOWN)
