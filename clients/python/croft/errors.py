"""The errors of this package. Each is a CroftError."""

from __future__ import annotations

from typing import Any, Mapping


class CroftError(Exception):
    """The base of all errors of this package.

    code is the code that croft prints under --json, and facts are its details.
    """

    code = "unknown"

    def __init__(self, message: str, facts: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.facts: dict[str, Any] = dict(facts or {})


class Invalid(CroftError):
    """The input is wrong. Nothing was attempted."""

    code = "invalid"


class Held(CroftError):
    """It is not your turn: another has the key, or its work is done.

    why is "held", "reserved", "hold" or "period". owner has the key, and
    remaining is the number of seconds for which that lasts if nothing else
    happens.
    """

    code = "held"

    @property
    def owner(self) -> str:
        return str(self.facts.get("owner", ""))

    @property
    def why(self) -> str:
        return str(self.facts.get("why", "held"))

    @property
    def remaining(self) -> float:
        return float(self.facts.get("remaining", 0.0))


class LeaseLost(CroftError):
    """The lease has ended: stop its work.

    loss says why. It is one of the losses of croft ("superseded", "expired",
    "taken_over", "released", "unreachable", "stalled", "held_too_long"). It is
    "gone" if the process of croft has ended, and "silent" if that process did
    not answer until the local deadline. owner has the key now, if that is known.
    """

    code = "not_owned"

    def __init__(self, message: str, facts: Mapping[str, Any] | None = None, *, loss: str = "") -> None:
        super().__init__(message, facts)
        self.loss = loss or str(self.facts.get("loss") or self.facts.get("why") or "unknown")
        self.owner = str(self.facts.get("owner") or "")


class Unknown(CroftError):
    """No answer came: it may or may not have happened. It gives no authority."""

    code = "unknown"


class Incompatible(CroftError):
    """The installed croft speaks another protocol. Install one that fits."""

    code = "incompatible"


class Forked(CroftError):
    """A lease or a client is used in a forked child. Acquire in the child."""

    code = "forked"


class Refused(CroftError):
    """A guarded resource refuses the write. Nothing was changed."""

    code = "refused"


class Stale(Refused):
    """The resource has admitted a newer owner: stop this work."""

    code = "stale"


class WrongKey(Refused):
    """The resource belongs to another key."""

    code = "wrong_key"


class Collision(Refused):
    """The resource has seen this token from another grant. Acquire with above."""

    code = "collision"


class Repeated(Refused):
    """A late or repeated numbered write of the same grant."""

    code = "repeated"


_BY_CODE: dict[str, type[CroftError]] = {
    "invalid": Invalid, "held": Held, "not_owned": LeaseLost, "unknown": Unknown,
    "stale": Stale, "wrong_key": WrongKey, "collision": Collision, "repeated": Repeated,
}


def error_of(facts: Mapping[str, Any]) -> CroftError:
    """Makes the exception of an error object, as croft prints it."""
    kind = _BY_CODE.get(str(facts.get("code")), Unknown)
    return kind(str(facts.get("message", "croft gave no reason")), facts)
