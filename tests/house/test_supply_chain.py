"""What schedscope is built from is pinned, hashed and of known licences; one block is unsafe."""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
LOCKED = {"dev": "packaging/development.txt", "release": "packaging/release.txt"}


def test_the_engine_has_one_unsafe_block() -> None:
    """The compiler forbids the word everywhere else (`unsafe_code` in Cargo.toml)."""
    found = {
        path.relative_to(ROOT).as_posix(): len(re.findall(r"\bunsafe\b", code))
        for path in (ROOT / "native").rglob("*.rs")
        if "target" not in path.relative_to(ROOT).parts
        and re.search(r"\bunsafe\b", code := re.sub(r"//.*|\"[^\"\n]*\"", "", path.read_text()))
    }
    assert found == {"native/python/src/arrow.rs": 1}
    workspace = tomllib.loads((ROOT / "native" / "Cargo.toml").read_text())["workspace"]
    assert workspace["lints"]["rust"]["unsafe_code"] == "forbid"
    for member in workspace["members"]:
        lints = tomllib.loads((ROOT / "native" / member / "Cargo.toml").read_text())["lints"]
        own = {"rust": {"unsafe_code": "deny"}, "clippy": workspace["lints"]["clippy"]}
        assert lints == (own if member == "python" else {"workspace": True}), member
    allowed = re.compile(r"allow\([^)]*unsafe_code")
    assert [
        path.name
        for path in (ROOT / "native").glob("*/src/**/*.rs")
        if allowed.search(path.read_text())
    ] == ["arrow.rs"]


def locked(path: str) -> dict[str, list[str]]:
    """Versions of each package; one may have several, for different Pythons."""
    found: dict[str, list[str]] = {}
    for entry in re.split(r"\n(?=\S)", (ROOT / path).read_text().strip()):
        head, *hashes = entry.split("\\\n")
        assert hashes, f"{head} has no hash"
        assert all(re.fullmatch(r"\s*--hash=sha256:[0-9a-f]{64}\s*", one) for one in hashes), head
        name, _, version = head.partition(";")[0].strip().partition("==")
        assert version, head
        found.setdefault(canonicalize_name(name), []).append(version)
    return found


@pytest.mark.parametrize("group", LOCKED)
def test_every_package_of_a_group_is_pinned_with_its_hashes(group: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = [*project["dependency-groups"][group]]
    wanted += project["project"]["dependencies"] if group == "dev" else []
    versions = locked(LOCKED[group])
    for text in wanted:
        requirement = Requirement(text)
        name = canonicalize_name(requirement.name)
        assert versions.get(name), f"{name}: run `make lock`"
        assert all(requirement.specifier.contains(one) for one in versions[name]), text
    name = {"dev": "LOCKED", "release": "LOCKED_RELEASE"}[group]
    assert f"--require-hashes -r $({name})" in (ROOT / "Makefile").read_text()


def test_every_crate_comes_from_the_registry_with_a_checksum() -> None:
    packages = tomllib.loads((ROOT / "native" / "Cargo.lock").read_text())["package"]
    others = [one for one in packages if not one["name"].startswith("schedscope-")]
    registry = "registry+https://github.com/rust-lang/crates.io-index"
    assert {package["source"] for package in others} == {registry}
    assert all(re.fullmatch(r"[0-9a-f]{64}", package["checksum"]) for package in others)


def accepts(expression: str, allowed: set[str]) -> bool:
    """Whether an SPDX expression can be satisfied; a "/" is an old way to write OR.

    >>> accepts("(MIT OR GPL-3.0) AND Unicode-3.0", {"MIT", "Unicode-3.0"})
    True
    >>> accepts("MIT AND GPL-3.0", {"MIT"})
    False
    """
    names = re.findall(
        r"\(|\)|AND|OR|(?:(?!AND |OR )[\w.+-]+)(?: WITH [\w.-]+)?", expression.replace("/", " OR ")
    )
    words = {"(": "(", ")": ")", "AND": "and", "OR": "or"}
    return bool(eval(" ".join(words.get(name) or str(name in allowed) for name in names)))


@pytest.mark.needs("cargo")
def test_every_crate_has_a_licence_that_we_accept() -> None:
    allowed = set(tomllib.loads((ROOT / "native" / "deny.toml").read_text())["licenses"]["allow"])
    command = ["cargo", "metadata", "--locked", "--offline", "--format-version", "1"]
    done = subprocess.run(command, cwd=ROOT / "native", capture_output=True, text=True, check=True)
    licences = {p["name"]: p["license"] for p in json.loads(done.stdout)["packages"]}
    assert len(licences) > 50
    assert {n: text for n, text in licences.items() if not accepts(text or "", allowed)} == {}
    used = {word for text in licences.values() for word in allowed if word in text}
    assert used == allowed
    assert not accepts("GPL-3.0-only", allowed)
    assert not accepts("MIT AND GPL-3.0-only", allowed)
    assert accepts("GPL-3.0-only OR (MIT AND Zlib)", allowed)
