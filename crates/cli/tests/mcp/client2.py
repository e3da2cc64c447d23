"""The Python SDK 2: protocol 2026-07-28 over stdio and HTTP."""
import asyncio
import sys
from pathlib import Path

import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

sys.path.insert(0, str(Path(__file__).parent))
from checks import check, data  # noqa: E402


async def cancel(client, session):
    """A cancelled call kills its processes."""
    started = asyncio.Event()

    async def progress(done, total, message):
        if message == "started":
            started.set()

    named = {"session": session} if session else {}
    arguments = {"language": "sh", "code": "echo started; exec sleep 86399", **named}
    running = asyncio.create_task(client.call_tool("run", arguments, progress_callback=progress))
    await started.wait()
    running.cancel()
    look = {"language": "sh", "code": "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '", **named}
    for _ in range(200):
        listed = await client.call_tool("run", look)
        if "86399" not in data(listed)["stdout"]:
            return
    raise AssertionError("the process of the cancelled call still runs")


async def talk(server, is_http):
    async with Client(server) as client:
        assert client.protocol_version == "2026-07-28", client.protocol_version

        async def call(name, arguments, progress):
            return await client.call_tool(name, arguments, progress_callback=progress)

        session = await check(call, is_http)
        await cancel(client, session if is_http else None)


async def main(kind, *where):
    if kind == "stdio":
        await talk(stdio_client(StdioServerParameters(command=where[0], args=list(where[1:]))), False)
    else:
        headers = {"Authorization": f"Bearer {where[1]}", "Viv-Workspace": where[2]}
        async with httpx2.AsyncClient(headers=headers, timeout=60) as http:
            await talk(streamable_http_client(where[0], http_client=http), True)
    print("all checks passed")


asyncio.run(main(*sys.argv[1:]))
