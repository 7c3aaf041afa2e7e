"""Configuration: keys, files, presets, the resulting settings, and reloading. Imported only when used."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from everstep.config.settings import faults as faults
    from everstep.config.settings import load as load


def __getattr__(name: str) -> Any:
    """Import `load` and `faults`, which read a configuration, on first use."""
    if name not in ("faults", "load"):
        raise AttributeError(f"module 'everstep.config' has no attribute {name!r}")
    from everstep.config import settings

    return getattr(settings, name)
