"""The text of an MSCCL XML file, read the way the runtimes' readers do: tags, comments, and nothing else of
XML.

There are no entities, no declarations, no nesting beyond what the caller allows, and numbers are short, so a
hostile file costs one pass over its text. `line` counts from 1.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from latecomer.schedules.errors import InputError

LARGEST_FILE = 256 * 2**20
"""Bytes; the greatest program within the runtimes' limits is far smaller."""


class Tag(NamedTuple):
    """`<name a="b" …>`: `closing` for `</name>`, `empty` for `<name/>`.

    `faults` are (code, message) of what a runtime's reader would stumble over in this tag.
    """

    name: str
    attributes: dict[str, str]
    line: int
    closing: bool
    empty: bool
    faults: tuple[tuple[str, str], ...]


_COMMENT_END = "-->"
_TAG = re.compile(r"<(/?)([A-Za-z_][\w.-]*)((?:[^<>\"']++|\"[^\"]*\"|'[^']*')*+)>")
_BLANKS = " \t\r\n"
"""What XML has between things; other characters that look empty are text."""
_ATTRIBUTE = re.compile(r"([A-Za-z_][\w.:-]*)([ \t\r\n]*)=([ \t\r\n]*)(\"[^\"]*\"|'[^']*')")


def tags(text: str, source: str) -> Iterator[Tag]:
    """All tags in order. Raises `InputError` with the line for text that is not tags.

    Faults that only some readers mind (tabs, single quotes, a declaration …) are put on the tag they stand
    before or in; the last tag may be an empty one called `` that carries those of the end of the file.
    """
    at, line = 0, 1
    faults: list[tuple[str, str]] = []
    if text.startswith("\ufeff"):
        faults.append(("X02", "the file starts with a byte order mark"))
        at = 1
    while at < len(text):
        start = text.find("<", at)
        between = text[at:] if start < 0 else text[at:start]
        _blanks(between, line, source, faults)
        line += between.count("\n")
        if start < 0:
            break
        if text.startswith("<!--", start):
            end = text.find(_COMMENT_END, start)
            if end < 0:
                raise InputError(f"{source}:{line}: a comment that does not end; is the file cut off?")
            line += text.count("\n", start, end)
            at = end + len(_COMMENT_END)
            continue
        if text.startswith("<?", start):
            end = text.find("?>", start)
            if end < 0:
                raise InputError(f"{source}:{line}: a declaration that does not end; is the file cut off?")
            faults.append(("X02", "an XML declaration (<?…?>), which the runtimes' readers refuse; delete it"))
            line += text.count("\n", start, end)
            at = end + 2
            continue
        if text.startswith("<!", start):
            raise InputError(f"{source}:{line}: document types and entities are not part of MSCCL files; delete them")
        match = _TAG.match(text, start)
        if match is None:
            excerpt = text[start: start + 40].splitlines()[0]
            raise InputError(f"{source}:{line}: {excerpt!r} is not a complete tag; is the file cut off?")
        yield _tag(match, line, source, faults)
        faults = []
        line += match[0].count("\n")
        at = match.end()
    if faults:
        yield Tag("", {}, line, False, True, tuple(faults))


def _blanks(between: str, line: int, source: str, faults: list[tuple[str, str]]) -> None:
    if "\t" in between:
        faults.append(("X01", "a tab between elements, which the runtimes' readers refuse; use spaces"))
    rest = between.strip(_BLANKS)
    if rest:
        line += between[: between.index(rest[0])].count("\n")
        raise InputError(f"{source}:{line}: text {rest[:30]!r} outside of tags; this is not an MSCCL program")


def _tag(match: re.Match[str], line: int, source: str, before: list[tuple[str, str]]) -> Tag:
    closing, name, body = match[1] == "/", match[2], match[3]
    empty = body.rstrip(_BLANKS).endswith("/")
    body = body.rstrip(_BLANKS).removesuffix("/") if empty else body
    faults = list(before)
    attributes: dict[str, str] = {}
    at = 0
    for found in _ATTRIBUTE.finditer(body):
        gap = body[at: found.start()]
        if gap.strip(_BLANKS) or (not gap and at):
            odd = body[at : found.end()].strip(_BLANKS)[:40]
            raise InputError(f"{source}:{line}: <{name}>: {odd!r} is not an attribute")
        if found[1] in attributes:
            faults.append(("X10", f"<{name}> has the attribute {found[1]} twice; the first one counts"))
        else:
            attributes[found[1]] = found[4][1:-1]
        _spacing(found, gap, name, faults)
        at = found.end()
    if body[at:].strip(_BLANKS):
        raise InputError(f"{source}:{line}: <{name}>: {body[at:].strip(_BLANKS)[:40]!r} is not an attribute")
    if "\n" in body or "\r" in body:
        faults.append(("X05", f"<{name}> goes over several lines; the runtimes' readers want a tag on one line"))
    if len(attributes) > 16:
        faults.append(("X07", f"<{name}> has {len(attributes)} attributes; the runtimes drop those after the 16th"))
    return Tag(name, attributes, line, closing, empty, tuple(faults))


def _spacing(found: re.Match[str], gap: str, name: str, faults: list[tuple[str, str]]) -> None:
    key, value = found[1], found[4]
    if found[2] or found[3]:
        faults.append(("X06", f"<{name}>: blanks round the = of {key}; the runtimes' readers refuse them"))
    if value[0] == "'":
        faults.append(("X04", f"<{name}>: {key} is in single quotes, which never end for the runtimes' readers"))
    if "\t" in gap:
        faults.append(("X01", f"<{name}>: a tab before {key}; the runtimes' readers want one space"))
    if len(value) > 256 or len(key) > 255:
        faults.append(("X08", f"<{name}>: {key} has {len(value) - 2} characters; the runtimes' buffers hold 254"))
    if "&" in value:
        faults.append(("X09", f"<{name}>: {key} holds an entity ({value}), which the runtimes do not decode"))
