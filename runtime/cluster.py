"""A virtual cluster on one Linux machine: nodes are network namespaces whose links have a limit.

Nothing is left behind, however it ends: what it made is named after its process, and what a killed
one left is removed at the next start.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, NoReturn

from runtime.flags import say
from runtime.network import INTERFACE, ClusterError, Network, bits_per_s, check, reap
from runtime.settings import ConfigError

PORT, MAX_NODES = 29500, 254
POLL_S = 0.02
#: how long others may end by themselves after the first rank failed, and after SIGTERM
SETTLE_S, GRACE_S = 0.5, 3.0
#: status of a rank whose arguments are wrong, as they then are for all
BAD_USE = 2


class RankFailedError(ClusterError):
    """A rank ended with a status other than 0.

    Attributes
    ----------
    rank, node, status : int
        Of the first that did; a negative status is the number of a signal.
    """

    def __init__(self, rank: int, node: int, status: int, why: str) -> None:
        super().__init__(f"rank {rank} on node {node} failed: {why}; the others were ended")
        self.rank, self.node, self.status = rank, node, status


@dataclass(slots=True)
class _Rank:
    """A running rank; its output goes to an unnamed file, but rank 0's to where ours goes."""

    number: int
    node: int
    process: subprocess.Popen[bytes]
    log: IO[bytes] | None

    def last_words(self) -> str:
        """Why it ended: a signal, its last line, or its status."""
        code = self.process.returncode
        if code < 0:
            return f"killed by {signal.Signals(-code).name}"
        lines: list[str] = []
        if self.log is not None:
            self.log.seek(0)
            lines = self.log.read()[-4096:].decode(errors="replace").strip().splitlines()
        return lines[-1][:500] if lines else f"exit status {code}"


@dataclass
class VirtualCluster:
    """Nodes joined by a bridge, each behind a link of its own; use it in a ``with``.

    A signal that ends this process without an exception leaves the nodes to the next start, but no
    rank; ``tracekit cluster`` itself catches those that can be caught.

    Parameters
    ----------
    nodes, ranks_per_node : int
    link : str, optional
        Rate of each node's link, in each direction, such as ``400mbit``; None for no limit.
    links : mapping of int to str
        Rates of single nodes that differ.

    Raises
    ------
    ConfigError
        For a wrong size or rate.
    ClusterError
        On entering, without root, Linux or iproute2, or when the kernel refuses.

    Examples
    --------
    >>> with VirtualCluster(nodes=2, link="400mbit") as cluster:  # doctest: +SKIP
    ...     cluster.run(["python", "all_reduce.py"])
    """

    nodes: int
    ranks_per_node: int = 1
    link: str | None = None
    links: Mapping[int, str] = field(default_factory=dict)
    _network: Network = field(default_factory=Network)

    def __post_init__(self) -> None:
        if not 1 <= self.nodes <= MAX_NODES:
            raise ConfigError(f"{self.nodes} nodes: choose 1 to {MAX_NODES}")
        if self.ranks_per_node < 1:
            raise ConfigError(f"{self.ranks_per_node} ranks per node: at least 1")
        for rate in filter(None, (self.link, *self.links.values())):
            bits_per_s(rate)
        if bad := [node for node in self.links if not 0 <= node < self.nodes]:
            raise ConfigError(f"link of node {bad[0]}: nodes are 0 to {self.nodes - 1}")

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return self.nodes * self.ranks_per_node

    def __enter__(self) -> VirtualCluster:
        check()
        reap()
        self._network = Network()
        try:
            self._network.build([self.links.get(n, self.link) for n in range(self.nodes)])
        except BaseException:
            self._network.remove()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._network.remove()

    def limit(self, node: int, rate: str) -> None:
        """Set the rate of a node's link in both directions; it holds at once."""
        self._network.limit(node, rate)

    def run(
        self,
        command: Sequence[str],
        environment: Mapping[str, str] | None = None,
        *,
        timeout_s: float | None = None,
    ) -> None:
        """Run a command as every rank, with torchrun's variables, and wait for all to end.

        Rank 0 writes where this process does. All see the same file system.

        Raises
        ------
        RankFailedError
            When a rank fails; the others are ended first.
        ClusterError
            When the time is over.
        """
        ranks: list[_Rank] = []
        try:
            for number in range(self.world_size):
                started = self._start(command, number, environment or {})
                ranks.append(started)  # at once: the next may fail to start
            _wait(ranks, timeout_s)
        finally:
            _end(ranks)
            for rank in ranks:
                if rank.log is not None:
                    rank.log.close()

    def _start(self, command: Sequence[str], number: int, extra: Mapping[str, str]) -> _Rank:
        node, local = divmod(number, self.ranks_per_node)
        log = tempfile.TemporaryFile() if number else None  # noqa: SIM115 - closed by run()
        process = subprocess.Popen(  # noqa: S603 - what the user asked for
            [*self._network.command(node), *command],
            env={**os.environ, **self._variables(number, node, local), **extra},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # Ctrl-C reaches this process alone, which ends the others
            preexec_fn=_die_with_parent,  # noqa: PLW1509 - calls one function of libc
        )
        return _Rank(number, node, process, log)

    def _variables(self, number: int, node: int, local: int) -> dict[str, str]:
        root = str(Path(__file__).parent.parent)
        return {
            "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
            "PYTHONPATH": os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH")))),
            "TORCH_CPP_LOG_LEVEL": os.environ.get("TORCH_CPP_LOG_LEVEL", "ERROR"),
            "GLOO_SOCKET_IFNAME": INTERFACE,
            "NCCL_SOCKET_IFNAME": INTERFACE,
            "RANK": str(number),
            "WORLD_SIZE": str(self.world_size),
            "LOCAL_RANK": str(local),
            "LOCAL_WORLD_SIZE": str(self.ranks_per_node),
            "GROUP_RANK": str(node),
            "GROUP_WORLD_SIZE": str(self.nodes),
            "MASTER_ADDR": self._network.address(0),
            "MASTER_PORT": str(PORT),
        }


