"""Things called by name: a name that does not exist is answered with the nearest one that does."""

from collections.abc import Iterable
from difflib import get_close_matches

from hardstep.errors import ConfigError


def check(name: str, known: Iterable[str], what: str) -> None:
    """Refuse a name that does not exist, with the nearest one that does.

    Raises:
        ConfigError: The name is not known; the message lists all names if none is near.
    """
    names = list(known)
    if name in names:
        return
    near = get_close_matches(name, names, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"there is {', '.join(names)}"
    raise ConfigError(f"no {what} is called {name!r}; {hint}")
