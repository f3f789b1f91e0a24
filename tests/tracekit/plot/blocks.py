"""Read blocks as the canvas does, one value at a time."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from typing import Any

SIZES = {"f8": ("<d", 8), "u4": ("<I", 4), "i4": ("<i", 4), "u1": ("<B", 1)}


@dataclass
class Drawn:
    """One event as it is drawn."""

    rank: int
    lane: str
    depth: int
    name: str
    start: float
    dur: float
    role: str
    row: int


@dataclass
class Block:
    """A block: its header and its columns as lists."""

    header: dict[str, Any]
    columns: dict[str, list[float]]
    roles: list[str]

    def events(self, kinds: tuple[str, ...] = ("stream", "thread")) -> list[Drawn]:
        """All events listed on lanes of these kinds."""
        found = []
        for rank in self.header["ranks"]:
            for lane in rank["lanes"]:
                if lane["kind"] not in kinds:
                    continue
                for depth, (first, count, _) in enumerate(lane["rows"]):
                    rows = range(first, first + count)
                    found += [self._event(rank["rank"], lane["title"], depth, i) for i in rows]
        return found

    def _event(self, rank: int, lane: str, depth: int, i: int) -> Drawn:
        c = self.columns
        name, role = self.header["names"][int(c["name"][i])], self.roles[int(c["role"][i])]
        return Drawn(rank, lane, depth, name, c["start"][i], c["dur"][i], role, int(c["row"][i]))

    def bins(self, rank: int, lane: str, depth: int = 0) -> list[tuple[float, str]]:
        """The bins of a row: part busy in 255ths, and with what; empty where all is listed."""
        (told,) = (r for r in self.header["ranks"] if r["rank"] == rank)
        (there,) = (x for x in told["lanes"] if x["title"] == lane)
        at, n = there["rows"][depth][2], self.header["numBins"]
        if at < 0:
            return []
        busy, most = self.columns["busy"][at : at + n], self.columns["most"][at : at + n]
        return [(b, self.roles[int(m)]) for b, m in zip(busy, most, strict=True)]


def read(data: bytes, roles: tuple[str, ...]) -> Block:
    """Take a block apart by the words of its documentation."""
    assert data[:4] == b"TKL1"
    (length,) = struct.unpack_from("<I", data, 4)
    assert (8 + length) % 8 == 0
    header = json.loads(data[8 : 8 + length])
    columns = {}
    for key, (kind, offset, count) in header["columns"].items():
        form, size = SIZES[kind]
        assert offset % 8 == 0
        at = 8 + length + offset
        columns[key] = [struct.unpack_from(form, data, at + i * size)[0] for i in range(count)]
    return Block(header, columns, list(roles))
