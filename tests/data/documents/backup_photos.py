"""Copy new photos from the camera card to the disk in the cupboard, sorted by day.

A file counts as known if its SHA-256 is in the ledger, whatever its name: the camera starts
again at IMG_0001 after 9,999 pictures. Nothing is ever deleted from the card.
"""

import hashlib
import json
import os
import shutil
from datetime import UTC, datetime
from pathlib import Path

CARD = Path("/media/card/DCIM")
TARGET = Path("/mnt/cupboard/photos")
LEDGER = TARGET / "ledger.json"
WANTED = {".jpg", ".nef", ".mov"}
RESERVE = 20 * 2**30  # stop while 20 GiB are free; the disk got very slow when full


def digest(path: Path) -> str:
    """Return the SHA-256 of a file, read in blocks of 4 MiB to spare the small server's RAM."""
    state = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(4 * 2**20):
            state.update(block)
    return state.hexdigest()


def day_folder(path: Path) -> Path:
    """Return the folder of the day on which the file was changed last.

    The EXIF date would be better, but the clock of Wanda's camera stands at 2011 and she
    will not set it.
    """
    when = datetime.fromtimestamp(path.stat().st_mtime, UTC)
    return TARGET / f"{when:%Y}" / f"{when:%Y-%m-%d}"


def save(ledger: dict[str, str]) -> None:
    """Write the ledger beside the old one and swap them, so a power cut loses neither."""
    fresh = LEDGER.with_suffix(".new")
    fresh.write_text(json.dumps(ledger))
    os.replace(fresh, LEDGER)


def main() -> None:
    ledger = json.loads(LEDGER.read_text()) if LEDGER.exists() else {}
    for path in sorted(CARD.rglob("*")):
        if path.suffix.lower() not in WANTED:
            continue
        if shutil.disk_usage(TARGET).free < RESERVE:
            raise SystemExit("The cupboard disk is nearly full. Archive a year, then run this again.")
        key = digest(path)
        if key in ledger:
            continue
        folder = day_folder(path)
        folder.mkdir(parents=True, exist_ok=True)
        goal = folder / f"{key[:8]}_{path.name}"
        shutil.copy2(path, goal)
        if digest(goal) != key:  # happened twice with the blue card reader
            goal.unlink()
            raise SystemExit(f"{path.name} was not copied correctly. Try the other reader.")
        ledger[key] = str(goal)
        save(ledger)


if __name__ == "__main__":
    main()
