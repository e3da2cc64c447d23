"""The calls that every client makes, and what must hold for each."""



def text_of(result):
    return "".join(part.text for part in result.content if part.type == "text")


def data(result):
    return getattr(result, "structuredContent", None) or getattr(result, "structured_content", None)


def failed(result):
    return getattr(result, "isError", None) or getattr(result, "is_error", None) or False


async def check(call, is_detached):
    """`call(name, arguments, progress=None)` calls a tool."""
    session = None

    async def tool(name, progress=None, **arguments):
        if is_detached and session and "fresh" not in arguments:
            arguments["session"] = session
        return await call(name, arguments, progress)

    hello = await tool("run", language="python", code="print('hello')", reason="say hello")
    assert data(hello)["stdout"] == "hello\n" and data(hello)["exitCode"] == 0, hello
    assert data(hello)["status"] == "ok" and not failed(hello), hello
    assert data(hello)["policyDigest"].startswith("sha256:"), hello
    session = data(hello)["session"]

    failing = await tool("run", argv=["sh", "-c", "echo no >&2; exit 3"])
    assert data(failing)["exitCode"] == 3 and data(failing)["stderr"] == "no\n" and not failed(failing), failing
    assert data(failing)["session"] == session, failing

    late = await tool("run", argv=["sleep", "60"], timeoutSeconds=0.2)
    assert failed(late) and data(late)["status"] == "timeout" and "proc.timeout" in text_of(late), late

    seen = []

    async def progress(done, total, message):
        seen.append((done, message))

    await tool("run", progress=progress, language="sh", code="echo working; sleep 1.2")
    assert any(message == "working" for _, message in seen), seen
    assert all(one[0] < other[0] for one, other in zip(seen, seen[1:])), seen

    files = [{"path": "in/a.txt", "content": "aGk=", "encoding": "base64"}]
    copied = await tool("run", argv=["cp", "in/a.txt", "out.txt"], files=files, artifacts=["out.txt", "none"])
    artifacts = {artifact["path"]: artifact for artifact in data(copied)["artifacts"]}
    assert artifacts["out.txt"]["content"] == "hi" and "does not exist" in artifacts["none"]["error"], copied

    # The address is refused by the policy: nothing leaves the sandbox.
    denied = await tool("run", language="bash", code="curl -sS https://refused.example.com")
    assert failed(denied) and data(denied)["status"] == "denied", denied
    assert data(denied)["denials"][0]["host"] == "refused.example.com", denied
    assert data(denied)["denials"][0]["rule"].startswith("net.enabled: false"), denied
    assert "net.enabled" in text_of(denied), denied

    wider = await tool("run", argv=["true"], policy={"net": {"enabled": True}})
    assert failed(wider) and "policy_widening_denied" in text_of(wider), wider
    unknown = await tool("run", argv=["true"], policy={"nets": {}})
    assert failed(unknown) and "nets" in text_of(unknown), unknown
    narrow = await tool("run", argv=["cat", "out.txt"], policy={"proc": {"memory": "64MiB"}})
    assert data(narrow)["stdout"] == "hi" and data(narrow)["session"] != session, narrow
    assert data(narrow)["policyDigest"] != data(hello)["policyDigest"], narrow

    await tool("run", argv=["ln", "-s", "/etc/passwd", "link"])
    for path in ["link", "../../etc/passwd", "/etc/passwd", "in/../../../etc/passwd", "a\u0000b"]:
        refused = await tool("read_file", path=path)
        assert failed(refused) and "root:" not in text_of(refused), refused
        refused = await tool("write_files", files=[{"path": path, "content": "x"}])
        assert failed(refused), refused
    strange = "\u001b[2J\u202e\n name"
    await tool("write_files", files=[{"path": strange, "content": "kept"}])
    listed = await tool("list_files")
    assert strange in [entry["name"] for entry in data(listed)["entries"]], listed
    assert data(await tool("read_file", path=strange))["content"] == "kept"

    long = await tool("run", language="bash", code="yes | head -c 300000", outputBytes=1000)
    assert data(long)["stdoutTruncated"] and data(long)["stdoutBytes"] == 300000, long
    assert len(data(long)["stdout"]) == 1000 and "truncated" in text_of(long), long

    changes = await tool("changes")
    assert "out.txt" in data(changes)["patch"], changes
    decided = await tool("approve", tool_name="Bash", input={"command": "id"})
    assert '"deny"' in text_of(decided), decided

    fresh = await tool("run", argv=["ls"], fresh=True)
    assert data(fresh)["stdout"] == "kept.txt\n" and data(fresh)["session"] != session, fresh
    session = data(fresh)["session"]
    return session


