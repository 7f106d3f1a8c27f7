r"""Which service does a thread belong to? The path of its control group names it.

Managers name the groups that they make: systemd by the unit (systemd.unit(5)), container engines by
the container's identifier of 64 hexadecimal digits, LXC by the container's name. The host is not
queried: what is not in the path is unknown.
"""

from __future__ import annotations

import re

_UNIT = re.compile(r".+\.(?:service|scope|socket|mount|swap)", re.DOTALL)
"""Units with processes of their own; a slice only holds others."""

_CONTAINER = re.compile(
    r"(?:.*?:)?(?:(?P<engine>[^:]*)[-:])?(?P<id>[0-9a-f]{12})[0-9a-f]{52}(?:\.scope|\.service)?",
    re.DOTALL,
)
"""`docker-ID.scope`, `crio-ID`, `kubepods-burstable-pod7.slice:cri-containerd:ID`, or `ID`."""

_LXC = re.compile(r"lxc\.(?:payload|monitor)\..+", re.DOTALL)


def service_of(path: str) -> str:
    r"""The units and containers that a control group's path names, the outermost first.

    A container is its engine and the first 12 digits of its identifier, whichever way the engine is
    set up to name groups. A program that makes groups within a unit cannot pass itself off as
    another unit: its own comes first. A path that names neither stands for itself.

    >>> one, two = "5e" * 32, "0f" * 32
    >>> for path in ("/system.slice/nginx.service/worker", f"/system.slice/docker-{one}.scope",
    ...     f"/docker/{one}/init", f"/kubepods/burstable/pod12/{two}", "/lxc/web/init.scope",
    ...     "/user.slice/user-7.slice/user@7.service/app.slice/nginx.service", "/batch/night", "/"):
    ...     print(service_of(path))
    nginx.service
    docker-5e5e5e5e5e5e
    docker-5e5e5e5e5e5e
    kubepods-0f0f0f0f0f0f
    lxc-web/init.scope
    user@7.service/nginx.service
    /batch/night
    /
    """
    found = []
    above: list[str] = []  # since the last one that was found
    for part in path.split("/"):
        if container := _CONTAINER.fullmatch(part):
            engine = container["engine"] or next(filter(None, above), "container")
            name = f"{engine}-{container['id']}"
        elif above[-1:] in (["lxc"], ["lxc.payload"]) and part:
            name = f"lxc-{part}"
        elif _UNIT.fullmatch(part) or _LXC.fullmatch(part):
            name = part
        else:
            above.append(part)
            continue
        found.append(name)
        above = []
    return "/".join(found) or path
