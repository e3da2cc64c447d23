//! Which policy a session is under, whoever runs it: what was chosen for it, and what its own directory says.

use crate::place::Place;
use crate::server::Server;

/// The sentences that hold in the last session, with their layers.
#[track_caller]
fn sentences(place: &Place) -> String {
    let told = place.run(&["policy", "explain", "--session", "@last"]);
    assert_eq!(told.code, 0, "{}", told.people);
    told.out
}

#[test]
fn a_policy_that_was_chosen_holds_also_where_a_server_runs() {
    let place = Place::new();
    let server = Server::start_as(&place, &["serve", "--no-auth", "--policy", "open"]);
    let run = ["run", "--workspace", "workspace", "mock", "/echo hello"];
    let chosen = place.run(&[&run[..], &["--policy", "strict", "--narrow", "proc.memory=64MiB"]].concat());
    assert_eq!(chosen.code, 0, "{}", chosen.people);
    let told = sentences(&place);
    assert!(told.contains("[base: strict:") && !told.contains("[base: open:"), "{told}");
    assert!(told.contains("at most 64MiB of memory together.  [narrowing: --narrow:1]"), "{told}");

    let narrowed = place.run(&[&run[..], &["--narrow", "proc.memory=64MiB"]].concat());
    assert_eq!(narrowed.code, 0, "{}", narrowed.people);
    assert!(sentences(&place).contains("at most 64MiB of memory"), "{}", sentences(&place));

    // Whoever chose nothing has what the server has.
    assert_eq!(place.run(&run).code, 0);
    assert!(sentences(&place).contains("[base: open:"), "{}", sentences(&place));
    server.stop();
}
