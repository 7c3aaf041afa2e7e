"""Imports the modules and files that a person named. The working folder is searched last.

A file of the working folder, such as secrets.py, must never replace a library's module: Everstep itself, or a library, would run it.
So the folder is at the end of sys.path, and a name that both have is refused. PYTHONPATH can override this.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

from everstep.errors import InvalidArgument

_added: list[str] = []  # the folders that we added to sys.path


def look_in(folder: Path) -> None:
    """Add a folder to the end of Python's search path."""
    path = str(folder)
    if path not in sys.path:
        sys.path.append(path)
        _added.append(path)


def look_here() -> None:
    look_in(Path.cwd())


def by_name(name: str) -> ModuleType:
    """Import a module by its name. A name that a library also has is refused: either could be meant."""
    look_here()
    top = name.partition(".")[0]
    library = _library(top)
    here = [path for path in (Path.cwd() / f"{top}.py", Path.cwd() / top / "__init__.py") if path.is_file()]
    if library is not None and here and not any(_is(library, path) for path in here):
        shown = here[0].relative_to(Path.cwd())
        raise InvalidArgument(
            f"two modules have the name {top!r}, {shown} in this folder and a library ({library.origin or 'a namespace'})",
            remedy=f"Give the file name ({top}.py), rename the file, or set PYTHONPATH=. so that this folder comes first.",
        )
    return importlib.import_module(name)


def by_file(path: Path) -> ModuleType:
    """Import a Python file by its path. Its name is that of the file, or NAME_py if a library's module has that name."""
    path = path.absolute()
    library = _library(path.stem)
    name = path.stem if library is None or _is(library, path) else f"{path.stem}_py"
    known = sys.modules.get(name)
    if known is not None and getattr(known, "__file__", None) == str(path):
        return known
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise InvalidArgument(f"file {str(path)!r} does not exist")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    look_in(path.parent)
    look_here()
    try:
        spec.loader.exec_module(module)
    except BaseException:
        _forget(name, known)
        raise
    return module


def _library(top: str) -> ModuleSpec | None:
    """Return what Python would import under a name without the folders that we added."""
    if top in sys.builtin_module_names:
        return ModuleSpec(top, None, origin="built-in")
    try:
        found = PathFinder.find_spec(top, [path for path in sys.path if path not in _added])
    except (ImportError, ValueError, OSError):
        return None
    return found if found is not None and found.origin is not None else None  # a folder without __init__.py is not a module of a library


def _is(spec: ModuleSpec, path: Path) -> bool:
    return spec.origin is not None and Path(spec.origin).absolute() == path


def _forget(name: str, known: ModuleType | None) -> None:
    """Remove a module whose import failed, or the next import would get it. Restore the module that had its name before."""
    sys.modules.pop(name, None)
    if known is not None:
        sys.modules[name] = known
