"""Drives a server with a client that was generated from the contract, at ADDRESS, with the token in FILE.
The client is the package `theirs`.

What the contract does not know is an addition: event types of ours are skipped, everything else must be read by the
generated models as it comes.
"""

import io
import json
import sys

from theirs import AuthenticatedClient
from theirs.api.agents import get_agent_models, get_agent_modes, list_agents
from theirs.api.fs import fs_delete_entry, fs_entries, fs_mkdir, fs_move, fs_read_file, fs_stat, fs_write_file
from theirs.api.meta import get_health
from theirs.api.sessions import create_session, list_sessions, post_message, reply_permission, terminate_session
from theirs.models import (
    CreateSessionRequest,
    FsMoveRequest,
    MessageRequest,
    PermissionReply,
    PermissionReplyRequest,
    ProblemDetails,
    UniversalEvent,
    UniversalEventType,
)
from theirs.types import File

KNOWN = {kind.value for kind in UniversalEventType}


def until(client, session, kind, offset=0):
    """The first event of a type after a number, and the number of the last event that was seen."""
    while True:
        path = f"/v1/sessions/{session}/events/sse?offset={offset}"
        with client.get_httpx_client().stream("GET", path) as stream:
            for line in stream.iter_lines():
                if not line.startswith("data: "):
                    continue
                event = json.loads(line.removeprefix("data: "))
                offset = event["sequence"]
                if event["type"] not in KNOWN:
                    continue
                read = UniversalEvent.from_dict(event)
                if read.type_.value == kind:
                    return read, offset


def main(address, file):
    with open(file) as text:
        token = text.read().strip()
    client = AuthenticatedClient(base_url=address, token=token, raise_on_unexpected_status=True, timeout=60)
    assert get_health.sync(client=client).status == "ok"
    agents = {agent.id: agent for agent in list_agents.sync(client=client).agents}
    assert agents["mock"].installed and agents["mock"].capabilities.permissions
    assert [mode.id for mode in get_agent_modes.sync("mock", client=client).modes] == ["default", "plan"]
    assert get_agent_models.sync("mock", client=client).models
    made = create_session.sync("contract", client=client, body=CreateSessionRequest(agent="mock", title="Contract"))
    assert made.healthy
    again = create_session.sync("contract", client=client, body=CreateSessionRequest(agent="mock"))
    assert isinstance(again, ProblemDetails) and again.status == 409, again
    listed = [session for session in list_sessions.sync(client=client).sessions if session.session_id == "contract"]
    assert listed[0].title == "Contract" and not listed[0].ended
    post_message.sync("contract", client=client, body=MessageRequest(message="/run echo hello"))
    asked, seen = until(client, "contract", "permission.requested")
    once = PermissionReplyRequest(reply=PermissionReply.ONCE)
    # The contract does not say which `data` goes with which `type`, so a generated model is not always the right one.
    permission = asked.to_dict()["data"]["permission_id"]
    reply_permission.sync("contract", permission, client=client, body=once)
    until(client, "contract", "turn.ended", seen)
    files(client)
    terminate_session.sync("contract", client=client)
    ended, _ = until(client, "contract", "session.ended")
    assert ended.to_dict()["data"]["reason"] == "terminated", ended


def files(client):
    here = {"client": client, "session_id": "contract"}
    fs_mkdir.sync(path="notes", **here)
    content = File(payload=io.BytesIO(b"hello"))
    assert fs_write_file.sync(path="notes/a.txt", body=content, **here).bytes_written == 5
    assert fs_stat.sync(path="notes/a.txt", **here).size == 5
    moved = fs_move.sync(body=FsMoveRequest(from_="notes/a.txt", to="notes/b.txt"), **here)
    assert moved.to == "notes/b.txt"
    assert [entry.name for entry in fs_entries.sync(path="notes", **here)] == ["b.txt"]
    assert fs_read_file.sync(path="notes/b.txt", **here).payload.read() == b"hello"
    assert fs_delete_entry.sync(path="notes", recursive=True, **here).path == "notes"


main(sys.argv[1], sys.argv[2])
