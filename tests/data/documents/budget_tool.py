"""Sum up the household's bank export by category and warn before the month runs dry.

Reads the CSV that our bank offers under "Download, format 2". Format 1 has no booking text.
Run: python budget_tool.py export.csv --month 2024-03
"""

import argparse
import csv
import sys
from collections import defaultdict
from decimal import Decimal
from pathlib import Path

# The first match wins, so the narrow words stand before the wide ones.
RULES = [
    ("pharmacy", "health"),
    ("molnar", "car"),
    ("orchard", "food"),
    ("market", "food"),
    ("ferrand", "rent"),
    ("transfer own", "ignore"),  # between our two accounts, would count twice
]
LIMITS = {"food": Decimal(520), "leisure": Decimal(180), "clothes": Decimal(90)}


def category(text: str) -> str:
    """Return the category of a booking text, "other" if no rule matches."""
    low = text.casefold()
    for word, name in RULES:
        if word in low:
            return name
    return "other"


def amount(cell: str) -> Decimal:
    """Parse an amount such as "1.234,50-"; the bank puts the minus sign at the end."""
    digits = cell.strip().replace(".", "").replace(",", ".")
    return -Decimal(digits[:-1]) if digits.endswith("-") else Decimal(digits)


def totals(path: Path, month: str) -> dict[str, Decimal]:
    """Return spending per category. Income is left out."""
    sums: dict[str, Decimal] = defaultdict(Decimal)
    # The export is Latin-1 in spite of what the bank's help page says.
    with path.open(encoding="latin-1", newline="") as file:
        for row in csv.DictReader(file, delimiter=";"):
            if row["Date"].startswith(month) and (value := amount(row["Amount"])) < 0:
                sums[category(row["Text"])] -= value
    sums.pop("ignore", None)
    return dict(sums)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("export", type=Path)
    parser.add_argument("--month", required=True)
    args = parser.parse_args()
    over = False
    for name, total in sorted(totals(args.export, args.month).items()):
        limit = LIMITS.get(name)
        mark = " <- over" if limit and total > limit else ""
        over = over or bool(mark)
        print(f"{name:10}{total:>10}{mark}")
    return 3 if over else 0  # cron mails Ilka only for exit status 3


if __name__ == "__main__":
    sys.exit(main())
