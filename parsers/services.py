"""Which service does the path of a control group belong to?

Managers name the groups they make: systemd puts a unit's name last in its part of the path
(systemd.unit(5)), container engines the container's identifier of 64 hexadecimal digits, with
their own name before it. Nothing is asked of the host: what is not in the path is not known.
"""

from __future__ import annotations

import polars as pl

_CONTAINER = r"([^/]+/[0-9a-f]{64}|[^/]*[0-9a-f]{64})(?:\.scope)?(?:/|$)"
"""`docker/ID`, or `docker-ID.scope`."""

_UNIT = r"^.*/([^/]+\.(?:service|scope))(?:/|$)"
"""The innermost unit that has processes of its own; a slice only holds others."""

_REST = r"([0-9a-f]{12})[0-9a-f]{52}"
"""Of an identifier, what its own tools show, and what they leave out."""


def service(cgroup: str = "cgroup") -> pl.Expr:
    r"""The column `service`, from one with the paths of control groups; null where there is none.

    The container, else the unit, else the path itself.

    >>> paths = ["/system.slice/nginx.service", "/system.slice/docker-" + "5e" * 32 + ".scope",
    ...     "/docker/" + "a1" * 32 + "/worker", "/user.slice/user-7.slice/session-3.scope",
    ...     "/kubepods/burstable/pod12/" + "0f" * 32, "/batch/night", "/", None]
    >>> for name in pl.DataFrame({"cgroup": paths}).select(service()).to_series():
    ...     print(name)
    nginx.service
    docker-5e5e5e5e5e5e
    docker/a1a1a1a1a1a1
    session-3.scope
    pod12/0f0f0f0f0f0f
    /batch/night
    /
    None
    """
    path = pl.col(cgroup)
    container = path.str.extract(_CONTAINER).str.replace(_REST, "$1")
    return pl.coalesce(container, path.str.extract(_UNIT), path).alias("service")
