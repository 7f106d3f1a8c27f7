"""What is recorded, and which finding it must or must not produce?"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Scene:
    """One load and how it is recorded: the arguments of scene.sh."""

    told: str
    """What it is, in one sentence."""
    loads: str
    before: str = ""
    settle: str = ""
    during: str = ""
    options: str = ""

    def words(self) -> list[str]:
        """What scene.sh gets after the capture program and the folder."""
        return [self.loads, self.before, self.settle, self.during, self.options]


@dataclass(frozen=True)
class Case:
    """One finding: a scene that must produce it, and one that must not."""

    topic: str
    where: str
    fault: Scene
    alike: Scene
    names: str = ""
    """What the finding says of threads of ours; on a machine of its own nobody else is there."""
    number: int = field(default=0)
    """Cases of one topic are counted."""

    @property
    def slug(self) -> str:
        """A name for files."""
        return f"{self.topic.replace(' ', '-')}{self.number or ''}"


def cases() -> list[Case]:
    """All of cases.toml, in its order."""
    found: list[Case] = []
    for row in tomllib.loads((HERE / "cases.toml").read_text())["case"]:

        def scene(prefix: str, row: dict[str, str] = row) -> Scene:
            parts = ("loads", "before", "settle", "during")
            given = {part: row.get(prefix + part, "") for part in parts}
            options = row.get(prefix + "options", row.get("options", ""))
            return Scene(row["alike" if prefix else "fault"], options=options, **given)

        number = sum(case.topic == row["topic"] for case in found)
        found.append(
            Case(
                row["topic"], row["where"], scene(""), scene("alike_"), row.get("names", ""), number
            )
        )
    return found
