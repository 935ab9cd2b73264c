"""Ranks and Ray on two hosts that are far apart, with a link that breaks for five seconds."""

import json
import secrets
import subprocess
import tempfile
import time
from contextlib import suppress
from importlib.util import find_spec

import pytest

from .hosts import two_hosts
from .problems import train_spiking

pytestmark = pytest.mark.ray  # with the tests that start engines
STEPS = 40
PROBLEMS = "tests.distributed.problems"
SECONDS = 5  # without a link
HEAD = "--head", "--port=6379", "--include-dashboard=false"


@pytest.fixture
def hosts():
    """Two of them; skipped where they cannot be made."""
    made = two_hosts()
    try:
        found = made.__enter__()
    except (OSError, subprocess.SubprocessError) as error:
        pytest.skip(f"no network namespaces here: {error}")
    yield found
    made.__exit__(None, None, None)


def read_result(process):
    out, said = process.communicate(timeout=120)
    assert process.returncode == 0, said
    return next(json.loads(line) for line in out.splitlines() if line.startswith("{"))


def test_ranks_on_two_hosts_outlast_five_seconds_without_a_link(hosts):
    common = {"LOCAL_RANK": "0", "WORLD_SIZE": "2", "STEPS": str(STEPS)}
    common |= {"MASTER_ADDR": hosts[0].address, "MASTER_PORT": "29511"}
    ranks = [
        host.run_python("-m", PROBLEMS, "spiking", RANK=str(rank), GLOO_SOCKET_IFNAME=host.device,
                        **common)
        for rank, host in enumerate(hosts)
    ]  # fmt: skip
    try:
        assert ranks[0].stdout.readline() == "met\n", ranks[0].stderr.read()
        time.sleep(0.5)
        hosts[1].unplug(SECONDS)
        found = {read_result(rank)["spiking"] for rank in ranks}
    finally:
        for rank in ranks:
            rank.kill()
    assert found == {train_spiking(None, steps=STEPS)}


def start_node(host, known, *role):
    """A node of a Ray cluster, up."""
    own = [f"--node-ip-address={host.address}", "--num-cpus=1", "--block"]
    lean = ["--object-store-memory=100000000"]
    node = host.run_python("-m", "ray.scripts.scripts", "start", *role, *own, *lean, **known)
    said = []
    while not said or (said[-1] and "block forever" not in said[-1]):
        said.append(node.stdout.readline())
    assert said[-1], "".join([*said, node.stderr.read()])
    return node


@pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed")
def test_a_cluster_of_two_hosts_outlasts_five_seconds_without_a_link(hosts):
    started, address = [], f"{hosts[0].address}:6379"
    # A token of this cluster's own, or its head would write one into the user's home.
    known = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    with tempfile.TemporaryDirectory(prefix="hs", dir="/tmp") as folder:  # sockets: short names
        try:
            started.append(start_node(hosts[0], known, *HEAD, f"--temp-dir={folder}"))
            started.append(start_node(hosts[1], known, f"--address={address}"))
            known |= {"RAY": address, "STEPS": str(STEPS)}
            started.append(driver := hosts[0].run_python("-m", PROBLEMS, "spiking", **known))
            assert driver.stdout.readline() == "met\n", driver.stderr.read()
            time.sleep(0.5)
            hosts[1].unplug(SECONDS)
            found = read_result(driver)
        finally:
            for process in reversed(started):
                process.terminate()
                with suppress(ValueError):  # read to its end already
                    process.communicate(timeout=60)
    assert found["workers"] == 2
    assert found["spiking"] == train_spiking(None, steps=STEPS)
