"""deploy/nginx/expertswarm.conf: how the real nginx chooses among web processes that come and go."""

import asyncio
import re
import shutil
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx

from config.settings import BASE_DIR
from tests.requirements_check import need

CONFIGURATION = """
daemon off;
worker_processes 1;
pid {folder}/pid;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    {upstream}
    server {{
        listen 127.0.0.1:{port};
        proxy_next_upstream error timeout;
        location / {{ proxy_pass http://swarm_web; }}
    }}
}}
"""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@asynccontextmanager
async def nginx(folder: Path, first: int, second: int) -> AsyncIterator[str]:
    """In front of two web processes at these ports; its address."""
    need("nginx", shutil.which("nginx"), "apt-get install -y nginx")
    site = (BASE_DIR / "deploy" / "nginx" / "expertswarm.conf").read_text()
    (upstream,) = re.findall(r"^upstream swarm_web \{.*?^\}", site, re.MULTILINE | re.DOTALL)
    upstream = upstream.replace("10.0.0.11:8001", f"127.0.0.1:{first}").replace("10.0.0.12:8001", f"127.0.0.1:{second}")
    port = free_port()
    (folder / "nginx.conf").write_text(CONFIGURATION.format(folder=folder, upstream=upstream, port=port))
    process = await asyncio.create_subprocess_exec(
        *("nginx", "-p", str(folder), "-c", str(folder / "nginx.conf"), "-e", str(folder / "log"))
    )
    try:
        async with asyncio.timeout(10):
            while not listens(port):
                await asyncio.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        await process.wait()


async def web_process(port: int) -> asyncio.Server:
    """Answers every request with 204."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
        writer.close()

    return await asyncio.start_server(answer, "127.0.0.1", port)


async def test_a_process_that_has_just_come_back_is_asked_while_the_other_one_restarts(tmp_path: Path) -> None:
    first, second = free_port(), free_port()
    async with nginx(tmp_path, first, second) as url, httpx.AsyncClient(base_url=url, trust_env=False) as client:
        nobody = await client.post("/")

        async with await web_process(second):
            answers = [(await client.post("/")).status_code for _ in range(6)]

    assert nobody.status_code == 502
    assert answers == [204] * 6
