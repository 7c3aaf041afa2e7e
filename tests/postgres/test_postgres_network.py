"""A real network that is cut before the request and before the reply: what was acknowledged is there, once, and errors tell the truth."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterator

import pytest
from children import PREAMBLE
from pg_network import INSTALL, Network, usable

from everstep.backends.registry import open_backend
from everstep.records import ZERO, record_fault

SAVER = (
    PREAMBLE
    + """
from everstep.errors import EverstepError
url, saves = sys.argv[1], int(sys.argv[2])
def patiently(call):
    while True:
        try: return call()
        except EverstepError: time.sleep(0.05)
backend = patiently(lambda: open_backend(url, patience=float(sys.argv[3])))
row = new_run("r")
backend.commit(Commit(row, None))
say("ready")
for n in range(saves):
    commit = next_commit(row, f"save {n}".encode())
    try: backend.commit(commit)
    except EverstepError as error:
        say(error.written, n)
        row = patiently(lambda: backend.run("r"))
    else:
        say("yes", n); row = commit.run
backend.close()
"""
)
QUICK = "connect_timeout=2&tcp_user_timeout=600&keepalives_idle=1&keepalives_interval=1&keepalives_count=2"


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    if not usable():
        pytest.skip(INSTALL)
    if "TEST_POSTGRES_URL" in os.environ:
        pytest.skip("the network of the server that TEST_POSTGRES_URL names is not ours to cut: unset it")
    network = Network()
    yield network
    network.close()


def told(network: Network, where: str, chance: random.Random, patience: float) -> tuple[dict[int, str], int]:
    """What a program was told of each of its saves while the wire was cut again and again; and how often it was."""
    client = network.client(SAVER, f"{network.url}?{QUICK}&schema=s_{where}_{int(patience * 10)}", 1500, patience)
    assert client.stdin is not None
    assert client.stdout is not None
    assert client.stdout.readline() == "ready\n"
    answers: list[str] = []
    reader = threading.Thread(target=lambda: answers.extend(client.stdout or ()))
    reader.start()
    cuts = 0
    while reader.is_alive() and cuts < 12:
        time.sleep(chance.uniform(0.01, 0.12))
        network.cut(where)
        time.sleep(chance.choice([0.05, 0.3, 1.5]))
        network.heal()
        cuts += 1
    reader.join(120)
    assert not reader.is_alive(), "it hangs"
    assert client.wait(10) == 0
    return {int(n): what for what, n in (line.split() for line in answers)}, cuts


@pytest.mark.parametrize("patience", [15.0, 0.3])
@pytest.mark.parametrize("where", ["request", "reply", "both", "data"])
def test_every_save_that_was_acknowledged_is_there_once_and_errors_tell_the_truth(network: Network, where: str, patience: float) -> None:
    said, cuts = told(network, where, random.Random(f"{where} {patience}"), patience)
    assert len(said) == 1500
    backend = open_backend(network.server.url("postgres") + f"&schema=s_{where}_{int(patience * 10)}")
    row = backend.run("r")
    assert row is not None
    before, there = ZERO, []
    for record in backend.records("r", 0, 2**31 - 1):
        assert record_fault(before, record, row.key) is None
        before = record.digest
        there.append(int((record.body or b"").split()[1]))
    assert there == sorted(set(there)), "one is there twice, or out of order"
    assert [n for n, what in said.items() if what == "yes" and n not in there] == []
    assert [n for n, what in said.items() if what == "no" and n in there] == []
    census = backend.census()
    assert (census.total, backend.check()) == (census.found_total, [])
    backend.close()
    assert cuts >= 3, "it was over before it was cut"
    if patience > 10:
        assert set(said.values()) == {"yes"}, "cuts that are shorter than the patience are no errors"


def test_a_wire_that_stays_cut_ends_in_an_error_with_the_timeouts_that_are_set_by_us(network: Network) -> None:
    """With no setting in the address. That it ends at all is what is tested: the driver's own timeouts are hours."""
    client = network.client(SAVER, f"{network.url}?schema=s_lasting", 2000, 15)
    assert client.stdout is not None
    assert client.stdout.readline() == "ready\n"
    assert client.stdout.readline() == "yes 0\n"
    network.cut("data")
    try:
        answer = next(line for line in client.stdout if not line.startswith("yes"))
    finally:
        network.heal()
    assert answer.split()[0] == "unknown"
    out, _ = client.communicate(timeout=120)
    assert out.splitlines()[-1] == "yes 1999"
