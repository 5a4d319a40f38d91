"""Reading a text file that a user named, with an error that helps when it is not one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import IO, Any

from latecomer.schedules.errors import InputError

_LIMIT_BYTES = 256 * 1024 * 1024
"""Far above every text of a sensible size; keeps a wrong file name from filling the memory."""


def read_text(path: str, *, stdin: IO[Any] | None = None) -> str:
    """The text of the file at `path`, or of `stdin` (the process's own, unless given) where `path` is `-`.

    A byte-order mark is dropped and UTF-16 (what a Windows shell writes) is understood; line ends stay as
    they are. Raises `InputError` for a directory, a file that is missing, unreadable, empty, enormous or not
    text.
    """
    if path == "-":
        if stdin is None and sys.stdin is None:
            raise InputError("standard input is closed; name a file instead of -")
        data = (sys.stdin.buffer if stdin is None else stdin).read()
        data = data if isinstance(data, bytes) else data.encode("utf-8", "surrogateescape")
        return _decode(data, "standard input")
    try:
        if Path(path).is_dir():
            raise InputError(f"{path} is a directory; name a file in it")
        with open(path, "rb") as file:
            return _decode(file.read(_LIMIT_BYTES + 1), path)
    except FileNotFoundError:
        raise InputError(f"no such file: {path}") from None
    except (OSError, ValueError) as error:  # ValueError: a NUL byte in the name
        raise InputError(f"cannot read {path!r}: {getattr(error, 'strerror', None) or error}") from error


def _decode(data: bytes, name: str) -> str:
    if not data.strip():
        raise InputError(f"{name} is empty")
    if len(data) > _LIMIT_BYTES:
        raise InputError(f"{name} has over {_LIMIT_BYTES // 2**20} MiB; that is not a file latecomer reads")
    encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError:
        raise InputError(f"{name} is not a text file") from None
    if "\0" in text:
        raise InputError(f"{name} is not a text file")
    return text
