//! Isolation of users and data directories.

use std::os::unix::fs::{PermissionsExt, chown};
use std::process::Command;

use crate::fixture::viv_fixture;
use crate::server::Server;
use testkit::{ProgramOutput, VivFixture, run_to_end};

/// The user `nobody`.
const NOBODY: u32 = 65_534;

/// Runs `viv` as another user, in a directory that this user may enter.
fn as_nobody(place: &VivFixture, arguments: &[&str]) -> ProgramOutput {
    // The build directory may be unreadable for other users.
    let copy = place.data_dir().parent().unwrap().join("viv");
    if !copy.exists() {
        std::fs::copy(crate::fixture::program(), &copy).unwrap();
        std::fs::set_permissions(&copy, PermissionsExt::from_mode(0o755)).unwrap();
        std::fs::set_permissions(copy.parent().unwrap(), PermissionsExt::from_mode(0o755)).unwrap();
    }
    let id = NOBODY.to_string();
    let mut command = Command::new("setpriv");
    command.args(["--reuid", &id, "--regid", &id, "--clear-groups"]).arg(copy).arg("--data-dir").arg(place.data_dir());
    command.args(arguments).current_dir("/").stdin(std::process::Stdio::null()).env("HOME", "/nonexistent");
    run_to_end(command)
}

#[test]
fn data_directories_share_nothing() {
    let (one, other) = (viv_fixture(), viv_fixture());
    assert_eq!(one.run(&["demo"]).code, 0);
    assert_eq!(other.run(&["sessions", "ls"]).stdout, "");
    assert_eq!(other.run(&["sessions", "show", "@last"]).code, 3);
    // Two servers with sessions of the same id.
    let (first, second) = (Server::start(&one), Server::start(&other));
    for server in [&first, &second] {
        assert_eq!(server.client().try_create("same").unwrap().status, 200);
    }
    assert_eq!(second.client().get("/v1/sessions").json()["sessions"].as_array().unwrap().len(), 1);
    assert_eq!(first.client().get("/v1/sessions").json()["sessions"].as_array().unwrap().len(), 2);
    assert_eq!(first.client().post("/v1/sessions/same/terminate", "").status, 204);
    let last = second.client().converse("same", "/echo here").unwrap().last().unwrap();
    assert_eq!(last.json()["type"], "turn.ended", "the other one ended with it");
    first.stop();
    second.stop();
}

#[test]
fn a_data_directory_is_private() {
    let place = viv_fixture();
    let server = Server::start(&place);
    assert_eq!(server.client().try_create("mine").unwrap().status, 200);
    let mut open = vec![place.data_dir()];
    while let Some(path) = open.pop() {
        let metadata = path.symlink_metadata().unwrap();
        // The workspace of the demo may be readable; everything else is private to the owner.
        assert_eq!(metadata.permissions().mode() & 0o077, 0, "{} is open to others", path.display());
        if metadata.is_dir() {
            open.extend(std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
    server.stop();
}

#[test]
fn the_data_directory_of_another_user_is_rejected() {
    if !rustix::process::geteuid().is_root() {
        // Only root can create files of another user.
        return;
    }
    let place = viv_fixture();
    std::fs::create_dir(place.data_dir()).unwrap();
    std::fs::set_permissions(place.data_dir(), PermissionsExt::from_mode(0o755)).unwrap();
    // Root uses another user's directory, and another user root's.
    for (owner, ran) in [
        (NOBODY, place_owned_by(&place, NOBODY, |place| place.run(&["sessions", "ls"]))),
        (0, place_owned_by(&place, 0, |place| as_nobody(place, &["sessions", "ls"]))),
    ] {
        assert_eq!(ran.code, 2, "{ran:?}");
        assert!(ran.stderr.contains(&format!("belongs to user {owner}")), "{}", ran.stderr);
        assert!(ran.stderr.contains("\nhelp: "), "{}", ran.stderr);
    }
    assert_eq!(std::fs::read_dir(place.data_dir()).unwrap().count(), 0, "something was written");
}

#[test]
fn the_socket_rejects_other_users_regardless_of_its_mode() {
    if !rustix::process::geteuid().is_root() {
        // Only root can switch to another user.
        return;
    }
    let place = viv_fixture();
    let server = Server::start(&place);
    let socket = place.data_dir().join("viv.sock");
    for open in [place.data_dir().parent().unwrap(), &place.data_dir()] {
        std::fs::set_permissions(open, PermissionsExt::from_mode(0o755)).unwrap();
    }
    std::fs::set_permissions(&socket, PermissionsExt::from_mode(0o666)).unwrap();
    let id = NOBODY.to_string();
    // The mode allows everybody to connect; the server still rejects other users.
    let script = r#"socket(S, AF_UNIX, SOCK_STREAM, 0) and connect(S, pack_sockaddr_un($ARGV[0])) or die $!;
        print "connected\n";
        $SIG{PIPE} = "IGNORE";
        syswrite(S, "GET /v1/sessions HTTP/1.1\r\nhost: localhost\r\n\r\n");
        print "answered\n" if sysread(S, $answer, 1);"#;
    let call = |become_another: &[&str]| {
        let mut command = Command::new(become_another.first().unwrap_or(&"perl"));
        command.args(become_another.iter().skip(1)).args(["-MSocket", "-e", script]).arg(&socket);
        run_to_end(command)
    };
    assert_eq!(call(&[]).stdout, "connected\nanswered\n");
    let other = call(&["setpriv", "--reuid", &id, "--regid", &id, "--clear-groups", "perl"]);
    assert_eq!(other.stdout, "connected\n", "{other:?}");
    server.stop();
}

#[test]
fn the_demo_works_for_an_ordinary_user() {
    if !rustix::process::geteuid().is_root() {
        // All tests run as an ordinary user then.
        return;
    }
    let place = viv_fixture();
    let ran = place_owned_by(&place, NOBODY, |place| as_nobody(place, &["demo"]));
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.stdout.contains("hello from agent in /") && ran.stdout.contains("✔ done"), "{}", ran.stdout);
}

fn place_owned_by(place: &VivFixture, owner: u32, run: impl Fn(&VivFixture) -> ProgramOutput) -> ProgramOutput {
    let _ = std::fs::create_dir(place.data_dir());
    chown(place.data_dir(), Some(owner), Some(owner)).unwrap();
    run(place)
}
