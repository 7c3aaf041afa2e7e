"""`python .ci/modules.py COVERAGE.json`: every module of everstep was run, not only imported. Used by .ci/deep."""

import json
import sys
from pathlib import Path


def idle(found: dict[str, dict[str, object]]) -> list[str]:
    """Modules with functions of which none was called."""
    return sorted(name for name, file in found.items() if not called(file))


def called(file: dict[str, object]) -> bool:
    functions = {name: region for name, region in file["functions"].items() if name and region["summary"]["num_statements"]}  # type: ignore[attr-defined]
    return not functions or any(region["executed_lines"] for region in functions.values())


if __name__ == "__main__":
    found = json.loads(Path(sys.argv[1]).read_text())["files"]
    missing = idle(found)
    print(f"{len(found) - len(missing)} of {len(found)} modules were run")
    sys.exit("\n".join(["not run by the quick tests (add a test of each to tests/quick.json):", *missing]) if missing else 0)
