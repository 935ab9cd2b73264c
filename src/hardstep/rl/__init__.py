"""Policies, and environments that play them; the stub beside this file lists what is in it.

The compiled environments need nothing further; gymnasium, MuJoCo and films need the extra `rl`.
Names are imported when they are used: a worker process plays without torch, and starts quickly.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
