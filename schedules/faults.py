"""What is wrong with a file, in words: one line per fault."""

from __future__ import annotations

import json
from typing import Any, Final

from pydantic import ValidationError

from latecomer.schedules.units import count

_MOST: Final = 10
"""Faults that are listed; a file with more has the wrong shape altogether."""

_KINDS: Final = {
    "int": "a whole number", "float": "a number", "bool": "a truth value", "string": "a text", "list": "a list",
    "tuple": "a list", "dict": "an object", "model": "an object", "finite": "a finite number",
}
_UNION: Final = {"int": "a whole number", "float": "a number", "str": "a text", "bool": "a truth value"}
"""The last part of a place, where a field may be of several kinds, and what it is for."""


def in_words(error: ValidationError, source: str, whole: str) -> str:
    """`source: field: what is wrong`, one line per fault; `whole` is the field where it is the file as such."""
    found: dict[str, list[str]] = {}
    faults = error.errors(include_url=False)
    inner = {fault["loc"][:depth] for fault in faults for depth in range(len(fault["loc"]))}
    for fault in faults:
        if fault["type"] == "too_short" and fault["loc"] in inner:
            continue  # of its entries the bad ones are not counted
        place, words = _place_and_words(dict(fault))
        found.setdefault(f"{source}: {place or whole}: ", []).append(words)
    lines = [place + _joined(words) for place, words in found.items()]
    rest = len(lines) - _MOST
    more = [f"{source}: and {count(rest, 'more fault')}"] if rest > 0 else []
    return "\n".join([*lines[:_MOST], *more])


def _place_and_words(fault: dict[str, Any]) -> tuple[str, str]:
    place, kind = [str(part) for part in fault["loc"]], fault["type"]
    if len(place) > 1 and place[-1] in _UNION and kind.split("_")[0] in ("int", "float", "string", "bool"):
        return ".".join(place[:-1]), f"should be {_UNION[place[-1]]}, not {_shown(fault['input'])}"
    return ".".join(place), _words(kind, fault)


def _joined(words: list[str]) -> str:
    """Of a field that may be of several kinds, and is of none, one sentence."""
    ends = {word.partition(", not ")[2] for word in words}
    if len(words) < 2 or len(ends) > 1 or not all(word.startswith("should be ") for word in words):
        return "; ".join(words)
    kinds = [word.removeprefix("should be ").partition(", not ")[0] for word in words]
    return f"should be {', '.join(kinds[:-1])} or {kinds[-1]}, not {ends.pop()}"


def _words(kind: str, fault: dict[str, Any]) -> str:
    context, shown = fault.get("ctx", {}), _shown(fault["input"])
    if kind == "missing":
        return "is missing"
    if kind == "extra_forbidden":
        return "is not a field of this format"
    if kind == "value_error":
        return str(context["error"])
    if kind == "literal_error":
        return f"should be {context['expected']}, not {shown}"
    if kind == "greater_than_equal":
        return f"should be {context['ge']} or more, not {shown}"
    if kind == "less_than_equal":
        return f"should be at most {context['le']}, not {shown}"
    if kind == "too_short":
        return f"should have at least {context['min_length']}, and has {context['actual_length']}"
    if kind.split("_")[0] in _KINDS:
        return f"should be {_KINDS[kind.split('_')[0]]}, not {shown}"
    return str(fault["msg"])[:1].lower() + str(fault["msg"])[1:]


def _shown(value: Any) -> str:
    """The value as the file has it, shortened."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 40 else f"{text[:37]}..."
