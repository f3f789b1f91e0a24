"""Network namespaces joined by a bridge, each behind a link with a limit, named after their owner.

What a killed process left can be told by its name and is removed by `reap`.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from runtime.settings import ConfigError

#: where nodes reach each other; it exists inside their namespaces only
SUBNET, INTERFACE = "10.77.0", "eth0"
#: below 64 KiB a link is slower than its rate, above the 250th part of a second's bytes it is
#: faster for small messages
LEAST_BURST_BYTES, BURSTS_PER_S = 64 * 1024, 250
#: what may wait at a link before packets are dropped
QUEUE_MS = 200
#: how long what is killed may take to be gone
GRACE_S, POLL_S = 3.0, 0.02
UNITS = {"kbit": 10**3, "mbit": 10**6, "gbit": 10**9}
NAME = re.compile(r"tracekit-(\d+)-(\d+)-[0-9a-f]+-\w+")


class ClusterError(RuntimeError):
    """The cluster cannot be made, or a rank failed; the message is one line."""


def bits_per_s(rate: str) -> int:
    """The rate of a link in bits a second, from ``400mbit``.

    Raises
    ------
    ConfigError
        When it is no positive number of kbit, mbit or gbit.

    Examples
    --------
    >>> bits_per_s("400mbit")
    400000000
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(kbit|mbit|gbit)", rate.strip().lower())
    bits = round(float(found[1]) * UNITS[found[2]]) if found else 0
    if bits < 8000:
        raise ConfigError(f"link {rate!r}: write a rate such as 100mbit or 1gbit, above 8kbit")
    return bits


def _new_name() -> str:
    process = os.getpid()
    return f"tracekit-{process}-{_start_ticks(process)}-{secrets.token_hex(3)}"


def _start_ticks(process: int) -> int:
    """When a process began, in clock ticks since boot, as its id may come again; -1 if gone."""
    try:
        text = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return -1
    return int(text.rpartition(")")[2].split()[19])


@dataclass
class Network:
    """The nodes' namespaces and the one of the switch between them.

    Attributes
    ----------
    name : str
        What all its namespaces' names begin with: process id, start of the process, chance.
    """

    name: str = field(default_factory=_new_name)

    def build(self, links: list[str | None]) -> None:
        """Make a node for each link; None is a link without a limit.

        Raises
        ------
        ClusterError
            When the kernel refuses.
        """
        switch = self._switch
        _ip("netns", "add", switch)
        _ip("-n", switch, "link", "add", "bridge", "type", "bridge")
        _ip("-n", switch, "link", "set", "bridge", "up")
        for node, rate in enumerate(links):
            self._add(node)
            if rate is not None:
                self.limit(node, rate)

    def _add(self, node: int) -> None:
        space, switch, port = self.space(node), self._switch, f"port{node}"
        inside = ("-n", space, "link", "set")
        _ip("netns", "add", space)
        pair = ("type", "veth", "peer", "name", INTERFACE, "netns", space)
        _ip("-n", switch, "link", "add", port, *pair)
        _ip("-n", switch, "link", "set", port, "master", "bridge", "up")
        # no IPv6 address: gloo would take the first it finds
        _ip(*inside, INTERFACE, "addrgenmode", "none")
        _ip("-n", space, "addr", "add", f"{self.address(node)}/24", "dev", INTERFACE)
        _ip(*inside, INTERFACE, "up")
        _ip(*inside, "lo", "up")

    def limit(self, node: int, rate: str) -> None:
        """Set the rate of a node's link in both directions; it holds at once."""
        bits = bits_per_s(rate)
        burst = max(LEAST_BURST_BYTES, bits // 8 // BURSTS_PER_S)
        bucket = ("rate", f"{bits}bit", "burst", f"{burst}b", "latency", f"{QUEUE_MS}ms")
        for space, device in ((self.space(node), INTERFACE), (self._switch, f"port{node}")):
            _run("tc", "-n", space, "qdisc", "replace", "dev", device, "root", "tbf", *bucket)

    @property
    def _switch(self) -> str:
        return f"{self.name}-switch"

    def space(self, node: int) -> str:
        """Name of a node's namespace."""
        return f"{self.name}-node{node}"

    def address(self, node: int) -> str:
        """Address of a node on the bridge."""
        return f"{SUBNET}.{node + 1}"

    def command(self, node: int) -> list[str]:
        """What to put before a command to run it on a node."""
        return [_tool("ip"), "netns", "exec", self.space(node)]

    def remove(self) -> None:
        """Kill what runs on the nodes and delete them; signals wait until that is done."""
        held = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
        before = signal.pthread_sigmask(signal.SIG_BLOCK, held)
        try:
            for name in _spaces():
                if name.startswith(f"{self.name}-"):
                    _delete(name)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def check() -> None:
    """Refuse where namespaces cannot be made.

    Raises
    ------
    ClusterError
        Names what is missing.
    """
    lacks = []
    if sys.platform != "linux":
        lacks.append("Linux")
    elif os.geteuid() != 0:
        lacks.append("root (try sudo)")
    if missing := [tool for tool in ("ip", "tc") if shutil.which(tool) is None]:
        lacks.append(f"iproute2 ({' and '.join(missing)} not found)")
    if lacks:
        raise ClusterError(f"a virtual cluster needs {' and '.join(lacks)}")


def reap() -> list[str]:
    """Remove what processes that are gone have left; gives the names of the namespaces."""
    stale = []
    for name in _spaces():
        owner = NAME.fullmatch(name)
        if owner and _start_ticks(int(owner[1])) != int(owner[2]):
            _delete(name)
            stale.append(name)
    return stale


def _spaces() -> list[str]:
    """The namespaces of virtual clusters."""
    folder = Path("/run/netns")
    names = sorted(p.name for p in folder.iterdir()) if folder.is_dir() else []
    return [name for name in names if NAME.fullmatch(name)]


def _delete(space: str) -> None:
    """Kill what runs in a namespace and delete it; what is gone already is no fault."""
    deadline = time.monotonic() + GRACE_S
    with contextlib.suppress(ClusterError):
        while (inside := _ip("netns", "pids", space).split()) and time.monotonic() < deadline:
            for process in inside:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(process), signal.SIGKILL)
            time.sleep(POLL_S)
    try:
        _ip("netns", "delete", space)
    except ClusterError:
        if space in _spaces():
            raise


def _ip(*arguments: str) -> str:
    return _run("ip", *arguments)


def _run(tool: str, *arguments: str) -> str:
    done = subprocess.run(  # noqa: S603 - fixed commands
        [_tool(tool), *arguments], check=False, capture_output=True, text=True
    )
    if done.returncode:
        said = " ".join(done.stderr.split()) or f"status {done.returncode}"
        raise ClusterError(f"'{tool} {' '.join(arguments)}' failed: {said}")
    return done.stdout


def _tool(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise ClusterError(f"a virtual cluster needs iproute2 ({name} not found)")
    return path
