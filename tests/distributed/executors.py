"""Executors whose workers are objects of this process, so that faults can be staged exactly."""

import pickle
from concurrent.futures import Executor, Future

from hardstep.distributed.worker import Worker


class Staged(Executor):
    """Workers in turn; every message is pickled, as between processes.

    Args:
        num: Of workers.
        fault: Called with the number of the task, the worker's number and its reply; what it
            returns is the answer, what it raises is raised, and None means that none comes.
    """

    def __init__(self, num, fault=None):
        self.workers = [Worker(f"worker {number}") for number in range(num)]
        self.fault = fault or (lambda number, worker, reply: reply)
        self.count = 0
        self.hanging = []

    def submit(self, function, task):
        future, number = Future(), self.count % len(self.workers)
        self.count += 1
        try:
            reply = self.workers[number].evaluate(pickle.loads(pickle.dumps(task)))
            reply = self.fault(self.count, number, pickle.loads(pickle.dumps(reply)))
        except Exception as error:
            future.set_exception(error)
        else:
            self.hanging.append(future) if reply is None else future.set_result(reply)
        return future

    def forget(self, number):
        """A worker is replaced by one that knows nothing."""
        self.workers[number] = Worker(f"worker {number}")
