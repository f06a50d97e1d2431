"""Turns a terminal's screen with its escape sequences (stdin) into an SVG of WIDTH x HEIGHT characters (stdout)."""

import re
import sys
from html import escape

WIDTH, HEIGHT = int(sys.argv[1]), int(sys.argv[2])
CELL, LINE = 8.4, 17
# The sixteen colours, as terminals of today show them on a dark ground.
COLOURS = [
    "#1c1f26", "#e5534b", "#57ab5a", "#d8a633", "#539bf5", "#b083f0", "#39c5cf", "#d0d7de",
    "#768390", "#ff6b63", "#6bc46d", "#f2c14e", "#6cb6ff", "#dcbdfb", "#56d4dd", "#ffffff",
]
FRONT, BACK = "#d0d7de", "#1c1f26"
BAR = "#3d444d"  # the header's grey as a ground: darker than as a text


class Look:
    def __init__(self):
        self.front, self.back = FRONT, None
        self.bold = self.dim = self.under = self.turned = False

    def take(self, codes):
        codes = iter(codes)
        for code in codes:
            if code == 0:
                self.__init__()
            elif code == 1:
                self.bold = True
            elif code == 2:
                self.dim = True
            elif code == 4:
                self.under = True
            elif code == 7:
                self.turned = True
            elif code in (22, 24, 27):
                if code == 22:
                    self.bold = self.dim = False
                elif code == 24:
                    self.under = False
                else:
                    self.turned = False
            elif 30 <= code <= 37:
                self.front = COLOURS[code - 30]
            elif 90 <= code <= 97:
                self.front = COLOURS[code - 82]
            elif 40 <= code <= 47:
                self.back = COLOURS[code - 40]
            elif 100 <= code <= 107:
                self.back = COLOURS[code - 92]
            elif code == 39:
                self.front = FRONT
            elif code == 49:
                self.back = None
            elif code in (38, 48):
                kind = next(codes, None)
                if kind == 5:
                    number = next(codes, 0)
                    colour = COLOURS[number] if number < 16 else FRONT
                    if code == 38:
                        self.front = colour
                    else:
                        self.back = colour

    def colours(self):
        front, back = self.front, self.back
        if back == COLOURS[8]:
            back = BAR
        return (back or BACK, front) if self.turned else (front, back)


def runs(line, look):
    for part in re.split(r"(\x1b\[[0-9;]*m)", line):
        if part.startswith("\x1b["):
            look.take(int(code or 0) for code in part[2:-1].split(";"))
        elif part:
            yield part


def main():
    print(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH * CELL + 20:.0f} {HEIGHT * LINE + 20}" '
        f'font-family="ui-monospace,SFMono-Regular,Menlo,Consolas,monospace" font-size="14" xml:space="preserve" style="white-space:pre">'
    )
    print(f'<rect width="100%" height="100%" rx="6" fill="{BACK}"/>')
    look = Look()
    lines = sys.stdin.read().split("\n")[:HEIGHT]
    for row, line in enumerate(lines):
        column, top = 0, 10 + row * LINE
        for text in runs(line, look):
            front, back = look.colours()
            left, width = 10 + column * CELL, len(text) * CELL
            if back:
                print(f'<rect x="{left:.1f}" y="{top}" width="{width:.1f}" height="{LINE}" fill="{back}"/>')
            if text.strip():
                style = ' font-weight="bold"' if look.bold else ""
                style += ' opacity=".6"' if look.dim else ""
                style += ' text-decoration="underline"' if look.under else ""
                print(
                    f'<text x="{left:.1f}" y="{top + 13}" fill="{front}" textLength="{width:.1f}"{style}>'
                    f"{escape(text)}</text>"
                )
            column += len(text)
    print("</svg>")


main()
