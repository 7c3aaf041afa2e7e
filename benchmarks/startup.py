"""`import everstep` and its `open` in a fresh interpreter, over the same interpreter with nothing to do; the two alternate."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.options import Options
from benchmarks.process import wall
from benchmarks.table import Bar, Line
from benchmarks.table import ms as show
from benchmarks.timing import ms

_CODE = "import everstep; everstep.open"  # names are imported when they are used first


def lines(options: Options) -> Iterator[Line]:
    wall(_CODE)  # the first import writes bytecode
    bare, ours = [], []
    for _ in range(options.starts):
        bare.append(wall("pass"))
        ours.append(wall(_CODE))
    over = ms(ours) - ms(bare)
    yield Line(
        "import everstep, over a bare interpreter",
        f"+{show(over)}",
        show(ms(bare)),
        over,
        Bar("<=", 80, "ms"),
        f"median of {options.starts} each",
    )
