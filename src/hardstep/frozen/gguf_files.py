"""GGUF files: what they say of a model, and its tensors in float32, whatever they are stored in."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hardstep._checks import is_count, is_float, show
from hardstep.errors import ConfigError, DataError


class GgufFile:
    """What a GGUF file holds; `read_gguf` opens one.

    Args:
        path: Where it is.
        reader: gguf's reader of it.

    Attributes:
        path: As given.
        shapes: Of the tensors, by name.
    """

    def __init__(self, path: Path, reader: Any) -> None:
        self.path = path
        self._fields = reader.fields
        self._tensors = {tensor.name: tensor for tensor in reader.tensors}
        # As torch has them: the file lists dimensions backward.
        self.shapes = {t.name: tuple(map(int, t.shape[::-1])) for t in reader.tensors}

    def dequantize(self, name: str) -> Tensor:
        """A tensor in float32.

        Raises:
            DataError: It is stored in a way that gguf cannot undo, or is damaged.
        """
        from gguf import dequantize

        stored = self._tensors[name]
        try:
            with np.errstate(all="ignore"):  # what becomes infinite is refused below
                values = dequantize(stored.data, stored.tensor_type)
        except (NotImplementedError, ValueError) as error:
            raise DataError(f"{self.path}: tensor {name!r} cannot be read: {error}") from error
        # A copy, since numbers that are not quantized are a view of the file.
        tensor = torch.from_numpy(np.array(values, dtype=np.float32)).reshape(self.shapes[name])
        if not bool(tensor.isfinite().all()):
            raise DataError(
                f"{self.path}: tensor {name!r} has numbers that are not finite; is it damaged?"
            )
        return tensor

    def text(self, key: str) -> str:
        """A field that is a word.

        Raises:
            DataError: It is missing or something else, as with the other kinds.
        """
        value = self._find(key)
        if not isinstance(value, str):
            raise self._misfit(key, "text", value)
        return value

    def count(self, key: str) -> int:
        """A field that is a whole number > 0."""
        value = self._find(key)
        if not is_count(value, 1):
            raise self._misfit(key, "a whole number > 0", value)
        return value

    def number(self, key: str) -> float:
        """A field that is a number > 0."""
        value = self._find(key)
        if not is_float(value) or not 0 < value < math.inf:
            raise self._misfit(key, "a number > 0", value)
        return value

    def texts(self, key: str) -> list[str]:
        """A field that is a list of words."""
        value = self._find(key)
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self._misfit(key, "a list of texts", value)
        return value

    def has(self, key: str) -> bool:
        """Whether there is such a field, and it is more than a no."""
        return key in self._fields and self._find(key) is not False

    def _find(self, key: str) -> Any:
        if key not in self._fields:
            raise DataError(f"{self.path} has no field {key!r}; is it a whole language model?")
        try:
            return self._fields[key].contents()
        except (ValueError, IndexError) as error:
            raise DataError(f"{self.path}: field {key!r} cannot be read: {error}") from error

    def _misfit(self, key: str, wanted: str, value: Any) -> DataError:
        return DataError(f"{self.path}: field {key!r} must be {wanted}, got {show(value)}")


def read_gguf(path: Path) -> GgufFile:
    """Open a GGUF file.

    Raises:
        ConfigError: gguf is not installed.
        DataError: There is none, it is cut off, or it is something else.
    """
    try:
        from gguf import GGUFReader
    except ImportError as error:
        raise ConfigError(
            "a language model's file needs gguf: pip install 'hardstep[text]'"
        ) from error
    if not path.is_file():
        raise DataError(f"there is no file {path}; name a GGUF file")
    try:
        return GgufFile(path, GGUFReader(path))
    except Exception as error:  # which of a dozen depends on the byte
        raise DataError(
            f"{path} is no GGUF file, or cut off ({error}); fetch it again, or name another"
        ) from error
