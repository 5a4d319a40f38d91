"""Tags: what keeps messages between two ranks apart, in the 31 bits that runtimes allow.

From the top: the slot of the transport, of those open on one group at the same time; a hash of the call; the number of
the message. Messages of different transports are never mixed. Those of different calls, should the ranks disagree on
the plan's call or its size, meet in one case of 511, and the runtime finds that they differ in length.
"""

from __future__ import annotations

import zlib
from typing import Final

_MESSAGE_BITS: Final = 17
_CALLS: Final = 511
_CALL_BITS: Final = 9
SLOTS: Final = 32
"""Transports of one group that can be open at the same time."""
HERE, ANSWER, CUT = ((1 << _MESSAGE_BITS) - i for i in (3, 2, 1))
"""Message numbers that no step has (`latecomer.runtime.adaptive`)."""
NUMBERS: Final = HERE
"""Steps may have message numbers below this."""


def tags_of(slot: int, call: str) -> int:
    """The bits that all tags of `call` have, on the transport of `slot`."""
    return (slot << _CALL_BITS | zlib.crc32(call.encode()) % _CALLS) << _MESSAGE_BITS
