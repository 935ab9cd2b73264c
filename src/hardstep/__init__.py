"""Train networks and programs whose loss jumps, with forward passes only.

    opt = hardstep.PolyStep(model, subspace=hardstep.RowWise(rank=4), seed=0)
    for x, y in loader:
        loss = opt.step(x, y, loss_fn)

The names are listed in `__init__.pyi`, once for type checkers and for this module. They are loaded
on first use, so `import hardstep` and `hardstep --help` do not wait for torch.
"""

from hardstep import _signals

with _signals.EndAtOnce(_signals.is_program()):
    import random as _random
    from importlib import import_module as _import_module

    import lazy_loader as _lazy

    _found = _random.getstate()
    _import_module("rich.style")  # draws from this generator, which is the caller's, on import
    _random.setstate(_found)
    __getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)

__version__ = "0.1.0"
