//! Damaged journals: the server starts, reports them and moves them to quarantine; other sessions continue.

use std::fs;
use std::io::Read as _;
use std::path::Path;

use crate::fixture::viv_fixture;
use crate::http::Client;
use crate::journal;
use crate::server::Server;
use testkit::VivFixture;

/// A session and the damage done to its journal while no server runs.
type Damage = (&'static str, fn(&Path));

const DAMAGES: &[Damage] = &[
    ("cut", |path| {
        // Cut at the end of a line, which a crash cannot do: records that the index counts are missing.
        let text = fs::read_to_string(path).unwrap();
        fs::write(path, &text[..=text.find('\n').unwrap()]).unwrap();
    }),
    ("flipped", |path| {
        let mut bytes = fs::read(path).unwrap();
        let at = bytes.len() * 3 / 4;
        bytes[at] ^= 0x10;
        fs::write(path, bytes).unwrap();
    }),
    ("foreign", |path| fs::write(path, "Dear diary,\ntoday I was not a journal.\n").unwrap()),
    ("swapped", |path| {
        // A valid journal of another session.
        fs::copy(path.with_file_name("whole.jsonl"), path).unwrap();
    }),
    ("gone", |path| fs::remove_file(path).unwrap()),
];

#[test]
fn damaged_journals_are_reported_and_quarantined_and_other_sessions_go_on() {
    let place = viv_fixture();
    let server = Server::start(&place);
    let client = server.client();
    for id in DAMAGES.iter().map(|(id, _)| *id).chain(["whole", "torn"]) {
        assert_eq!(client.try_create(id).unwrap().status, 200, "{id}");
        assert!(client.converse(id, "/echo before").unwrap().count() > 3, "{id}");
    }
    // Sessions are open when the server is killed, so that recovery reads their journals.
    for id in DAMAGES.iter().map(|(id, _)| *id) {
        assert!(client.converse(id, "/permission").unwrap().count() > 1, "{id}");
    }
    server.kill(&place.data_dir());
    let mut damaged = Vec::new();
    for (id, damage) in DAMAGES {
        let path = journal::path(&place.data_dir(), id);
        damage(&path);
        damaged.push((*id, fs::read(&path).ok()));
    }
    let torn = journal::path(&place.data_dir(), "torn");
    let text = fs::read_to_string(&torn).unwrap();
    // A partial last record, as a crash leaves it, is not damage.
    fs::write(&torn, format!("{text}{{\"seq\":{},\"time\":", text.lines().count() + 1)).unwrap();

    let mut server = Server::start_logging(&place);
    let client = server.client();
    for (id, content) in &damaged {
        check_told(&place, &client, id);
        let aside = place.data_dir().join("quarantine").join(format!("{id}.jsonl"));
        assert_eq!(fs::read(aside).ok(), *content, "{id} was moved to quarantine unchanged");
    }
    let table = place.run(&["sessions", "ls"]);
    for (id, _) in DAMAGES {
        let shown = table.stdout.lines().find(|line| line.contains(id)).unwrap_or_else(|| panic!("{id} is not listed"));
        assert!(shown.contains("damaged"), "{shown}");
    }
    for id in ["whole", "torn"] {
        let last = client.converse(id, "/echo after").unwrap().last().unwrap();
        assert_eq!(last.json()["data"]["outcome"], "completed", "{id} continues");
        let recovered = journal::read(&place.data_dir(), id);
        assert!(recovered.iter().any(|event| event.draft.body.kind() == "session.recovered"), "{id}");
    }
    assert_eq!(client.try_create("new").unwrap().status, 200);
    let mut log = server.take_log();
    server.stop();
    let mut said = String::new();
    log.read_to_string(&mut said).unwrap();
    for (id, _) in DAMAGES {
        let told = said.lines().any(|line| line.contains("the journal is damaged") && line.contains(id));
        assert!(told, "the log does not mention {id}: {said}");
    }
}

/// Checks that the API reports the damage consistently and that the session can only be deleted.
fn check_told(place: &VivFixture, client: &Client, id: &str) {
    let info = client.get(&format!("/v1/sessions/{id}")).json();
    assert_eq!((&info["damaged"], &info["ended"]), (&true.into(), &true.into()), "{id}: {info}");
    for _ in 0..2 {
        let events = client.get(&format!("/v1/sessions/{id}/events?events=all"));
        assert_eq!((events.status, events.json()["code"].as_str()), (500, Some("journal_damaged")), "{id}");
        let sent = client.try_send(id, "hello").unwrap();
        assert_eq!((sent.status, sent.json()["code"].as_str()), (500, Some("journal_damaged")), "{id}");
    }
    let shown = place.run(&["sessions", "show", id]);
    assert!(shown.stdout.contains("damaged"), "{}", shown.stdout);
}
