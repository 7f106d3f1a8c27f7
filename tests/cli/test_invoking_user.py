"""The recorder and the commands find the same invoking user behind root."""

from __future__ import annotations

import os
import pwd
import subprocess
from pathlib import Path

import pytest

from schedscope import collectors
from schedscope.errors import UsageError
from schedscope.invoking_user import FORGOTTEN, invoking_user

NOBODY = pwd.getpwnam("nobody")
DAEMON = pwd.getpwnam("daemon")
SCRIPT = """
die() { echo "unknown"; exit 1; }
. "$1"
find_user
echo "$run_user $run_uid $run_gid"
"""


def by_shell(environment: dict[str, str]) -> str:
    path = Path(collectors.path()).parent / "command.sh"
    found = subprocess.run(
        ["sh", "-uc", SCRIPT, "sh", str(path)],
        env={"PATH": os.environ["PATH"], **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert not found.stderr
    return found.stdout.strip()


def by_python(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> str:
    for name in FORGOTTEN:
        monkeypatch.delenv(name, raising=False)
    for name, text in environment.items():
        monkeypatch.setenv(name, text)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    try:
        user = invoking_user()
    except UsageError:
        return "unknown"
    return "" if user is None else f"{user.pw_name} {user.pw_uid} {user.pw_gid}"


def line(user: pwd.struct_passwd) -> str:
    return f"{user.pw_name} {user.pw_uid} {user.pw_gid}"


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, ""),
        ({"SUDO_USER": "nobody", "SUDO_UID": str(NOBODY.pw_uid), "SUDO_GID": "0"}, line(NOBODY)),
        ({"SUDO_USER": "nobody"}, line(NOBODY)),
        ({"SUDO_UID": str(NOBODY.pw_uid)}, line(NOBODY)),
        ({"DOAS_USER": "daemon"}, line(DAEMON)),
        ({"PKEXEC_UID": str(DAEMON.pw_uid)}, line(DAEMON)),
        ({"SUDO_USER": "root", "SUDO_UID": "0", "SUDO_GID": "0"}, ""),
        ({"PKEXEC_UID": "0"}, ""),
        ({"SUDO_USER": "root", "DOAS_USER": "daemon"}, line(DAEMON)),
        ({"SUDO_USER": "nobody", "DOAS_USER": "daemon"}, line(NOBODY)),
        ({"SUDO_USER": "", "DOAS_USER": "daemon"}, line(DAEMON)),
        ({"DOAS_USER": "no-such-user"}, "unknown"),
        ({"PKEXEC_UID": "4123456789"}, "unknown"),
    ],
)
def test_shell_and_python_find_the_same_invoking_user(
    environment: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert by_shell(environment) == expected
    assert by_python(environment, monkeypatch) == expected


def test_unprivileged_process_has_no_other_invoking_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUDO_USER", "nobody")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert invoking_user() is None
