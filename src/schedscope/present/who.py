"""The thread, process or group that a row is about, as one text."""

from __future__ import annotations

from collections.abc import Mapping


def who(row: Mapping[str, object], prefix: str = "") -> str:
    """The thread, name, process, control group or service in a row's columns `prefix`....

    >>> who({"victim_comm": "web", "victim_tid": 7}, "victim_"), who({"service": None})
    ('web 7', '(no service)')
    """
    if f"{prefix}comm" in row:
        names = [row.get(f"{prefix}{key}") for key in ("comm", "tid")]
    elif f"{prefix}pid" in row:
        process = row.get(f"{prefix}process_name") or "process"
        names = [process, row[f"{prefix}pid"] or "unknown"]
    else:
        group = next(name for name in ("service", "cgroup") if f"{prefix}{name}" in row)
        names = [row[f"{prefix}{group}"] or f"(no {group})"]
    return " ".join(str(name) for name in names if name is not None)
