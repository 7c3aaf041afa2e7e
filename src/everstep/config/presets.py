"""Sets of values for a kind of use; values that are set explicitly override them. docs/configuration.md shows the same table.

No preset weakens the protection of data: digests are checked with each of them, and only high_throughput lets a save return before it is
durable.
"""

from __future__ import annotations

from typing import Any

PRESETS: dict[str, dict[str, Any]] = {
    "development": {
        "policy": "every step",
        "compression.codec": "none",
        "retention.keep_last": 10,
        "schedule": "daily",
    },
    "production": {
        "durability": "sync",
        "policy": "every 10 steps | every 60 s | on error, gate",
        "compression.codec": "zstd",
        "compression.level": 3,
        "retention.keep_last": 20,
        "retention.keep_within": "30d",
        "retention.keep_tagged": True,
        "schedule": "daily",
    },
    "high_throughput": {
        "durability": "async",
        "policy": "every 50 steps | every 30 s",
        "compression.codec": "zstd",
        "compression.level": -1,
        "compression.threshold": 4096,
        "retention.keep_last": 20,
        "retention.keep_tagged": True,
        "schedule": "daily",
    },
}
