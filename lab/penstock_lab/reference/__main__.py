"""`python -m penstock_lab.reference FOLDER` writes the generated pages there and names those that changed."""

from __future__ import annotations

import sys
from pathlib import Path

from penstock_lab.reference import pages


def main(folder: Path) -> None:
    """Write the pages."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        path = folder / name
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
            sys.stdout.write(f"{path} has changed\n")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/reference"))
