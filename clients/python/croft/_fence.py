"""The law of writing: the same as in the Go package fence.

A stamp says whose write it is. A mark is the newest stamp that a guarded
resource has admitted. Mark.admit decides.
"""

from __future__ import annotations

import re
import time
import unicodedata
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

from .errors import Collision, Invalid, Repeated, Stale, WrongKey

MAX_TOKEN = 2**53 - 1
MAX_SEQ = 2**64 - 1
MAX_KEY = 512

_GRANT = re.compile(r"[0-9a-f]{32}")
_SIGNATURE = re.compile(r"[0-9a-f]{16}:[A-Za-z0-9_-]{85}[AQgw]")
_NUMBER = re.compile(r"0|[1-9][0-9]{0,19}")
_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~/")

_MAX_AHEAD = 365 * 24 * 3600  # seconds that a token may lie ahead of the clock
_NEWEST = 1_767_225_600  # 2026-01-01: every correct clock has passed it


def check_key(key: str, what: str = "key") -> None:
    """Raises Invalid unless the text can name a lease or a resource."""
    if not key or len(key.encode(errors="surrogatepass")) > MAX_KEY:
        raise Invalid(f"invalid {what} {key[:80]!r}: it has between 1 and {MAX_KEY} bytes")
    if any(unicodedata.category(c) in ("Cc", "Cs") for c in key):
        raise Invalid(f"invalid {what} {key[:80]!r}: it has a control character")
    if any(segment in ("", ".", "..") for segment in key.split("/")):
        raise Invalid(f"invalid {what} {key[:80]!r}: it has an empty segment, or one that is . or ..")


@dataclass(frozen=True)
class Stamp:
    """Travels with a write. It holds no secret. Its signature, if it has one, is
    for guards that ask for it."""

    key: str
    token: int
    grant: str
    seq: int = 0
    signature: str = ""

    @classmethod
    def parse(cls, text: str) -> Stamp:
        """Reads the text form, croft1:token:grant:seq:key, with :id:signature if it
        is signed. It accepts only what croft writes."""
        parts = text.split(":")
        if len(parts) not in (5, 7) or parts[0] != "croft1":
            # The text may be that of a lease, which holds a secret: do not
            # repeat it.
            raise Invalid("invalid stamp: it does not have the form croft1:token:grant:seq:key")
        if not _NUMBER.fullmatch(parts[1]) or not _NUMBER.fullmatch(parts[3]):
            raise Invalid("invalid stamp: its token or its sequence is no number")
        try:
            key = unquote_to_bytes(parts[4]).decode()
        except UnicodeError as e:
            raise Invalid("invalid stamp: its key is not UTF-8") from e
        stamp = cls(key, int(parts[1]), parts[2], int(parts[3]), ":".join(parts[5:]))
        check_key(key)
        if not 1 <= stamp.token <= MAX_TOKEN or not _GRANT.fullmatch(stamp.grant) or stamp.seq > MAX_SEQ:
            raise Invalid("invalid stamp: its token, grant or sequence cannot be")
        if len(parts) == 7 and not _SIGNATURE.fullmatch(stamp.signature):
            raise Invalid("invalid stamp: its signature does not have the right form")
        if str(stamp) != text:
            raise Invalid("invalid stamp: it is not in the one form that is written")
        return stamp

    def __str__(self) -> str:
        key = "".join(chr(c) if c in _PLAIN else f"%{c:02X}" for c in self.key.encode())
        signature = f":{self.signature}" if self.signature else ""
        return f"croft1:{self.token}:{self.grant}:{self.seq}:{key}{signature}"

    def check_now(self) -> None:
        """Refuses a token further ahead than any clock could be: it was made up."""
        if self.token > (max(time.time(), _NEWEST) + _MAX_AHEAD) * 1_000_000:
            raise Invalid(f"invalid token {self.token}: no store can have issued it, if this machine's clock is right")


@dataclass(frozen=True)
class Mark:
    """The newest stamp that a resource has admitted. Mark() has admitted nothing."""

    key: str = ""
    token: int = 0
    grant: str = ""
    seq: int = 0

    def check(self) -> None:
        """Raises Invalid unless a resource can have kept this mark."""
        if self == Mark():
            return
        if not 0 <= self.token <= MAX_TOKEN or not 0 <= self.seq <= MAX_SEQ:
            raise Invalid("its token or sequence cannot be")
        if self.grant and not _GRANT.fullmatch(self.grant):
            raise Invalid("its grant is not 32 hex digits")
        check_key(self.key)

    def admit(self, s: Stamp) -> Mark:
        """Returns the new mark, or raises why the write does not count."""
        new = Mark(s.key, s.token, s.grant, s.seq)
        facts = {"key": s.key, "token": s.token, "newest": self.token}
        if self == Mark():
            return new
        if s.key != self.key:
            raise WrongKey(f"write refused: the resource belongs to {self.key!r}, the write is for {s.key!r}", facts)
        if s.token > self.token:
            return new
        if s.token == self.token and not self.grant:
            raise Stale(
                f"write refused: an operator set the mark of {s.key!r} to token {s.token}; acquire again above it",
                facts)
        if s.token < self.token:
            raise Stale(
                f"write refused: stale token {s.token} for {s.key!r}, newest admitted is {self.token}; "
                f"stop this work, it has a newer owner", facts)
        if s.grant != self.grant:
            raise Collision(
                f"write refused: token {s.token} of {s.key!r} is from two grants; acquire again above it", facts)
        if s.seq == 0:
            return self  # unnumbered: later repeats of numbered writes are still refused
        if s.seq <= self.seq:
            raise Repeated(f"write refused: sequence {s.seq}, newest {self.seq}; it has been overtaken", facts)
        return new
