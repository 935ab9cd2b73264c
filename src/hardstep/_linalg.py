"""The one matrix factorization that random directions need."""

import torch
from torch import Tensor


def signed_qr(matrices: Tensor) -> Tensor:
    """The Q of a thin QR (…, length, num) whose R has a positive diagonal.

    Only with that sign are the columns Haar for a Gaussian matrix, and the same whichever
    library factorizes it. On one thread, since on several the last bits would be others, and a
    run would depend on the number of cores.
    """
    q: Tensor
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        q, r = torch.linalg.qr(matrices)
    finally:
        torch.set_num_threads(threads)
    signs = torch.where(r.diagonal(dim1=-2, dim2=-1) < 0, -1.0, 1.0).to(q.dtype)
    return q.mul_(signs.unsqueeze(-2))
