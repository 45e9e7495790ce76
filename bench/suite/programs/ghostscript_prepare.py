"""Makes the input of the workload "ghostscript" in the scratch folder: a PostScript document of text and drawings, PAGES pages."""

import random
from pathlib import Path

PAGES = 150
WORDS = ["slab", "arena", "magazine", "depot", "quantum", "page", "frame", "zone", "the", "of", "and", "is"]


def main() -> None:
    rng = random.Random(19820301)
    lines = ["%!PS-Adobe-3.0"]
    for page in range(PAGES):
        for row in range(50):
            font = rng.choice(("Times-Roman", "Helvetica", "Courier-Bold"))
            text = " ".join(rng.choices(WORDS, k=11))
            lines.append(f"/{font} findfont {rng.randrange(8, 12)} scalefont setfont 60 {760 - 14 * row} moveto ({text}) show")
        for _ in range(25):
            x, y, r = rng.randrange(60, 500), rng.randrange(60, 700), rng.randrange(5, 60)
            lines.append(f"gsave {rng.random():.2f} setgray {x} {y} {r} 0 {rng.randrange(90, 360)} arc closepath {rng.choice(('fill', 'stroke'))} grestore")
        lines.append(f"({page}) 300 30 moveto show showpage")
    Path("input.ps").write_text("\n".join(lines) + "\n", encoding="ascii")


if __name__ == "__main__":
    main()
