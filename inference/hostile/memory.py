"""How much memory the processes of a server have, at named moments, and whether one of them died."""

from inference.chaos.judge import Verdict
from inference.chaos.processes import Server, resident_bytes

# What a process may keep of a run that is over, beside what it had when the server was ready.
GROWTH_LIMIT_BYTES = 160 << 20
# What it may hold while everybody is there.
PEAK_LIMIT_BYTES = 1 << 30


class Memory:
    """Anonymous memory of the server's processes, at named moments."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._seen: dict[str, dict[str, int]] = {}
        self._pids = server.run.pids

    def look(self, moment: str) -> None:
        self._seen[moment] = {name: resident_bytes(pid) for name, pid in self._server.run.pids.items()}

    def judge(self, verdict: Verdict) -> None:
        first, last = self._seen["ready"], self._seen["at the end"]
        for name, size in last.items():
            grown = size - first.get(name, 0)
            if grown > GROWTH_LIMIT_BYTES:
                verdict.problems.append(f"{name} kept {grown >> 20} MiB more than it had")
        died = sorted(name for name, pid in self._server.run.pids.items() if self._pids.get(name) != pid)
        verdict.add("restarted_processes", died, f"processes died: {died}" if died else "")
        peak = max(max(seen.values()) for seen in self._seen.values())
        verdict.add("memory_bytes", self._seen, f"{peak >> 20} MiB in one process" if peak > PEAK_LIMIT_BYTES else "")
