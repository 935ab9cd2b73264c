"""The one matrix factorization that random directions need."""

import torch
from torch import Tensor

from hardstep._threads import one_thread


def signed_qr(matrices: Tensor) -> Tensor:
    """The Q of a thin QR (…, length, num) whose R has a positive diagonal.

    Only with that sign are the columns Haar for a Gaussian matrix, and the same whichever
    library factorizes it. On one thread, since on several the last bits would be others, and a
    run would depend on the number of cores.
    """
    q: Tensor
    with one_thread():
        q, r = torch.linalg.qr(matrices)
    signs = torch.where(r.diagonal(dim1=-2, dim2=-1) < 0, -1.0, 1.0).to(q.dtype)
    return q.mul_(signs.unsqueeze(-2))
