"""Tests a server at ADDRESS with a client generated from the existing API (the contract), with the token in FILE.
The client is the package `theirs`.

The server runs without any option about events. The test calls every operation of the generated client, and the generated models
parse every response. At the end every operation must have been called.
"""

import io
import json
import pathlib
import sys
import tarfile

import theirs
from theirs import AuthenticatedClient
from theirs.api.agents import get_agent_models, get_agent_modes, install_agent, list_agents
from theirs.api.fs import (
    fs_delete_entry,
    fs_entries,
    fs_mkdir,
    fs_move,
    fs_read_file,
    fs_stat,
    fs_upload_batch,
    fs_write_file,
)
from theirs.api.meta import get_health
from theirs.api.sessions import (
    create_session,
    get_events,
    get_events_sse,
    list_sessions,
    post_message,
    post_message_stream,
    reject_question,
    reply_permission,
    reply_question,
    terminate_session,
)
from theirs.models import (
    AgentInstallRequest,
    CreateSessionRequest,
    FsEntryType,
    FsMoveRequest,
    MessageRequest,
    PermissionReply,
    PermissionReplyRequest,
    ProblemDetails,
    QuestionReplyRequest,
    UniversalEvent,
)
from theirs.types import File

CALLED = set()
# Larger than the usual default body limit of HTTP frameworks.
LARGE = 3 << 20


def call(operation, *arguments, **named):
    """Calls a generated operation and returns its parsed response."""
    CALLED.add(operation.__name__.rsplit(".", 1)[-1])
    return operation.sync(*arguments, **named)


def events(text):
    """Returns every event of a stream, parsed by the generated model."""
    lines = (line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: "))
    return [UniversalEvent.from_dict(json.loads(line)) for line in lines]


def turn(client, message):
    """Sends a message and returns the events of its turn, up to its end or to a request for a person."""
    CALLED.add("post_message_stream")
    answer = post_message_stream.sync_detailed("contract", client=client, body=MessageRequest(message=message))
    assert answer.status_code == 200, answer
    received = events(answer.content.decode())
    numbers = [event.sequence for event in received]
    assert numbers == sorted(set(numbers)), numbers
    return received


def request_data(received, kind):
    """Returns the data of the last event, which must be of type `kind`. The contract does not say which `data` belongs to
    which `type`, so the generated model can be the wrong one."""
    assert received[-1].type_.value == kind, received[-1]
    return received[-1].to_dict()["data"]


def until(client, session, kind, offset=0):
    """Returns the first event of a type after a sequence number, and its number."""
    while True:
        page = call(get_events, session, client=client, offset=offset, limit=3)
        for event in page.events:
            offset = event.sequence
            if event.type_.value == kind:
                return event, offset


def main(address, file):
    with open(file) as text:
        token = text.read().strip()
    client = AuthenticatedClient(base_url=address, token=token, raise_on_unexpected_status=True, timeout=60)
    assert call(get_health, client=client).status == "ok"
    agents(client)
    made = call(create_session, "contract", client=client, body=CreateSessionRequest(agent="mock", agent_mode="build", title="Contract"))
    assert made.healthy
    again = call(create_session, "contract", client=client, body=CreateSessionRequest(agent="mock"))
    assert isinstance(again, ProblemDetails) and again.status == 409, again
    listed = [session for session in call(list_sessions, client=client).sessions if session.session_id == "contract"]
    assert listed[0].title == "Contract" and not listed[0].ended
    permissions(client)
    questions(client)
    files(client)
    stream_equals_pages(client)
    missing = {path.stem for path in pathlib.Path(theirs.__file__).parent.glob("api/*/*.py")} - CALLED - {"__init__"}
    assert not missing, f"never called: {missing}"


def agents(client):
    known = {agent.id: agent for agent in call(list_agents, client=client).agents}
    assert known["mock"].installed and known["mock"].capabilities.permissions
    assert [mode.id for mode in call(get_agent_modes, "mock", client=client).modes] == ["build", "plan"]
    assert call(get_agent_models, "mock", client=client).models
    refused = call(install_agent, "nobody", client=client, body=AgentInstallRequest())
    assert isinstance(refused, ProblemDetails) and refused.status == 400, refused


def permissions(client):
    call(post_message, "contract", client=client, body=MessageRequest(message="/run echo hello"))
    permission, seen = until(client, "contract", "permission.requested")
    once = PermissionReplyRequest(reply=PermissionReply.ONCE)
    call(reply_permission, "contract", permission.to_dict()["data"]["permission_id"], client=client, body=once)
    until(client, "contract", "turn.ended", seen)


def questions(client):
    question = request_data(turn(client, "/question"), "question.requested")
    _, seen = until(client, "contract", "question.requested")
    answers = QuestionReplyRequest(answers=[[question["options"][0]]])
    call(reply_question, "contract", question["question_id"], client=client, body=answers)
    _, seen = until(client, "contract", "question.resolved", seen)
    _, seen = until(client, "contract", "turn.ended", seen)
    question = request_data(turn(client, "/question"), "question.requested")
    call(reject_question, "contract", question["question_id"], client=client)
    until(client, "contract", "turn.ended", seen)


def files(client):
    here = {"client": client, "session_id": "contract"}
    call(fs_mkdir, path="notes", **here)
    content = File(payload=io.BytesIO(b"hello"))
    assert call(fs_write_file, path="notes/a.txt", body=content, **here).bytes_written == 5
    assert call(fs_stat, path="notes/a.txt", **here).size == 5
    moved = call(fs_move, body=FsMoveRequest(from_="notes/a.txt", to="notes/b.txt"), **here)
    assert moved.to == "notes/b.txt"
    uploaded = call(fs_upload_batch, path="notes", body=File(payload=archive()), **here)
    assert len(uploaded.paths) == 2 and not uploaded.truncated, uploaded
    entries = {entry.name: entry for entry in call(fs_entries, path="notes", **here)}
    assert sorted(entries) == ["b.txt", "large", "link"], entries
    assert entries["large"].size == LARGE and entries["link"].entry_type == FsEntryType.FILE
    assert call(fs_stat, path="notes", **here).entry_type == FsEntryType.DIRECTORY
    assert call(fs_read_file, path="notes/b.txt", **here).payload.read() == b"hello"
    assert call(fs_delete_entry, path="notes", recursive=True, **here).path == "notes"


def archive():
    """Returns an archive with a large file and a link to it."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        large = tarfile.TarInfo("large")
        large.size = LARGE
        tar.addfile(large, io.BytesIO(bytes(LARGE)))
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, "large"
        tar.addfile(link)
    packed.seek(0)
    return packed


def stream_equals_pages(client):
    """Checks that the stream and the pages of an ended session have the same events."""
    turn(client, "/demo")
    call(terminate_session, "contract", client=client)
    CALLED.add("get_events_sse")
    streamed = events(get_events_sse.sync_detailed("contract", client=client).content.decode())
    paged, more = [], True
    while more:
        page = call(get_events, "contract", client=client, offset=paged[-1].sequence if paged else 0, limit=7)
        paged.extend(page.events)
        more = page.has_more
    assert [event.to_dict() for event in paged] == [event.to_dict() for event in streamed]
    assert paged[-1].type_.value == "session.ended" and paged[-1].to_dict()["data"]["reason"] == "terminated", paged[-1]


main(sys.argv[1], sys.argv[2])
