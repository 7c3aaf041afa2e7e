"""Runs the tests in forks of the process that collected them: one import and one collection for all workers. conftest.py takes its hook from here.

Takes over `-n N` of xdist, except with `--cov`, `--pdb` and on other systems than Linux. Workers ask for tests when they need some, so a long file at the
end delays only its own worker. A worker that dies fails the test that it ran, and a new one takes its place.
"""

from __future__ import annotations

import gc
import os
import pickle
import selectors
import signal
import socket
import struct
import sys
import warnings
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

BATCH = 20
"""Tests of one file that a worker takes at once, at most: fixtures of the file are made once for each batch."""


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Take the number of workers from xdist, if forks can do its work."""
    asked = getattr(config.option, "numprocesses", None)
    measured = getattr(config.option, "cov_source", None)
    if not asked or measured or config.option.usepdb or config.option.collectonly or sys.platform != "linux":
        return
    workers = config.hook.pytest_xdist_auto_num_workers(config=config) if isinstance(asked, str) else asked
    config.option.numprocesses, config.option.dist, config.option.tx = 0, "no", []
    config.pluginmanager.register(Pool(workers), "everstep-pool")


def batches(items: list[pytest.Item]) -> deque[list[int]]:
    """Numbers of tests in their order, those of one file together."""
    found: deque[list[int]] = deque()
    last = None
    for number, item in enumerate(items):
        if item.path != last or len(found[-1]) >= BATCH:
            found.append([])
        found[-1].append(number)
        last = item.path
    return found


@dataclass
class Worker:
    """A fork, and the tests that it has been given and not reported yet."""

    pid: int
    channel: socket.socket
    given: deque[int] = field(default_factory=deque)


class Pool:
    """The plugin of the first process: hands out tests, and tells pytest what the workers report."""

    def __init__(self, workers: int):
        self._workers = workers
        self._started = 0

    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        if len(session.items) < 2 or self._workers < 1 or session.testsfailed:
            return None
        self._session, self._left = session, batches(session.items)
        session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined] # workers make folders of their own in it
        reporter: Any = session.config.pluginmanager.getplugin("terminalreporter")
        reporter.showfspath = False
        gc.collect()
        gc.freeze()  # else each worker walks through all collected tests again and again
        self._selector = selectors.DefaultSelector()
        try:
            for _ in range(min(self._workers, len(self._left))):
                self._start()
            while self._selector.get_map():
                for key, _ in self._selector.select():
                    self._hear(key.data)
        finally:
            for key in list(self._selector.get_map().values()):
                self._end(key.data, kill=True)
            self._selector.close()
        self._stop_if_asked()
        return True

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        number, self._started = self._started, self._started + 1
        sys.stdout.flush()
        sys.stderr.flush()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # threads of libraries, which know about forks
            pid = os.fork()
        if pid == 0:
            code = 1
            try:
                ours.close()
                for key in self._selector.get_map().values():
                    key.data.channel.close()
                Fork(self._session, theirs, number).run()
                code = 0
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        theirs.close()
        self._selector.register(ours, selectors.EVENT_READ, Worker(pid, ours))

    def _hear(self, worker: Worker) -> None:
        message = receive(worker.channel)
        if message is None:
            self._ended(worker)
        elif message[0] == "want":
            stop = self._session.shouldfail or self._session.shouldstop
            batch = [] if stop or not self._left else self._left.popleft()
            worker.given += batch
            with suppress(OSError):  # it died in between: the next message says so
                send(worker.channel, batch)
        elif message[0] == "warning":
            self._warned(*message[1:])
        else:
            worker.given.popleft()
            self._report(*message[1:])

    def _report(self, number: int, reports: list[Any]) -> None:
        item, hook = self._session.items[number], self._session.config.hook
        hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for report in reports:
            made = hook.pytest_report_from_serializable(config=self._session.config, data=report) if isinstance(report, dict) else report
            hook.pytest_runtest_logreport(report=made)
        hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)

    def _warned(self, text: str, kind: type[Warning], file: str, line: int, when: str, nodeid: str, location: Any) -> None:
        warning = warnings.WarningMessage(kind(text), kind, file, line)
        hook = self._session.config.hook
        hook.pytest_warning_recorded.call_historic(
            kwargs={"warning_message": warning, "when": when, "nodeid": nodeid, "location": location}
        )

    def _ended(self, worker: Worker) -> None:
        """A worker has closed its channel: well, or in the middle of a test."""
        code = self._end(worker)
        if not worker.given and code == 0:
            return
        if worker.given:
            number = worker.given.popleft()
            item = self._session.items[number]
            how = f"the process of this test ended: {signal.Signals(-code).name if code < 0 else f'exit code {code}'}"
            self._report(number, [pytest.TestReport(item.nodeid, item.location, {}, "failed", how, "call")])
        if worker.given:
            self._left.appendleft(list(worker.given))
        if self._left and not (self._session.shouldfail or self._session.shouldstop):
            self._start()

    def _end(self, worker: Worker, kill: bool = False) -> int:
        if kill:
            with suppress(ProcessLookupError):
                os.kill(worker.pid, signal.SIGKILL)
        self._selector.unregister(worker.channel)
        worker.channel.close()
        return os.waitstatus_to_exitcode(os.waitpid(worker.pid, 0)[1])

    def _stop_if_asked(self) -> None:
        if self._session.shouldfail:
            raise self._session.Failed(self._session.shouldfail)
        if self._session.shouldstop:
            raise self._session.Interrupted(self._session.shouldstop)


class Fork:
    """The plugin of a worker: runs the tests that it is given, and sends their reports."""

    def __init__(self, session: pytest.Session, channel: socket.socket, number: int):
        self._session, self._channel, self._config = session, channel, session.config
        factory: Any = session.config._tmp_path_factory  # type: ignore[attr-defined]
        factory._basetemp = factory.getbasetemp() / f"w{number}"
        factory._basetemp.mkdir(mode=0o700)
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell lets programs in the background ignore it, and so their children
        capture: Any = session.config.pluginmanager.getplugin("capturemanager")
        capture.stop_global_capturing()  # its files are those of the first process
        capture.start_global_capturing()
        self._number: int | None = None
        session.config.pluginmanager.register(self, "everstep-fork")

    def run(self) -> None:
        given = self._asked()
        while given:
            number = given.popleft()
            given = given or self._asked()
            item = self._session.items[number]
            self._number = number
            self._config.hook.pytest_runtest_protocol(item=item, nextitem=self._session.items[given[0]] if given else None)

    def _asked(self) -> deque[int]:
        send(self._channel, ("want",))
        return deque(receive(self._channel) or ())

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool:
        hook = self._config.hook
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
        send(
            self._channel,
            ("ran", self._number, [hook.pytest_report_to_serializable(config=self._config, report=report) for report in reports]),
        )
        return True

    def pytest_warning_recorded(self, warning_message: Any, when: str, nodeid: str, location: Any) -> None:
        if self._number is None:  # pytest repeats earlier ones for a new plugin
            return
        kind = warning_message.category
        known = kind if kind.__module__ == "builtins" else UserWarning
        text = str(warning_message.message) if known is kind else f"{kind.__name__}: {warning_message.message}"
        send(self._channel, ("warning", text, known, warning_message.filename, warning_message.lineno, when, nodeid, location))


def send(channel: socket.socket, message: Any) -> None:
    data = pickle.dumps(message)
    channel.sendall(struct.pack("!I", len(data)) + data)


def receive(channel: socket.socket) -> Any:
    """The next message; None if the other side has ended."""
    head = _exactly(channel, 4)
    data = head and _exactly(channel, *struct.unpack("!I", head))
    return pickle.loads(data) if data else None


def _exactly(channel: socket.socket, size: int) -> bytes | None:
    found = b""
    while len(found) < size:
        try:
            more = channel.recv(size - len(found))
        except ConnectionResetError:
            return None
        if not more:
            return None
        found += more
    return found
