"""Print docs/validation.md, or with ``--write`` make it and its picture again."""

import sys

from .page import page
from .picture import draw
from .published import ROOT

DOCS = ROOT / "docs"

if sys.argv[1:] == ["--write"]:
    (DOCS / "validation.md").write_text(page(), encoding="utf-8")
    draw(DOCS / "validation_figure8.png")
elif sys.argv[1:]:
    sys.exit("usage: python -m examples.validation [--write]")
else:
    print(page(), end="")
