"""Checks of the built package: `contents DIST`, `borrow VENV`, `installed VENV`. Used by .ci/run."""

import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path


def contents(dist: Path) -> None:
    """The wheel is typed, has its licence and nothing but the package; the sdist has the sources, the tests and the documents."""
    (wheel,), (sdist,) = dist.glob("*.whl"), dist.glob("*.tar.gz")
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.partition("/")[0] for name in names}
    info = next(top for top in tops if top.endswith(".dist-info"))
    need(tops == {"everstep", info}, f"the wheel must hold only everstep and its metadata, got {sorted(tops)}")
    need("everstep/py.typed" in names, "the wheel has no py.typed")
    need(any(name.startswith(f"{info}/licenses/LICENSE") for name in names), "the wheel has no licence")
    sources = {
        path.relative_to("src").as_posix() for path in Path("src/everstep").rglob("*") if path.is_file() and "__pycache__" not in path.parts
    }
    need(sources <= set(names), f"the wheel lacks {sorted(sources - set(names))}")
    need(set(names) - sources <= {name for name in names if name.startswith(info)}, "the wheel has files that src/everstep does not have")
    need(
        not [name for name in names if "test_" in name.rpartition("/")[2] or "harness" in name.split("/")],
        "the wheel has tests or a harness",
    )
    with tarfile.open(sdist) as archive:
        parts = {name.partition("/")[2].partition("/")[0] for name in archive.getnames()}
    need({"src", "tests", "docs", "LICENSE", "README.md", "pyproject.toml"} <= parts, f"the sdist is incomplete: {sorted(parts)}")
    print(f"{wheel.name}: {len(names)} files, {wheel.stat().st_size // 1024} KB; {sdist.name}: {sdist.stat().st_size // 1024} KB")


def borrow(venv: Path) -> None:
    """Let this environment find the test tools of another one, behind its own packages. It must have everstep of its own."""
    (other,) = venv.glob("lib/python*/site-packages")
    Path(sysconfig.get_path("purelib"), "z_test_tools.pth").write_text(f"{other}\n")


def installed(venv: Path) -> None:
    """Everstep comes from this environment, not from a checkout or the environment of the tools."""
    import everstep

    need(Path(everstep.__file__).is_relative_to(venv), f"everstep comes from {everstep.__file__}, not from {venv}")


def need(condition: bool, what: str) -> None:
    if not condition:
        sys.exit(what)


if __name__ == "__main__":
    {"contents": contents, "borrow": borrow, "installed": installed}[sys.argv[1]](Path(sys.argv[2]).resolve())
