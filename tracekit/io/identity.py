"""Name what is in a file by its content, and keep finished analyses under such names.

Imports neither numpy nor pyarrow: a command whose answer is kept needs only this.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from tracekit.io.sources import Limits, Source

#: the layout of an entry
FORMAT = 1
#: the modules that decide what a table holds; an entry made by other code is not read
_READERS = (
    "boundaries.py", "columns.py", "flight_entry.py", "flight_recorder.py", "jsontext.py",
    "kineto.py", "plain_pickle.py", "registry.py", "repair.py", "table.py",
)  # fmt: skip
#: files up to this size are identified by all their bytes, larger ones by samples and their mtime
HASH_ALL_BYTES = 64 << 20
_SAMPLE_BYTES, _NUM_SAMPLES = 1 << 16, 32
RESULT_SUFFIX = ".tracekit.json"


def folder() -> Path:
    """Where entries are kept: ``TRACEKIT_CACHE``, else the user's cache folder."""
    given = os.environ.get("TRACEKIT_CACHE")
    if given:
        return Path(given)
    import platformdirs

    return Path(platformdirs.user_cache_dir("tracekit"))


@lru_cache(maxsize=1)
def _readers() -> bytes:
    """A digest of the readers' code, so that a changed reader never meets an old entry."""
    digest = hashlib.blake2b(digest_size=16)
    for name in _READERS:
        digest.update(Path(__file__).with_name(name).read_bytes())
    return digest.digest()


def key_of(source: Source, limits: Limits) -> str:
    """Name of a source's entry, from its content and the format version.

    Raises
    ------
    OSError
        When the file cannot be read.
    """
    size = source.path.stat().st_size
    digest = hashlib.blake2b(digest_size=20)
    digest.update(_readers())
    named = f"{FORMAT}\0{source.member}\0{source.name}\0{size}\0"
    digest.update(named.encode("utf-8", "surrogateescape"))
    digest.update(f"{limits.unpacked_bytes}\0{limits.ratio}".encode())
    with open(source.path, "rb") as f:
        if size <= HASH_ALL_BYTES:
            while block := f.read(1 << 20):
                digest.update(block)
        else:
            digest.update(str(source.path.stat().st_mtime_ns).encode())
            for i in range(_NUM_SAMPLES):
                f.seek((size - _SAMPLE_BYTES) * i // (_NUM_SAMPLES - 1))
                digest.update(f.read(_SAMPLE_BYTES))
    return digest.hexdigest()


def private_folder(path: Path) -> None:
    """Make a folder that only its owner can read or write."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)


@lru_cache(maxsize=1)
def _code() -> bytes:
    """A digest of the whole package, so that no answer outlives the code that gave it."""
    home = Path(__file__).resolve().parents[1]
    digest = hashlib.blake2b(digest_size=16)
    for file in sorted((*home.rglob("*.py"), *home.rglob("*.toml"))):
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.digest()


def result_key(sources: Iterable[Source], limits: Limits, *question: str) -> str | None:
    """Name of the answer to a question about some files; None when a file cannot be read.

    Parameters
    ----------
    sources : iterable of Source
    limits : Limits
    question : str
        Everything else the answer depends on.
    """
    digest = hashlib.blake2b(digest_size=20)
    digest.update(_code())
    try:
        for source in sources:
            digest.update(source.label.encode("utf-8", "surrogateescape") + b"\0")
            digest.update(key_of(source, limits).encode() + b"\0")
    except OSError:
        return None
    for part in question:
        digest.update(part.encode() + b"\0")
    return digest.hexdigest()


def get_result(key: str) -> bytes | None:
    """The kept answer of that name; None when there is none or it is damaged."""
    file = folder() / (key + RESULT_SUFFIX)
    try:
        seal, _, text = file.read_bytes().partition(b"\n")
        if seal != _seal(key, text):
            file.unlink()
            return None
    except OSError:
        return None
    with suppress(OSError):  # the folder may be another's, or mounted read-only
        os.utime(file)
    return text


def _seal(key: str, text: bytes) -> bytes:
    """What an answer's file begins with: a checksum over its name and its text."""
    digest = hashlib.blake2b(key.encode() + b"\0", digest_size=16)
    digest.update(text)
    return digest.hexdigest().encode()


def put_result(key: str, text: bytes) -> None:
    """Keep an answer (JSON text); quietly not, where the folder cannot be written."""
    temporary: str | None = None
    try:
        private_folder(folder())
        handle, temporary = tempfile.mkstemp(suffix=".part", dir=folder())
        with os.fdopen(handle, "wb") as f:
            f.write(_seal(key, text) + b"\n" + text)
        Path(temporary).replace(folder() / (key + RESULT_SUFFIX))
    except OSError:
        if temporary:
            with suppress(OSError):
                Path(temporary).unlink()
