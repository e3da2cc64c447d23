"""The Python SDK 1: protocol 2025-11-25 over stdio and HTTP."""
import asyncio
import sys
from pathlib import Path

import mcp.types as types
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamablehttp_client

sys.path.insert(0, str(Path(__file__).parent))
from checks import check, data  # noqa: E402


async def cancel(session):
    """A cancelled call kills its processes."""
    started = asyncio.Event()

    async def progress(done, total, message):
        if message == "started":
            started.set()

    number = session._request_id
    arguments = {"language": "sh", "code": "echo started; exec sleep 86399"}
    running = asyncio.create_task(session.call_tool("run", arguments, progress_callback=progress))
    await started.wait()
    params = types.CancelledNotificationParams(requestId=number, reason="test")
    notification = types.CancelledNotification(method="notifications/cancelled", params=params)
    await session.send_notification(types.ClientNotification(notification))
    # Only the sandbox's own processes are visible there.
    look = {"language": "sh", "code": "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '"}
    for _ in range(200):
        listed = await session.call_tool("run", look)
        if "86399" not in data(listed)["stdout"]:
            break
    else:
        raise AssertionError("the process of the cancelled call still runs")
    running.cancel()


async def talk(read, write):
    async with ClientSession(read, write) as session:
        info = await session.initialize()
        assert info.protocolVersion == "2025-11-25" and info.serverInfo.name == "sandboxed_code", info
        tools = await session.list_tools()
        assert [tool.name for tool in tools.tools][0] == "run", tools

        async def call(name, arguments, progress):
            return await session.call_tool(name, arguments, progress_callback=progress)

        await check(call, False)
        await cancel(session)


async def main(kind, *where):
    if kind == "stdio":
        async with stdio_client(StdioServerParameters(command=where[0], args=list(where[1:]))) as (read, write):
            await talk(read, write)
    else:
        headers = {"Authorization": f"Bearer {where[1]}", "Viv-Workspace": where[2]}
        async with streamablehttp_client(where[0], headers=headers) as (read, write, _):
            await talk(read, write)
    print("all checks passed")


asyncio.run(main(*sys.argv[1:]))
