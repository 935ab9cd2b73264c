"""Operations that a layer carries out together, as they stood in the last record.

A network in time has the same layer hundreds of times, and every step of a training records it
again. Where its operations would get the numbers that they had, they are not put into words again.
"""

from collections.abc import Callable, Hashable, Sequence

from torch import Tensor

from hardstep.evaluation.trace.nodes import Passage, Ref
from hardstep.evaluation.trace.record import Recorder

MOST = 4096  # passages that are remembered

_PASSAGES: dict[Hashable, Passage] = {}


def write_layer(
    recorder: Recorder,
    what: Hashable,
    operands: Sequence[Ref],
    made: Sequence[Tensor],
    write: Callable[[], Sequence[Ref]],
) -> None:
    """Write down what a layer has carried out in one go.

    Args:
        recorder: Who writes.
        what: All that `write` depends on, apart from numbers of values.
        operands: What the layer was given.
        made: Those of its results that are there.
        write: Writes the operations down one by one; returns their results.
    """
    first, reached = len(recorder.values), recorder.reached
    key = what, first, tuple([(ref.index, ref.index in reached) for ref in operands])
    known = _PASSAGES.get(key)
    if known is not None and recorder.seen.keys().isdisjoint(known.seen):
        recorder.append(known, made)
        return
    place = len(recorder.nodes)
    results = write()
    if all(ref.index >= first for ref in results):  # so that nothing refers to an older twin
        if len(_PASSAGES) >= MOST:
            _PASSAGES.clear()
        _PASSAGES[key] = recorder.copy_from(place, first, made)