def _die_with_parent() -> None:
    """In a fresh child: be killed when the process that started it is gone."""
    set_parent_death_signal = 1
    ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)


def _wait(ranks: Sequence[_Rank], timeout_s: float | None) -> None:
    """Return when all have ended well; else raise, naming the first that did not."""
    deadline = time.monotonic() + timeout_s if timeout_s else float("inf")
    while True:
        codes = [rank.process.poll() for rank in ranks]
        if failed := [rank for rank, code in zip(ranks, codes, strict=True) if code]:
            # signals come from outside; a status may be the consequence of another rank's end
            first = min(failed, key=lambda r: (r.process.returncode > 0, r.number))
            time.sleep(SETTLE_S)
            if first.process.returncode == BAD_USE == ranks[0].process.poll():
                first = ranks[0]  # whose words the user has seen
            raise RankFailedError(
                first.number, first.node, first.process.returncode, first.last_words()
            )
        if all(code == 0 for code in codes):
            return
        if time.monotonic() > deadline:
            late = next(r for r, code in zip(ranks, codes, strict=True) if code is None)
            raise ClusterError(
                f"rank {late.number} on node {late.node} still ran after {timeout_s:g} s"
            )
        time.sleep(POLL_S)


def _end(ranks: Sequence[_Rank]) -> None:
    """End what still runs: ask first, then kill."""
    alive = [rank for rank in ranks if rank.process.poll() is None]
    deadline = time.monotonic() + GRACE_S
    for number in (signal.SIGTERM, signal.SIGKILL):
        for rank in alive:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(rank.process.pid, number)
        for rank in alive:
            with contextlib.suppress(subprocess.TimeoutExpired):
                rank.process.wait(max(POLL_S, deadline - time.monotonic()))


# -- command line -----------------------------------------------------------------------------


def main(argv: list[str] | None = None) -> int:
    """Run a command on a virtual cluster: nodes with limited links on this machine."""
    given, command = _parse(sys.argv[1:] if argv is None else argv)
    try:
        links = dict(_node_link(text) for text in given.node_link)
        cluster = VirtualCluster(given.nodes, given.ranks_per_node, given.link, links)
        with _signals(), cluster:
            cluster.run(command)
    except RankFailedError as e:
        if e.status == BAD_USE and e.rank == 0:  # which has said what is wrong
            return BAD_USE
        say(str(e))
        return 1
    except (ConfigError, ClusterError) as e:
        say(str(e))
        return BAD_USE if isinstance(e, ConfigError) else 1
    except KeyboardInterrupt:
        say("interrupted")
        return 130
    return 0


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        say(f"cluster: {message}; see tracekit cluster --help")
        sys.exit(BAD_USE)


def _parse(argv: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """The flags, and the command as it is run."""
    parser = _Parser(
        "tracekit cluster",
        usage="tracekit cluster [FLAGS] -- train … | COMMAND …",
        description="Run a job on a virtual cluster: nodes are network namespaces of this machine, "
        "joined by a bridge, with a limit on each node's link. Needs root and iproute2.",
        allow_abbrev=False,
    )
    parser.add_argument("--nodes", type=int, default=4, metavar="N", help="nodes (4)")
    parser.add_argument(
        "--ranks-per-node", type=int, default=2, metavar="N", help="ranks of each node (2)"
    )
    parser.add_argument(
        "--link", metavar="RATE", help="limit of each node's link, each way, such as 400mbit (none)"
    )
    parser.add_argument(
        "--node-link",
        action="append",
        default=[],
        metavar="NODE=RATE",
        help="another limit for one node, such as 2=100mbit; may be repeated",
    )
    at = argv.index("--") if "--" in argv else len(argv)
    given = parser.parse_args(argv[:at])
    command = list(argv[at + 1 :])
    if not command:
        parser.error("what to run is missing: end with '-- train …' or '-- COMMAND …'")
    if command[0] == "train":
        command = [sys.executable, "-P", "-m", "runtime.train", *command[1:]]
    return given, command


def _node_link(text: str) -> tuple[int, str]:
    node, _, rate = text.partition("=")
    if not node.isdecimal() or not rate:
        raise ConfigError(f"node link {text!r}: write NODE=RATE, such as 2=100mbit")
    return int(node), rate


@contextmanager
def _signals() -> Iterator[None]:
    """Turn signals that would end this process at once into an exit that cleans up."""

    def stop(number: int, _: object) -> NoReturn:
        sys.exit(128 + number)

    caught = (signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, stop) for number in caught]
    try:
        yield
    finally:
        for number, handler in zip(caught, before, strict=True):
            signal.signal(number, handler)


if __name__ == "__main__":
    sys.exit(main())
