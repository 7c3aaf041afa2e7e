"""What is compared at opening is of one moment, also while others write."""

from pathlib import Path

import apsw

import everstep
from everstep.backends.sqlite.files import store_file


def test_a_write_between_two_looks_is_no_sign_of_an_older_file(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with everstep.open(path) as store, store.run("a") as run:
        run.checkpoint(state={"n": 1})
        connection = apsw.Connection(str(path))
        traced: list[str] = []

        def between(_: object, sql: str, __: object) -> bool:
            traced.append(sql)
            if len(traced) == 3:  # the sum was read: the checks come next
                run.checkpoint(state={"n": 2})
            return True

        connection.exec_trace = between
        assert store_file._adds_up(connection)
        connection.close()
    assert len(traced) >= 3
