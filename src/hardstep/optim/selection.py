"""Which tensors are searched, and where they are now: the values in the model are the truth."""

import warnings
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

from torch import Tensor, nn

from hardstep._checks import suggest
from hardstep.errors import CheckpointError, ConfigError
from hardstep.evaluation.sandbox import claim
from hardstep.subspaces import Layout, trainable

Only = str | Tensor | Iterable[str | Tensor]
SHOWN = 8  # names that a message lists


class Searched:
    """The tensors that are searched, by name: all that can be, or `only` some of them.

    Names are chosen once. What else the model has may be frozen, replaced or trained meanwhile.
    """

    def __init__(self, model: nn.Module | Mapping[str, Tensor], only: Only | None = None) -> None:
        self.model = model if isinstance(model, nn.Module) else None
        with claim(self.model):
            self.chosen = None if only is None else choose_names(model, only)
            self.tensors = trainable(model if self.chosen is None else _pick(model, self.chosen))
        self.layout = Layout(self.tensors)

    def refresh(self) -> None:
        """Look the model's parameters up again: the user may have put others in their place."""
        if self.model is None:
            return
        with claim(self.model):
            found = _pick(self.model, self.chosen)
        if self._has_same_tensors(found):
            return
        now, known = Layout(found).specs if found else {}, self.layout.specs
        if now != known:
            odd = min(n for n in now.keys() | known.keys() if now.get(n) != known.get(n))
            raise ConfigError(
                f"the model's trainable parameters changed since PolyStep was built: {odd!r} was "
                f"{known.get(odd)} and is {now.get(odd)}; build a new optimizer"
            )
        self.tensors = found

    def _has_same_tensors(self, found: Mapping[str, Tensor]) -> bool:
        """Whether these are the objects of before; `model.float()` changes them in place."""
        specs = self.layout.specs
        return len(found) == len(specs) and all(
            p is self.tensors.get(n)
            and (p.shape, p.dtype, p.device) == (specs[n].shape, specs[n].dtype, specs[n].device)
            for n, p in found.items()
        )

    def state_dict(self) -> dict[str, list[str]]:
        """The names that were chosen, if any were."""
        return {} if self.chosen is None else {"only": list(self.chosen)}

    def check_state(self, saved: Mapping[str, object]) -> None:
        """Refuse the state of an optimizer that searches other tensors.

        Raises:
            CheckpointError: One of the two was given `only`, and the other another one or none.
        """
        before = saved.get("only")
        if before != self.state_dict().get("only"):
            raise CheckpointError(
                f"optimizer state was saved with only={_show_choice(before)}, this one has "
                f"only={_show_choice(self.chosen)}; build it with the saved one"
            )


def _pick(source: nn.Module | Mapping[str, Tensor], names: list[str] | None) -> dict[str, Tensor]:
    """The tensors under these names, as far as they can be trained now; all if there are none."""
    if isinstance(source, nn.Module):
        own = source.named_parameters()
        source = {n: p for n, p in own if p.requires_grad and p.numel()}
    return {n: t for n, t in source.items() if names is None or n in names}


def _show_choice(names: object) -> str:
    """Names as they are written in a call."""
    return f"[{_show_list(map(repr, names))}]" if isinstance(names, list) else repr(names)


def _show_list(texts: Iterable[str]) -> str:
    """The first few of them."""
    every = list(texts)
    return ", ".join(every[:SHOWN] + [f"… ({len(every) - SHOWN} more)"] * (len(every) > SHOWN))


# -- from what the user writes to names -----------------------------------------------------------


def choose_names(source: nn.Module | Mapping[str, Tensor], only: Only) -> list[str]:
    """The names of the tensors that `only` means, each once, in the order of the source.

    Raises:
        ConfigError: Some of it means nothing, or nothing that can be searched.
    """
    if not isinstance(source, nn.Module | Mapping):
        return []  # refused by whoever looks for tensors in it
    single = isinstance(only, str | Tensor) or not isinstance(only, Iterable)
    wanted = [only] if single else list(only)
    if not wanted:
        raise ConfigError("PolyStep: only is empty; leave it out to search everything")
    known = _list_names(source)
    chosen: set[str] = set()
    for item in wanted:
        chosen.update(_find(item, known, type(source).__name__))
    # A tied parameter has several names, and is searched under the first.
    first: dict[int, str] = {}
    for name, tensor in known.items():
        first.setdefault(id(tensor), name)
    return list(dict.fromkeys(first[id(t)] for name, t in known.items() if name in chosen))


def _list_names(source: nn.Module | Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Every name that a tensor has."""
    if isinstance(source, nn.Module):
        return dict(source.named_parameters(remove_duplicate=False))
    return dict(source)


def _find(item: object, known: Mapping[str, Tensor], source: str) -> list[str]:
    """The names that one name, pattern or tensor means, without those that cannot be searched."""
    if isinstance(item, Tensor):
        shown = f"a tensor {tuple(item.shape)}"
        names = [name for name, tensor in known.items() if tensor is item]
        hint = "give its own tensors, not copies, or their names"
    elif isinstance(item, str):
        shown = repr(item)
        names = [item] if item in known else [name for name in known if fnmatchcase(name, item)]
        hint = _suggest_names(item, known)
    else:
        raise ConfigError(
            "PolyStep: only takes names, patterns such as 'router.*', and tensors such as "
            f"model.router.parameters(), got a {type(item).__name__}"
        )
    if not names:
        raise ConfigError(f"PolyStep: only={shown} matches no parameter of {source}; {hint}")
    faults = {name: fault for name in names if (fault := _find_fault(known[name]))}
    told = _show_list(f"{name!r} ({fault})" for name, fault in faults.items())
    if len(faults) == len(names):
        raise ConfigError(f"PolyStep: only={shown} matches nothing that can be searched: {told}")
    if faults:
        warnings.warn(f"PolyStep: only={shown} leaves out {told}", stacklevel=5)
    return [name for name in names if name not in faults]


def _suggest_names(item: str, known: Mapping[str, Tensor]) -> str:
    """The nearest parameter, or the pattern of the nearest module."""
    modules = dict.fromkeys(f"{name.rpartition('.')[0]}.*" for name in known if "." in name)
    return suggest(item, [*known, *modules], otherwise=f"there is {_show_list(known)}")


def _find_fault(tensor: object) -> str:
    """Why a tensor cannot be searched; empty if it can."""
    if not isinstance(tensor, Tensor):
        return f"a {type(tensor).__name__}"
    if not tensor.is_floating_point():
        return str(tensor.dtype).removeprefix("torch.")
    if not tensor.numel():
        return "empty"
    is_frozen = isinstance(tensor, nn.Parameter) and not tensor.requires_grad
    return "requires_grad=False" if is_frozen else ""
