"""A `moeflux serve` of one's own: started, asked over a socket file, ended with its owner. Knows
HTTP and processes; knows nothing of Ray."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from typing import AsyncGenerator, Dict, List, Mapping, Optional, Sequence as Seq, Tuple, Union

import aiohttp
import yarl

__all__ = ["Child", "Head"]

#: Headers that concern one connection, not the request (RFC 9110, 7.6.1).
_BY_HOP = frozenset(("connection", "keep-alive", "proxy-authenticate", "proxy-authorization",
                     "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"))
_REQUEST_LEFT_OUT = _BY_HOP | {"content-length", "expect"}
#: The server that faces the client writes these.
_ANSWER_LEFT_OUT = _BY_HOP | {"date", "server", "x-request-id"}
#: For Linux: a killed owner runs no code, so the system has to end its child (PR_SET_PDEATHSIG).
#: A program in between says so, as nothing may run between fork and exec where there are threads.
_ENDS_WITH_OWNER = ("import ctypes, os, signal, sys\n"
                    "ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)\n"
                    "if os.getppid() != int(sys.argv[1]): sys.exit(1)\n"
                    "os.execvp(sys.argv[2], sys.argv[2:])")

#: Status and headers of an answer.
Head = Tuple[int, List[Tuple[str, str]]]


class Child:
    """The process and its socket. For one event loop."""

    def __init__(self, program: str, arguments: Seq[str], *, folder: Optional[str] = None,
                 key: Optional[str] = None) -> None:
        """Starts `program serve` with `arguments` in `folder`; `key` is an API key of it that
        metrics() sends."""
        self._folder = tempfile.mkdtemp(prefix="moeflux-")  # of this user alone
        self._path = os.path.join(self._folder, "socket")
        self._key = key
        self._command = [program, "serve", *arguments, "--unix-socket", self._path]
        self._process: Optional[subprocess.Popen[bytes]] = None
        self._failed: Optional[OSError] = None
        self._ended = threading.Event()
        self._session: Optional[aiohttp.ClientSession] = None
        started = threading.Event()
        # Linux ends the child with the thread that made it, so the thread stays.
        threading.Thread(target=self._hold, args=(folder, started), daemon=True).start()
        started.wait()
        if self._failed is not None:
            raise self._failed

    def _hold(self, folder: Optional[str], started: threading.Event) -> None:
        try:
            command = self._command
            if sys.platform.startswith("linux"):
                command = [sys.executable, "-I", "-S", "-c", _ENDS_WITH_OWNER, str(os.getpid()),
                           *command]
            self._process = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL)
        except OSError as error:
            self._failed = error
        started.set()
        if self._process is not None:
            self._process.wait()
        self._ended.set()

    def check(self) -> None:
        """Raises RuntimeError if the process has ended."""
        if self._ended.is_set() and self._process is not None:
            raise RuntimeError(f"{' '.join(self._command[:2])} ended with status "
                               f"{self._process.returncode}; its log says why")

    async def ready(self) -> None:
        """Returns when the model is loaded; RuntimeError if the process ends before."""
        while True:
            self.check()
            try:
                if await self.health():
                    return
            except aiohttp.ClientError:
                pass  # it does not listen yet
            await asyncio.sleep(0.05)

    async def health(self) -> bool:
        """Whether it answers and takes requests."""
        return (await self._get("/health"))[0] == 200

    async def metrics(self) -> str:
        """The text of GET /metrics; empty if the key is refused."""
        status, text = await self._get("/metrics")
        return text if status == 200 else ""

    async def queue(self) -> Dict[str, float]:
        """Requests `waiting` and `running` in the engine at this moment."""
        names = {"vllm:num_requests_waiting": "waiting", "vllm:num_requests_running": "running"}
        found = dict.fromkeys(names.values(), 0.0)
        for line in (await self.metrics()).splitlines():
            name, _, value = line.partition(" ")
            if name in names:
                found[names[name]] = float(value)
        return found

    async def _get(self, path: str) -> Tuple[int, str]:
        headers = {"Host": "localhost"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        async with self._open().get("http://localhost" + path, headers=headers,
                                    timeout=aiohttp.ClientTimeout(total=20)) as answer:
            return answer.status, await answer.text()

    async def answer(self, method: str, target: str, headers: Mapping[str, str],
                     body: bytes) -> AsyncGenerator[Union[Head, bytes], None]:
        """The answer's head, then its bytes as they come. Closing the generator closes the
        connection, which ends the computation. A process that is gone is aiohttp.ClientError."""
        passed = {name: value for name, value in headers.items()
                  if name.lower() not in _REQUEST_LEFT_OUT}
        async with self._open().request(
                method, yarl.URL("http://localhost" + target, encoded=True), headers=passed,
                data=body or None, allow_redirects=False,
                skip_auto_headers=("User-Agent", "Accept", "Content-Type",
                                   "Accept-Encoding")) as answer:
            yield answer.status, [(name, value) for name, value in answer.headers.items()
                                  if name.lower() not in _ANSWER_LEFT_OUT]
            async for piece in answer.content.iter_any():
                yield piece

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.UnixConnector(self._path, limit=0), auto_decompress=False,
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=20))
        return self._session

    async def stop(self) -> None:
        """Ends the process as Ctrl-C does: running answers may end, states are written."""
        if self._process is not None and not self._ended.is_set():
            self._process.send_signal(signal.SIGTERM)
            await asyncio.to_thread(self._ended.wait)
        if self._session is not None:
            await self._session.close()
        shutil.rmtree(self._folder, ignore_errors=True)
