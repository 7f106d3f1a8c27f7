"""Write Makefile.crates and distinfo of the port from a source archive.

    python -m build --sdist
    python packaging/freebsd/port.py dist/schedscope-1.0.0.tar.gz PORTDIR

PORTDIR gets a copy of this folder's Makefile and pkg-descr, and the two files that are made.
The checksums of the crates are those of the archive's Cargo.lock. Their sizes are not known
without fetching them: `make makesum` in the port adds those.
"""

from __future__ import annotations

import hashlib
import shutil
import sys
import tarfile
import tomllib
from pathlib import Path

HERE = Path(__file__).parent
CRATE_FOLDER = "rust/crates"


def crates(archive: Path) -> list[tuple[str, str, str]]:
    """Name, version and SHA-256 of each crate that the archive's Cargo.lock names."""
    with tarfile.open(archive) as tar:
        (name,) = [name for name in tar.getnames() if name.endswith("/native/Cargo.lock")]
        member = tar.extractfile(name)
        assert member is not None
        lock = tomllib.load(member)
    packages = lock["package"]
    strange = [one["name"] for one in packages if one.get("source", "registry+")[:9] != "registry+"]
    if strange:
        raise SystemExit(
            f"{archive}: not from a registry: {', '.join(strange)}; see CARGO_GH_CARGOTOML"
        )
    return [(one["name"], one["version"], one["checksum"]) for one in packages if "source" in one]


def main() -> None:
    """Write the port."""
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    archive, port = Path(sys.argv[1]), Path(sys.argv[2])
    found = crates(archive)
    port.mkdir(parents=True, exist_ok=True)
    for file in ("Makefile", "pkg-descr"):
        shutil.copy(HERE / file, port)
    lines = " \\\n\t\t".join(f"{name}-{version}" for name, version, _ in found)
    (port / "Makefile.crates").write_text(f"CARGO_CRATES=\t{lines}\n")
    data = archive.read_bytes()
    sums = [f"TIMESTAMP = {int(archive.stat().st_mtime)}"]
    sums += [f"SHA256 ({archive.name}) = {hashlib.sha256(data).hexdigest()}"]
    sums += [f"SIZE ({archive.name}) = {len(data)}"]
    for name, version, checksum in found:
        sums.append(f"SHA256 ({CRATE_FOLDER}/{name}-{version}.crate) = {checksum}")
    (port / "distinfo").write_text("\n".join(sums) + "\n")


if __name__ == "__main__":
    main()
