"""What the options of ``comminsight bench`` mean: lists of names, and numbers with units."""

from __future__ import annotations

from comminsight.errors import UsageError

UNITS = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30}


def chosen(said: str, option: str, known: tuple[str, ...]) -> tuple[str, ...]:
    """The known names in ``said``, each once and in order; capitals do not matter."""
    names = {name.lower(): name for name in known}
    words = dict.fromkeys(word.strip().lower() for word in said.split(",") if word.strip())
    if unknown := [word for word in words if word not in names]:
        raise UsageError(
            f"{option} {', '.join(unknown)} is not known here",
            next_step=f"take some of {', '.join(known)}",
        )
    return tuple(names[word] for word in words)


def counts(said: str) -> tuple[int, ...]:
    """Numbers of elements, such as ``1000,256Ki,4Mi``."""
    found = tuple(_number(one.strip()) for one in said.split(",") if one.strip())
    if not found or 0 in found:
        raise UsageError(
            f"--elements {said!r} names no number of elements",
            next_step="give numbers such as 1000,256Ki,4Mi",
        )
    return found


def _number(said: str) -> int:
    unit = UNITS.get(said[-2:], 0)
    digits = said[:-2] if unit else said
    return int(digits) * (unit or 1) if digits.isascii() and digits.isdecimal() else 0
