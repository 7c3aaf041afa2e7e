"""A network of our own that can be cut: a PostgreSQL server on TCP, a namespace for its client, and nftables between them.

Needs root, `ip` and `nft`. Packets are dropped inside of the client's namespace, by direction, so that nothing else on the machine notices.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from everstep.testing.postgres import Server

INSTALL = "network cuts need root, ip and nft: run as root after `apt-get install iproute2 nftables`"
_RULES = {
    "request": ["output tcp dport 5432 drop"],
    "reply": ["input tcp sport 5432 drop"],
    "both": ["output tcp dport 5432 drop", "input tcp sport 5432 drop"],
    "data": ["input tcp sport 5432 ip length > 80 drop"],  # confirmations get through, answers do not: a router that loses large packets
}


def usable() -> bool:
    """Whether a namespace can be made and packets be dropped in it."""
    if os.geteuid() != 0 or not shutil.which("ip") or not shutil.which("nft"):
        return False
    name = f"es-try-{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True)
    tried = subprocess.run(["ip", "netns", "exec", name, "nft", "add", "table", "inet", "cut"], capture_output=True)
    subprocess.run(["ip", "netns", "del", name], capture_output=True)
    return made.returncode == 0 and tried.returncode == 0


class Network:
    """A server here, a client there, and a wire between them that can be cut."""

    def __init__(self) -> None:
        number = os.getpid() % 60_000
        self.name = f"es-{number}"
        self._here, there = f"es{number}a", f"es{number}b"
        ours = f"10.213.{number // 250}.{number % 250 // 4 * 4 + 1}"
        theirs = f"10.213.{number // 250}.{number % 250 // 4 * 4 + 2}"
        self._folder = Path(tempfile.mkdtemp(prefix="net"))
        self._folder.chmod(0o755)
        hba = self._folder / "hba"
        hba.write_text(f"local all all trust\nhost all all {theirs}/32 trust\n")
        hba.chmod(0o644)
        self._run("ip", "netns", "add", self.name)
        self._run("ip", "link", "add", self._here, "type", "veth", "peer", "name", there, "netns", self.name)
        self._run("ip", "addr", "add", f"{ours}/30", "dev", self._here)
        self._run("ip", "link", "set", self._here, "up")
        self._inside("ip", "addr", "add", f"{theirs}/30", "dev", there)
        self._inside("ip", "link", "set", there, "up")
        self._inside("nft", "add table inet cut")
        for hook in ("input", "output"):
            self._inside("nft", f"add chain inet cut {hook} {{ type filter hook {hook} priority 0; }}")
        self.server = Server.start(fsync=False, listen_addresses=ours, hba_file=hba)
        self.url = f"postgresql://postgres@{ours}/postgres"

    def _run(self, *command: str) -> None:
        subprocess.run(command, check=True, capture_output=True)

    def _inside(self, *command: str) -> None:
        self._run("ip", "netns", "exec", self.name, *command)

    def cut(self, where: str) -> None:
        """From now on packets are lost: requests, replies, both, or only replies that carry something."""
        self._inside("nft", "; ".join(f"add rule inet cut {rule}" for rule in _RULES[where]))

    def heal(self) -> None:
        self._inside("nft", "flush chain inet cut input; flush chain inet cut output")

    def client(self, code: str, *words: object) -> subprocess.Popen[str]:
        """A program on the other side of the wire."""
        command = ["ip", "netns", "exec", self.name, sys.executable, "-c", code, *map(str, words)]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def close(self) -> None:
        self.server.stop()
        subprocess.run(["ip", "netns", "del", self.name], capture_output=True)
        subprocess.run(["ip", "link", "del", self._here], capture_output=True)
        shutil.rmtree(self._folder, ignore_errors=True)
