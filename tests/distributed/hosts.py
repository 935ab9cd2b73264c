"""Two hosts, as far as one machine has them: network namespaces with a slow link between them.

Each namespace has a network device whose frames this process carries to the other one, after a
delay. So the delay needs nothing of the kernel but devices (`/dev/net/tun`).
"""

import fcntl
import os
import select
import struct
import subprocess
import sys
import threading
import time
from collections import deque
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

ROOT = Path(__file__).parents[2]
SET_DEVICE, ETHERNET_FRAMES = 0x400454CA, 0x0002 | 0x1000  # of linux/if_tun.h
DELAY = 0.01  # seconds, one way
LARGEST = 9000  # bytes of a frame


def ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=20)


class Host:
    """A namespace with one device."""

    def __init__(self, number):
        self.name = f"hardstep{os.getpid()}-{number}"
        self.device = f"hs{os.getpid() % 1000000}-{number}"
        self.address = f"10.231.7.{number}"

    def start(self, *command, **known):
        """A process on this host."""
        path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
        return subprocess.Popen(
            ["ip", "netns", "exec", self.name, *command],
            env=os.environ | known | {"OMP_NUM_THREADS": "1", "PYTHONPATH": path},
            cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def run_python(self, *words, **known):
        return self.start(sys.executable, *words, **known)

    def unplug(self, seconds):
        """Take the link down for a while."""
        ip("-n", self.name, "link", "set", self.device, "down")
        time.sleep(seconds)
        ip("-n", self.name, "link", "set", self.device, "up")


@contextmanager
def open_host(number):
    """A host, and the file through which its frames come and go."""
    host = Host(number)
    ip("netns", "add", host.name)
    try:
        with open("/dev/net/tun", "r+b", buffering=0) as file:
            asked = struct.pack("16sH", host.device.encode(), ETHERNET_FRAMES)
            fcntl.ioctl(file, SET_DEVICE, asked)
            os.set_blocking(file.fileno(), False)
            ip("link", "set", host.device, "netns", host.name, "mtu", str(LARGEST))
            ip("-n", host.name, "addr", "add", f"{host.address}/24", "dev", host.device)
            for device in (host.device, "lo"):
                ip("-n", host.name, "link", "set", device, "up")
            yield host, file.fileno()
    finally:
        ip("netns", "del", host.name)


@contextmanager
def two_hosts():
    """Hosts with a link of 10 ms.

    Raises:
        OSError, subprocess.SubprocessError: They cannot be made here.
    """
    with ExitStack() as stack:
        (first, one), (second, other) = (stack.enter_context(open_host(n)) for n in (1, 2))
        over = threading.Event()
        carry = threading.Thread(target=carry_frames, args=(one, other, over))
        carry.start()
        try:
            yield first, second
        finally:
            over.set()
            carry.join()


def carry_frames(one, other, over):
    """Bring frames from either side to the other, late."""
    away: deque[tuple[float, int, bytes]] = deque()  # when, where to, what
    while not over.is_set():
        wait = max(0.0, away[0][0] - time.monotonic()) if away else 0.1
        ready, _, _ = select.select([one, other], [], [], wait)
        for source in ready:
            with suppress(OSError):  # the device is down
                frame = os.read(source, LARGEST + 100)
                away.append((time.monotonic() + DELAY, other if source == one else one, frame))
        while away and away[0][0] <= time.monotonic():
            _, target, frame = away.popleft()
            with suppress(OSError):
                os.write(target, frame)
