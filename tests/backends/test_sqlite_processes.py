"""A SQLite store among processes that write, die, fork and are killed."""

import os
import shutil
import signal
import subprocess
import time
import warnings
from pathlib import Path

import pytest
from children import Child, finish

import everstep
from everstep.backends.contract.core import Commit, Query
from everstep.backends.sqlite.backend import SqliteBackend
from everstep.backends.sqlite.files.wal import GROW_BYTES
from everstep.errors import LeaseHeld, LostLease, StoreClosed
from everstep.records import ZERO, record_fault, shift
from everstep.testing.rows import new_run, new_worker, next_commit

WRITE = """
backend = open_backend(sys.argv[1])
row = new_run(sys.argv[2]); backend.commit(Commit(row, None))
for i in range(int(sys.argv[3])):
    commit = next_commit(row, os.urandom(1024)); backend.commit(commit); row = commit.run
    say(row.head_seq)
backend.close()
"""


def prove(backend: SqliteBackend, name: str) -> int:
    """The chain of a run holds from its beginning to its head; return how long it is."""
    row = backend.run(name)
    assert row is not None
    assert row.check == row.digest()
    before = ZERO
    for record in backend.records(name, 0, 2**31 - 1):
        assert record_fault(before, record, row.key) is None
        before = record.digest
    assert before == row.head_digest
    return row.head_seq


def test_sixteen_processes_write_sixteen_runs(tmp_path: Path, child: Child) -> None:
    processes = [child(WRITE, tmp_path / "s.db", f"run-{i}", 40) for i in range(16)]
    for process in processes:
        finish(process)
    backend = SqliteBackend(tmp_path / "s.db")
    assert [prove(backend, f"run-{i}") for i in range(16)] == [40] * 16
    rows = [row for _, row in backend.runs(Query())]
    assert backend.manifest().total == shift(ZERO, [], [row.check for row in rows])
    assert backend.check() == []
    backend.close()


def kill_after(process: "subprocess.Popen[str]", lines: int) -> int:
    """Kill -9 after so many saves returned, and say which was the last that did."""
    assert process.stdout is not None
    read = [int(process.stdout.readline()) for _ in range(lines)]
    process.kill()
    rest = process.stdout.read().split("\n")
    process.wait()
    return max([*read, *(int(word) for word in rest[:-1] if word)])


@pytest.mark.parametrize("saves", [1, 5, 9, 12, 30, 400])
def test_what_was_saved_is_there_after_kill_9(tmp_path: Path, child: Child, saves: int) -> None:
    last = kill_after(child(WRITE, tmp_path / "s.db", "r", 100_000), saves)
    backend = SqliteBackend(tmp_path / "s.db")
    length = prove(backend, "r")
    assert length in (last, last + 1)
    assert backend.check() == []
    row = backend.run("r")
    assert row is not None
    backend.commit(next_commit(row))
    assert prove(backend, "r") == length + 1
    backend.close()


HOLD = """
backend = open_backend(sys.argv[1])
row = new_run("r"); backend.commit(Commit(row, None))
row = backend.acquire("r", new_worker(3600, pid=os.getpid()))
say(os.getpid()); sys.stdin.readline()
"""


def test_a_killed_owner_is_known_to_be_dead_at_once(tmp_path: Path, child: Child) -> None:
    owner = child(HOLD, tmp_path / "s.db")
    assert owner.stdout is not None
    pid = int(owner.stdout.readline())
    backend = SqliteBackend(tmp_path / "s.db")
    with pytest.raises(LeaseHeld) as caught:
        backend.acquire("r", new_worker())
    assert caught.value.pid == pid == owner.pid
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    worker = new_worker()
    row = backend.acquire("r", worker)
    assert row.epoch == 2
    assert [path.name for path in (tmp_path / "s.db-locks").iterdir()] == [worker.id]
    backend.close()


def test_a_stopped_owner_is_not_dead_but_loses_its_lease_when_it_ends(tmp_path: Path, child: Child) -> None:
    code = """
backend = open_backend(sys.argv[1])
row = new_run("r"); backend.commit(Commit(row, None))
row = backend.acquire("r", new_worker(1.0))
say("held"); sys.stdin.readline()
try: backend.commit(next_commit(row)); say("written")
except Exception as error: say(type(error).__name__)
"""
    owner = child(code, tmp_path / "s.db")
    assert owner.stdout is not None
    owner.stdout.readline()
    owner.send_signal(signal.SIGSTOP)
    backend = SqliteBackend(tmp_path / "s.db")
    with pytest.raises(LeaseHeld):
        backend.acquire("r", new_worker())
    time.sleep(1.1)
    row = backend.acquire("r", new_worker())
    owner.send_signal(signal.SIGCONT)
    assert owner.communicate("go\n", timeout=30)[0] == "LostLease\n"
    assert backend.run("r") == row
    backend.close()


