"""Whether tensors that share a storage share numbers, too."""

from torch import Tensor

from hardstep._torch import unseen


def are_apart(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors share no number though they share a storage, as parts of an axis do."""
    with unseen():
        if one.stride() != other.stride() or one.dtype != other.dtype:
            return False
        boxes = [_find_box(tensor) for tensor in (one, other)]
    if None in boxes:
        return False
    ranges = zip(*(box or [] for box in boxes), strict=True)
    return any(a.stop <= b.start or b.stop <= a.start for a, b in ranges)


def _find_box(tensor: Tensor) -> list[range] | None:
    """The places of a tensor along every stride of its storage, or nothing if these overlap."""
    box, rest = [], int(tensor.storage_offset())
    sizes = sorted(zip(tensor.stride(), tensor.shape, strict=True), reverse=True)
    if any(stride == 0 for stride, _ in sizes):
        return None
    for stride, size in sizes:
        place, rest = divmod(rest, stride)
        box.append(range(place, place + size))
    reach = rest  # of the smaller strides
    for (stride, _), places in zip(reversed(sizes), reversed(box), strict=True):
        if reach >= stride:
            return None
        reach += (places.stop - 1) * stride
    return box
