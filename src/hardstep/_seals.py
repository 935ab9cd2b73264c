"""Checksums in the files we read back, so that a damaged one is noticed.

A checksum is the first 16 hexadecimal digits of the SHA-256 of everything before it:

    JSON object   its last member: {"sealed": true, "step": 3, …, "checksum": "90f2c5d1e60a71b8"}
    zip archive   its comment, which torch and unzip skip: hardstep checksum 90f2c5d1e60a71b8

The first member of a JSON object says that there is one, so that it cannot be lost together with
what stands before it. It finds damage, not forgery. Files from before there were checksums can
still be read; an archive is then checked by the CRCs of its parts.
"""

import hashlib
import io
import os
import re
import zipfile
from typing import IO, Any

from hardstep.errors import DataError

NAME = "checksum"
MARK = "sealed"
_DIGITS = 16
_VALUE = re.compile(rf"[0-9a-f]{{{_DIGITS}}}")
_MEMBER = re.compile(rf',\s*"{NAME}": "({_VALUE.pattern})"\s*\}}\s*\Z')
_COMMENT = f"hardstep {NAME} ".encode()
_ZIP_END = b"PK\x05\x06"  # begins the last record of an archive: 22 bytes, then the comment
_ZIP_END_BYTES = 22
_CHUNK_BYTES = 1 << 20


def seal_json(text: str) -> str:
    """The text of a JSON object that is not empty, marked, with its checksum as the last member."""
    indent = text[1 : text.index('"')]
    members = text.rstrip().removesuffix("}").rstrip()[1:].lstrip()
    body = f'{{{indent}"{MARK}": true,{indent or " "}{members}'
    digest = _shorten(hashlib.sha256(body.encode()))
    return f'{body},{indent or " "}"{NAME}": "{digest}"{indent.rstrip(" ")}}}'


def take_checksum(text: str, value: Any) -> str:
    """Remove mark and checksum from what a JSON text says; return why it is wrong, or nothing.

    Without either there is nothing to do. A last member that was a checksum but for a damaged name
    counts.
    """
    if not isinstance(value, dict) or not value:
        return ""
    marked = value.pop(MARK, False) is not False
    name, seen = next(reversed(value.items()), ("", None))
    is_like_one = len(name) == len(NAME) and isinstance(seen, str) and _VALUE.fullmatch(seen)
    if name != NAME and not is_like_one and not marked:
        return ""
    value.pop(name, None)
    found = _MEMBER.search(text)
    if found is not None and name == NAME:
        body = text[: found.start()].encode(errors="surrogatepass")
        if found[1] == _shorten(hashlib.sha256(body)):
            return ""
    return "it is damaged: its checksum does not match"


def seal_archive(stream: IO[bytes]) -> None:
    """Append the checksum of a zip archive, which has no comment yet, as its comment."""
    stream.seek(-2, os.SEEK_END)  # the length of the comment
    stream.write((len(_COMMENT) + _DIGITS).to_bytes(2, "little") + _COMMENT)
    digest = _digest(stream, stream.tell())
    stream.seek(0, os.SEEK_END)
    stream.write(digest)


def is_archive(stream: IO[bytes]) -> bool:
    """Whether a file ends as a zip archive does: with our checksum, or without a comment."""
    if _read_checksum(stream):
        return True
    end = _read_end(stream, _ZIP_END_BYTES)
    return end.startswith(_ZIP_END) and end.endswith(b"\0\0")


def verify_archive(stream: IO[bytes]) -> IO[bytes]:
    """The archive as it was written, from its beginning: the stream itself, or a copy.

    Raises:
        DataError: It is damaged.
    """
    seen = _read_checksum(stream)
    if not seen:
        return _copy_parts(stream)
    size = stream.seek(0, os.SEEK_END)
    if seen != _digest(stream, size - _DIGITS):
        raise DataError("its checksum does not match")
    stream.seek(0)
    return stream


def _copy_parts(stream: IO[bytes]) -> IO[bytes]:
    """An archive with the same parts, whose CRCs match; nothing covers what is around them."""
    copy = io.BytesIO()
    try:
        with zipfile.ZipFile(stream) as archive, zipfile.ZipFile(copy, "w") as clean:
            for part in archive.infolist():
                clean.writestr(part.filename, archive.read(part))
    except Exception as error:  # which of a dozen depends on the byte
        raise DataError(f"its archive cannot be read ({error})") from error
    copy.seek(0)
    return copy


def _read_checksum(stream: IO[bytes]) -> bytes:
    end = _read_end(stream, len(_COMMENT) + _DIGITS)
    return end.removeprefix(_COMMENT) if end.startswith(_COMMENT) else b""


def _read_end(stream: IO[bytes], num: int) -> bytes:
    size = stream.seek(0, os.SEEK_END)
    stream.seek(max(0, size - num))
    return stream.read()


def _digest(stream: IO[bytes], length: int) -> bytes:
    """The checksum of a stream's first bytes, read in pieces."""
    found = hashlib.sha256()
    stream.seek(0)
    while length > 0 and (chunk := stream.read(min(length, _CHUNK_BYTES))):
        found.update(chunk)
        length -= len(chunk)
    return _shorten(found).encode()


def _shorten(found: "hashlib._Hash") -> str:
    return found.hexdigest()[:_DIGITS]
