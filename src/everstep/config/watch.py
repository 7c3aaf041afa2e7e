"""Reloads a configuration while its store is open: when the file has changed, or at SIGHUP.

These settings change in an open store: policy, durability, compression, retention, protect, limits, redaction, hooks. Changes that need a
restart are named in a `UserWarning`, and so is a file that cannot be read: the old values stay, and each change is reported once. Values
given to `everstep.open` are never changed. Watching files takes one daemon thread; watching signals takes a signal handler.
"""

from __future__ import annotations

import signal
import threading
import warnings
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any
from weakref import ref

from everstep.codec.frame import Framer
from everstep.config.apply import add_hooks, hooks_of
from everstep.config.keys import KEYS
from everstep.config.settings import Settings, again
from everstep.errors import InvalidConfig
from everstep.runtime.engine_store import EngineStore, at_close, change_policy
from everstep.runtime.limits.policy import Policy
from everstep.store.store import frame_with, set_redaction

SECONDS = 1.0


class Watch:
    """Keeps one open store in line with its configuration.

    `fixed` names the arguments of `open` that stay as given; `hooks` are those that the settings registered.
    """

    def __init__(self, store: EngineStore, settings: Settings, fixed: Iterable[str] = (), hooks: Iterable[Any] = ()):
        self._store = ref(store)  # weak: a store that is dropped without being closed must not be kept alive by its watch
        self.settings = settings
        self._fixed = frozenset(fixed)
        self._hooks = list(hooks)
        self._seen = self._look()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._before: Any = None
        self._handler: Callable[..., Any] | None = None
        self._lock = threading.RLock()

    def start(self) -> None:
        """Start to watch, as the settings say."""
        store = self._store()
        if store is None:
            return
        if self.settings["reload"] == "file":
            self._thread = threading.Thread(target=self._poll, name="everstep-config", daemon=True)
            self._thread.start()
        elif not self._listen():
            return
        at_close(store, f"watch-{id(self)}", self.stop)

    def _listen(self) -> bool:
        """Handle SIGHUP, and still call the handler that the program has set."""
        if not hasattr(signal, "SIGHUP") or threading.current_thread() is not threading.main_thread():
            _say(self.settings, "reload = 'signal' only works in the main thread of a program: the configuration is not reloaded here")
            return False
        self._handler = self._hangup
        self._before = signal.signal(signal.SIGHUP, self._handler)
        return True

    def _hangup(self, number: int, frame: Any) -> None:
        # The signal may arrive while this thread holds a lock of the store, so another thread reloads.
        threading.Thread(target=self.reload, name="everstep-config", daemon=True).start()
        if callable(self._before):
            self._before(number, frame)

    def stop(self) -> None:
        """Stop watching."""
        self._stop.set()
        if self._handler is not None and threading.current_thread() is threading.main_thread():
            if signal.getsignal(signal.SIGHUP) == self._handler:
                before = _living(self._before)
                signal.signal(signal.SIGHUP, signal.SIG_DFL if before is None else before)
            self._handler = None
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(SECONDS)

    def _poll(self) -> None:
        while not self._stop.wait(SECONDS):
            if self._store() is None:
                return
            now = self._look()
            if now != self._seen:
                self._seen = now
                self.reload()

    def _look(self) -> Any:
        """Return values that change with each version of the file."""
        try:
            info = Path(self.settings.file or "").stat()
        except OSError:
            return None
        return info.st_mtime_ns, info.st_size, info.st_ino

    def reload(self) -> bool:
        """Read the configuration again and apply the changes; returns whether it could be read."""
        with self._lock:
            store = self._store()
            if store is None or self._stop.is_set():
                return False
            try:
                fresh = again(self.settings)
                functions = hooks_of(fresh) if fresh["hooks"] != self.settings["hooks"] else None
            except Exception as error:  # noqa: BLE001 - a module that a hook names may raise anything; the old values stay
                what = error.message if isinstance(error, InvalidConfig) else f"{type(error).__name__}: {error}"
                _say(self.settings, f"the configuration was not reloaded and stays as it was: {what}")
                return False
            self._apply(store, fresh, functions)
            return True

    def _apply(self, store: EngineStore, fresh: Settings, functions: Any) -> None:
        former, self.settings = self.settings, fresh
        changed = {name for name in KEYS if former[name] != fresh[name]}
        waiting = sorted(name for name in changed if not KEYS[name].live)
        if "policy" in changed and "policy" not in self._fixed:
            self._apply_policy(store, fresh, waiting)
        self._apply_values(store, fresh, changed)
        if functions is not None:
            for hook in self._hooks:
                hook.remove()
            self._hooks = add_hooks(store, functions)
        if waiting:
            _say(self.settings, f"{', '.join(waiting)} changed; the change takes effect when the store is opened again")

    def _apply_policy(self, store: EngineStore, fresh: Settings, waiting: list[str]) -> None:
        policy = Policy.parse(fresh["policy"])
        if policy.off:
            waiting.append("policy")  # recording can only be switched off when a store is opened
        else:
            change_policy(store, policy)

    def _apply_values(self, store: EngineStore, fresh: Settings, changed: set[str]) -> None:
        options = fresh.options()
        tables = {name.partition(".")[0] for name in changed}
        for name in ("durability", "budget", "timeout"):
            if name not in self._fixed and ({"limits", "durability"} & tables):
                setattr(store, name, options[name])
        if "compression" in tables and not {"compression", "level", "threshold"} & self._fixed:
            frame_with(store, store.framer.with_inner(Framer(options["compression"], options["level"], options["threshold"])))
        if "retention" in tables and "retention" not in self._fixed:
            store.retention = options["retention"]
        if "protect" in tables and "protect" not in self._fixed:
            store.protect = options["protect"]
        if "redaction" in tables and "redaction" not in self._fixed:
            set_redaction(store, options["redaction"])


def _living(handler: Any) -> Any:
    """Return the previous handler, without those of stores that have been closed since."""
    while isinstance(owner := getattr(handler, "__self__", None), Watch) and owner._stop.is_set():
        handler = owner._before
    return handler


def _say(settings: Settings, text: str) -> None:
    """Warn each time: Python shows the same warning at the same location only once."""
    with suppress(UserWarning):  # if warnings are errors, this one must not end the thread, where no code could catch it
        warnings.warn_explicit(text, UserWarning, str(settings.file), 0, registry={})
