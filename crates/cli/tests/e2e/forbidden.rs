//! A machine without user namespaces: viv fails with a hint and never runs an agent without a sandbox.

use std::io::Write;
use std::process::{Command, Stdio};

use crate::fixture::{program, viv_fixture};
use testkit::{ProgramOutput, VivFixture};

/// User that runs `viv` in the namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Who {
    /// Root of the namespace, with the host's mounts.
    Root,
    /// Root of the namespace, with its own mounts.
    RootWithMounts,
    /// An ordinary user; only root can set this up.
    User(u32),
}

/// Runs `viv` in a user namespace in which no other can be created. The rest of the machine is unchanged.
fn run(place: &VivFixture, who: Who, arguments: &[&str]) -> ProgramOutput {
    let (how, become_user) = match who {
        Who::Root => (&["--map-root-user"][..], String::new()),
        Who::RootWithMounts => (&["--map-root-user", "--mount"][..], String::new()),
        Who::User(id) => {
            let drop = "--clear-groups --inh-caps=-all --ambient-caps=-all";
            (&["--keep-caps"][..], format!("setpriv --reuid {id} --regid {id} {drop}"))
        }
    };
    let script = format!(
        "read go && echo 0 > /proc/sys/user/max_user_namespaces && exec {become_user} \"$0\" --data-dir \"$@\" </dev/null"
    );
    let mut command = Command::new("unshare");
    command.arg("--user").args(how).args(["sh", "-c", &script, program()]).arg(place.data_dir()).args(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    if let Who::User(id) = who {
        map_ids(child.id(), id);
    }
    writeln!(child.stdin.take().unwrap(), "go").unwrap();
    ProgramOutput::from(child.wait_with_output().unwrap())
}

/// Maps root and `user` in the namespace of `pid`, which only root may do. The process is the waiting shell by then:
/// mapping during its execve could remove its capabilities.
fn map_ids(pid: u32, user: u32) {
    let stat = || std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    testkit::wait_until("the shell waits in a user namespace of its own", || stat().contains(" (sh) S "));
    for map in ["uid_map", "gid_map"] {
        std::fs::write(format!("/proc/{pid}/{map}"), format!("0 0 1\n{user} {user} 1\n")).unwrap();
    }
}

#[track_caller]
fn check(ran: &ProgramOutput, code: i32) {
    assert_eq!(ran.code, code, "{ran:?}");
    let words = &ran.stderr;
    assert!(words.contains("this user may not make user namespaces"), "{words}");
    assert!(words.ends_with("help: sudo sysctl -w user.max_user_namespaces=15000\n"), "{words}");
    assert_eq!(ran.stdout, "", "something ran");
}

fn everybody() -> Vec<Who> {
    let mut all = vec![Who::Root, Who::RootWithMounts];
    if rustix::process::geteuid().is_root() {
        all.push(Who::User(65_534));
    }
    all
}

#[test]
fn the_demo_names_the_missing_feature_and_runs_nothing() {
    for who in everybody() {
        let place = viv_fixture();
        open_to(&place, who);
        check(&run(&place, who, &["demo"]), 6);
        let journals = std::fs::read_dir(place.data_dir().join("trajectory")).unwrap().count();
        assert_eq!(journals, 0, "{who:?}: a session was made");
        assert!(!place.data_dir().join("demo/hello.sh").exists(), "{who:?}: the agent ran");
    }
}

#[test]
fn exec_and_run_fail_in_the_same_way() {
    for who in everybody() {
        let place = viv_fixture();
        open_to(&place, who);
        check(&run(&place, who, &["exec", "--", "id"]), 125);
        check(&run(&place, who, &["run", "mock", "/echo here"]), 6);
    }
}

/// Gives the data directory to the user of the test.
fn open_to(place: &VivFixture, who: Who) {
    use std::os::unix::fs::{PermissionsExt, chown};
    if let Who::User(id) = who {
        std::fs::create_dir(place.data_dir()).unwrap();
        chown(place.data_dir(), Some(id), Some(id)).unwrap();
        std::fs::set_permissions(place.data_dir().parent().unwrap(), PermissionsExt::from_mode(0o755)).unwrap();
    }
}