def test_workers_of_another_boot_are_dead_and_of_another_host_live_until_their_lease_ends(tmp_path: Path) -> None:
    backend = SqliteBackend(tmp_path / "s.db")
    other = SqliteBackend(tmp_path / "s.db")
    for name in ("boot", "host", "late"):
        backend.commit(Commit(new_run(name), None))
    other.acquire("boot", new_worker(boot="another boot"))
    other.acquire("late", new_worker(seconds=-1, host="elsewhere", boot="another boot"))
    other.acquire("host", new_worker(host="elsewhere", boot="another boot"))
    assert backend.acquire("boot", new_worker()).epoch == 2
    assert backend.acquire("late", new_worker()).epoch == 2
    with pytest.raises(LeaseHeld, match="elsewhere"):
        backend.acquire("host", new_worker())
    backend.close()
    other.close()


def test_a_worker_id_out_of_a_store_does_not_lead_out_of_its_folder(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    backend = SqliteBackend(tmp_path / "s.db")
    row = new_run()
    backend.commit(Commit(row, None))
    backend.acquire(row.id, new_worker(seconds=-1, id="../victim"))
    backend.close()
    backend = SqliteBackend(tmp_path / "s.db")
    backend.acquire(row.id, new_worker())
    backend.close()
    assert victim.read_text() == "precious"


def test_a_forked_child_is_refused_and_does_not_harm_its_parent(tmp_path: Path) -> None:
    backend = SqliteBackend(tmp_path / "s.db")
    row = new_run()
    backend.commit(Commit(row, None))
    row = backend.acquire(row.id, new_worker(3600))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # forking with threads around is what is tested
        pid = os.fork()
    if pid == 0:
        code = 1
        try:
            backend.commit(next_commit(row))
        except StoreClosed:
            backend.close()
            second = SqliteBackend(tmp_path / "s.db")
            try:
                second.acquire(row.id, new_worker())
            except LeaseHeld:
                second.close()
                code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    commit = next_commit(row)
    backend.commit(commit)
    other = SqliteBackend(tmp_path / "s.db")
    with pytest.raises(LeaseHeld):
        other.acquire(row.id, new_worker())
    backend.close()
    assert other.run(row.id) == commit.run
    other.close()


def test_a_store_opened_anew_in_a_forked_child_keeps_its_wal_when_the_parent_closes(tmp_path: Path, child: Child) -> None:
    code = """
backend = open_backend(sys.argv[1])
backend.commit(Commit(new_run("parent"), None)); backend.runs(Query())
from_child, to_parent = os.pipe(); from_parent, to_child = os.pipe()
if os.fork() == 0:
    own = open_backend(sys.argv[1])
    row = new_run("child"); own.commit(Commit(row, None))
    os.write(to_parent, b"x"); os.read(from_parent, 1)
    own.commit(next_commit(row))
    os._exit(0)  # as if killed: the WAL must keep it
os.read(from_child, 1)
backend.close()
os.write(to_child, b"x"); os.wait()
"""
    finish(child(code, tmp_path / "s.db"))
    backend = SqliteBackend(tmp_path / "s.db")
    assert prove(backend, "child") == 1
    backend.close()


def test_threads_that_write_while_the_process_forks_go_on(tmp_path: Path, child: Child) -> None:
    code = """
import threading, warnings
warnings.simplefilter("ignore")
backend = open_backend(sys.argv[1])
def drive(name):
    row = new_run(name); backend.commit(Commit(row, None))
    for _ in range(300):
        commit = next_commit(row, bytes(1024)); backend.commit(commit); row = commit.run
threads = [threading.Thread(target=drive, args=(f"t{i}",)) for i in range(4)]
for thread in threads: thread.start()
for i in range(10):
    pid = os.fork()
    if pid == 0:
        own = open_backend(sys.argv[1]); own.commit(Commit(new_run(f"c{i}"), None)); own.close(); os._exit(0)
    say(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
for thread in threads: thread.join()
backend.close()
"""
    assert finish(child(code, tmp_path / "s.db")) == "0\n" * 10
    backend = SqliteBackend(tmp_path / "s.db")
    assert [prove(backend, f"t{i}") for i in range(4)] == [300] * 4
    assert backend.manifest().runs == 14
    backend.close()


def test_a_store_that_was_being_read_during_a_fork_is_refused_in_the_child(tmp_path: Path, child: Child) -> None:
    code = """
from everstep.errors import StoreError
backend = open_backend(sys.argv[1])
with backend._reader.snapshot() as cursor:
    cursor.execute("SELECT count(*) FROM runs").fetchall()
    pid = os.fork()
    if pid == 0:
        try: open_backend(sys.argv[1])
        except StoreError as error: say(error.message)
        os._exit(0)
    os.waitpid(pid, 0)
backend.close()
"""
    assert "forked while another thread was reading" in finish(child(code, tmp_path / "s.db"))


def wait_for_size(path: Path, size: int) -> None:
    deadline = time.monotonic() + 20
    while path.stat().st_size < size:
        assert time.monotonic() < deadline, f"{path} has {path.stat().st_size} bytes"
        time.sleep(0.01)


def test_the_wal_is_grown_once_then_overwritten_and_survives_kill_9(tmp_path: Path, child: Child) -> None:
    wal = tmp_path / "s.db-wal"
    process = child(WRITE.replace("say(row.head_seq)", "say(row.head_seq); time.sleep(0.002)"), tmp_path / "s.db", "r", 100_000)
    assert process.stdout is not None
    for _ in range(20):
        process.stdout.readline()
    wait_for_size(wal, GROW_BYTES)
    last = 20
    for _ in range(600):
        last = int(process.stdout.readline())
    assert wal.stat().st_size == GROW_BYTES
    last = max(last, kill_after(process, 1))
    backend = SqliteBackend(tmp_path / "s.db")
    assert prove(backend, "r") in (last, last + 1)
    assert backend.check() == []
    backend.close()


def test_a_wal_that_a_reader_holds_back_is_merged_when_the_reader_is_done(tmp_path: Path) -> None:
    backend = SqliteBackend(tmp_path / "s.db")
    row = new_run()
    backend.commit(Commit(row, None))
    with backend._reader.snapshot() as cursor:
        cursor.execute("SELECT count(*) FROM runs").fetchall()
        for _ in range(450):
            commit = next_commit(row, bytes(1024))
            backend.commit(commit)
            row = commit.run
    grown = (tmp_path / "s.db-wal").stat().st_size
    for _ in range(1500):
        commit = next_commit(row, bytes(1024))
        backend.commit(commit)
        row = commit.run
    assert (tmp_path / "s.db-wal").stat().st_size <= max(grown, GROW_BYTES) + (4 << 20)
    assert prove(backend, row.id) == 1950
    backend.close()


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
def test_one_commit_is_one_fsync_and_two_hundred_at_once_are_few(tmp_path: Path, child: Child) -> None:
    code = """
import threading
backend = open_backend(sys.argv[1], wal_bytes=0)
row = new_run(); backend.commit(Commit(row, None))
os.access("/MARK-1", 0)
for i in range(10):
    commit = next_commit(row, bytes(1024)); backend.commit(commit); row = commit.run
os.access("/MARK-2", 0)
rows = [new_run() for _ in range(200)]
left = threading.Semaphore(0)
for r in rows: backend.submit(Commit(r, None), lambda error: left.release())
for r in rows: left.acquire()
os.access("/MARK-3", 0)
os._exit(0)
"""
    log = tmp_path / "log"
    tracer = ("strace", "-f", "-e", "trace=fsync,fdatasync,access,faccessat,faccessat2", "-o", str(log))
    process = child(code, tmp_path / "s.db", prefix=tracer)
    process.communicate(timeout=60)
    text = log.read_text()
    if "MARK-1" not in text:
        pytest.skip("strace may not trace here")
    single, group = text.split("MARK-1")[1].split("MARK-2")
    count = [part.count("fsync(") + part.count("fdatasync(") for part in (single, group.split("MARK-3")[0])]
    assert count[0] == 10
    assert 1 <= count[1] <= 20


SYNC_SIX_TIMES = """
descriptor = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY)
try:
    for _ in range(6): os.fdatasync(descriptor)
except OSError: say("EIO")
"""


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
def test_a_failed_fsync_leaves_the_save_unknown_and_the_handle_writes_no_more(tmp_path: Path, child: Child) -> None:
    code = """
from everstep.errors import EverstepError
backend = open_backend(sys.argv[1], wal_bytes=0)
row = new_run("r"); backend.commit(Commit(row, None))
for i in range(30):
    try:
        commit = next_commit(row); backend.commit(commit); row = commit.run
    except EverstepError as error:
        say(i, type(error).__name__, error.written)
        if error.written == "no": break
say(backend.run("r") == row)
"""
    SqliteBackend(tmp_path / "s.db").close()
    tracer = ("strace", "-f", "-o", "/dev/null", "-e", "trace=fdatasync", "-e", "inject=fdatasync:error=EIO:when=5")
    probe = child(SYNC_SIX_TIMES, tmp_path / "probe", prefix=tracer).communicate(timeout=60)[0]
    if probe != "EIO\n":
        pytest.skip("strace may not inject errors here")
    first, second, visible = finish(child(code, tmp_path / "s.db", prefix=tracer)).splitlines()
    assert first.split()[1:] == ["StoreFailed", "unknown"]
    assert second.split()[1:] == ["StoreFailed", "no"]
    assert visible == "True"
    backend = SqliteBackend(tmp_path / "s.db")
    prove(backend, "r")
    backend.close()


def test_an_old_writer_is_fenced_across_processes(tmp_path: Path, child: Child) -> None:
    backend = SqliteBackend(tmp_path / "s.db")
    row = new_run("r")
    backend.commit(Commit(row, None))
    old = backend.acquire("r", new_worker(seconds=-1))
    code = """
backend = open_backend(sys.argv[1])
row = backend.acquire("r", new_worker())
backend.commit(next_commit(row)); backend.close(); say(row.epoch)
"""
    assert finish(child(code, tmp_path / "s.db")) == "2\n"
    with pytest.raises(LostLease):
        backend.commit(next_commit(old))
    assert prove(backend, "r") == 1
    backend.close()


def test_a_forked_child_saves_in_a_store_that_it_opens(tmp_path: Path) -> None:
    """The fork held the locks of the parent's stores; the child must not take itself for a thread that was interrupted."""
    everstep.open(tmp_path / "s.db").close()
    child = os.fork()
    if not child:
        try:
            with everstep.open(tmp_path / "s.db") as store, store.run("r", state={"n": 1}) as run:
                run.checkpoint()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    with everstep.open(tmp_path / "s.db") as store:
        assert store.load("r") == {"n": 1}


PAIRS = """
backend = open_backend(sys.argv[1])
rows = [new_run("session"), new_run("index")]
backend.commit(*(Commit(row, None) for row in rows))
while True:
    commits = [next_commit(row, os.urandom(3000), chunks=((os.urandom(32), os.urandom(3000)),)) for row in rows]
    backend.commit(*commits)
    rows = [commit.run for commit in commits]
    say(rows[0].head_seq)
"""


@pytest.mark.parametrize("lines", [1, 7, 40])
def test_runs_that_are_committed_together_are_equally_far_after_kill_9(tmp_path: Path, child: Child, lines: int) -> None:
    process = child(PAIRS, tmp_path / "s.db")
    assert process.stdout is not None
    for _ in range(lines):
        assert process.stdout.readline()
    process.send_signal(signal.SIGKILL)
    process.wait()
    backend = SqliteBackend(tmp_path / "s.db")
    assert prove(backend, "session") == prove(backend, "index") >= lines
    backend.close()


KILLED_BETWEEN = """
from everstep.backends.sqlite.transaction import Transaction
backend = open_backend(sys.argv[1])
rows = [new_run("session"), new_run("index")]
backend.commit(*(Commit(row, None) for row in rows))
apply = Transaction.apply
def die_at_the_second(self, commit):
    if commit.run.id == "index":
        self.flush()  # the first one is in the file's pages, as far as it ever comes without COMMIT
        os.kill(os.getpid(), 9)
    return apply(self, commit)
Transaction.apply = die_at_the_second
backend.commit(*(next_commit(row, os.urandom(3000)) for row in rows))
"""


def test_a_kill_between_two_runs_that_are_committed_together_leaves_neither(tmp_path: Path, child: Child) -> None:
    process = child(KILLED_BETWEEN, tmp_path / "s.db")
    process.wait()
    backend = SqliteBackend(tmp_path / "s.db")
    assert (prove(backend, "session"), prove(backend, "index")) == (0, 0)
    row = backend.run("session")
    assert row is not None
    backend.commit(next_commit(row))
    backend.close()
