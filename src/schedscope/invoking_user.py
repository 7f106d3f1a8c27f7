"""The user who started this root process: the user behind sudo, doas or pkexec.

`find_user` in collectors/command.sh answers the same question in the same way.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from schedscope.errors import UsageError

_NAMED_BY = ("SUDO_USER", "SUDO_UID", "DOAS_USER", "PKEXEC_UID")
FORGOTTEN = (*_NAMED_BY, "SUDO_GID")
"""What a child's environment must lack, for it to act for root itself."""


def invoking_user() -> pwd.struct_passwd | None:
    """The first user other than root that the environment names; None if this is not root.

    Raises `UsageError` for one who is unknown on this host.
    """
    if os.geteuid() != 0:
        return None
    for name in _NAMED_BY:
        if not (text := os.environ.get(name, "")):
            continue
        try:
            user = _by_number(int(text)) if text.isdecimal() else pwd.getpwnam(text)
        except (KeyError, ValueError) as error:
            raise UsageError(
                f"{name}={text}: the invoking user is unknown on this host",
                hint="run it directly as root",
            ) from error
        if user.pw_uid != 0:
            return user
    return None


def _by_number(uid: int) -> pwd.struct_passwd:
    try:
        return pwd.getpwuid(uid)
    except OverflowError as error:
        raise KeyError(uid) from error


def run_as(user: pwd.struct_passwd) -> dict[str, Any]:
    """Arguments of `subprocess.run` for a child that is this user and nothing else."""
    names = {"HOME": user.pw_dir, "USER": user.pw_name, "LOGNAME": user.pw_name}
    return {
        "user": user.pw_uid,
        "group": user.pw_gid,
        "extra_groups": os.getgrouplist(user.pw_name, user.pw_gid),
        "env": {**os.environ, **names},
    }


@contextmanager
def acting_as(uid: int) -> Iterator[None]:
    """Within it, this process of root has the rights of a user, with that user's groups.

    The kernel lets that user neither signal nor trace it, since it still is root's.
    """
    try:
        user = pwd.getpwuid(uid)
        gid, groups = user.pw_gid, os.getgrouplist(user.pw_name, user.pw_gid)
    except KeyError:  # a container may not know the names of the owners of its files
        gid, groups = uid, []
    before = os.getegid(), os.getgroups()
    os.setgroups(groups)
    try:
        os.setegid(gid)
        os.seteuid(uid)
        try:
            yield
        finally:
            os.seteuid(0)
    finally:
        os.setegid(before[0])
        os.setgroups(before[1])
