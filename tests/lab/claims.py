"""What both judges of the service story share: the files that it left, and one line per claim, with what was seen."""

import pathlib
import sys

out = pathlib.Path(sys.argv[1])
failed = 0


def text(name):
    try:
        return (out / name).read_text(errors="replace")
    except OSError:
        return ""


def claim(words, holds, seen=""):
    global failed
    failed += not holds
    print(f"{'ok    ' if holds else 'FAILED'} {words}: {seen}")


facts = dict(line.split(",", 1) for line in text("facts.csv").splitlines() if "," in line)
fact = facts.get
