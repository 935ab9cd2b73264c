"""Which tensors are searched, and where they are now: the values in the model are the truth."""

from collections.abc import Mapping

from torch import Tensor, nn

from hardstep.errors import ConfigError
from hardstep.subspaces import Layout, trainable


class Searched:
    """The tensors that are searched, by name."""

    def __init__(self, model: nn.Module | Mapping[str, Tensor]) -> None:
        self.model = model if isinstance(model, nn.Module) else None
        self.tensors = trainable(model)
        self.layout = Layout(self.tensors)

    def refresh(self) -> None:
        """Look the model's parameters up again: the user may have put others in their place."""
        if self.model is None or self._has_same_tensors(self.model):
            return
        self.tensors = trainable(self.model)
        now, known = Layout(self.tensors).specs, self.layout.specs
        if now != known:
            odd = min(n for n in now.keys() | known.keys() if now.get(n) != known.get(n))
            raise ConfigError(
                f"the model's trainable parameters changed since PolyStep was built: {odd!r} was "
                f"{known.get(odd)} and is {now.get(odd)}; build a new optimizer"
            )

    def _has_same_tensors(self, model: nn.Module) -> bool:
        """Whether the model has the objects it had; `model.float()` changes them in place."""
        found = [(n, p) for n, p in model.named_parameters() if p.requires_grad and p.numel()]
        specs = self.layout.specs
        return len(found) == len(specs) and all(
            p is self.tensors.get(n)
            and (p.shape, p.dtype, p.device) == (specs[n].shape, specs[n].dtype, specs[n].device)
            for n, p in found
        )
