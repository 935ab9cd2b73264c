"""Two hosts, as far as one machine has them: two networks, a delay, and a link that breaks."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from .problems import train_spiking

pytestmark = pytest.mark.ray  # with the tests that start engines
ROOT = Path(__file__).parents[2]
STEPS = 40
PROBLEMS = "tests.distributed.problems"


def ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=20)


@pytest.fixture
def hosts():
    """Two namespaces with a link of 10 ms; skipped where they cannot be made."""
    names = [f"hardstep{os.getpid()}{end}" for end in "ab"]
    links = [f"hs{os.getpid() % 100000}{end}" for end in "ab"]
    try:
        for name in names:
            ip("netns", "add", name)
        ip("link", "add", links[0], "type", "veth", "peer", "name", links[1])
        for number, (name, link) in enumerate(zip(names, links, strict=True)):
            ip("link", "set", link, "netns", name)
            ip("-n", name, "addr", "add", f"10.231.7.{number + 1}/24", "dev", link)
            ip("-n", name, "link", "set", link, "up")
            ip("-n", name, "link", "set", "lo", "up")
    except (OSError, subprocess.SubprocessError) as error:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)
        pytest.skip(f"no network namespaces here: {error}")
    for name, link in zip(names, links, strict=True):  # where the kernel has netem
        delay = ["tc", "-n", name, "qdisc", "add", "dev", link, "root", "netem", "delay", "10ms"]
        subprocess.run(delay, check=False, capture_output=True)
    yield names, links
    for name in names:
        ip("netns", "del", name)


def start(host, link, rank):
    known = {"RANK": str(rank), "LOCAL_RANK": "0", "WORLD_SIZE": "2", "STEPS": str(STEPS)}
    known |= {"MASTER_ADDR": "10.231.7.1", "MASTER_PORT": "29511", "GLOO_SOCKET_IFNAME": link}
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    return subprocess.Popen(
        ["ip", "netns", "exec", host, sys.executable, "-m", PROBLEMS, "spiking"],
        env=os.environ | known | {"OMP_NUM_THREADS": "1", "PYTHONPATH": path},
        cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def test_ranks_on_two_hosts_outlast_five_seconds_without_a_link(hosts):
    names, links = hosts
    ranks = [start(name, link, rank) for rank, (name, link) in enumerate(zip(*hosts, strict=True))]
    try:
        assert ranks[0].stdout.readline() == "met\n", ranks[0].stderr.read()
        time.sleep(0.5)
        ip("-n", names[1], "link", "set", links[1], "down")
        time.sleep(5)
        ip("-n", names[1], "link", "set", links[1], "up")
        said = [rank.communicate(timeout=90) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    found = [json.loads(out.splitlines()[-1])["spiking"] for out, _ in said]
    assert set(found) == {train_spiking(None, steps=STEPS)}
