//! Tests of `viv exec --tty`: the command's terminal, and restoring our own.

use crate::fixture::viv_fixture;
use crate::terminal::Terminal;
use testkit::VivFixture;

fn start(place: &VivFixture, script: &str) -> Terminal {
    Terminal::start(place.command(&["exec", "--tty", "--", "sh", "-c", script]))
}

#[test]
fn the_command_has_its_own_terminal_and_receives_keys() {
    let place = viv_fixture();
    // Ctrl-C goes to the command, not to viv.
    let script =
        "trap 'echo interrupted' INT; tty; echo up; read cut; read line; echo got $line; stty -echo; read rest; exit 7";
    let mut terminal = start(&place, script);
    terminal.until("up\r\n");
    assert!(terminal.shown.contains("/dev/pts/0\r\n"), "{}", terminal.shown);
    assert!(!terminal.is_cooked(), "keys are not passed on as they are");
    terminal.type_keys(b"\x03");
    terminal.until("interrupted\r\n");
    terminal.type_keys(b"word\r");
    terminal.until("got word\r\n");
    terminal.type_keys(b"\r");
    let (status, shown) = terminal.finish();
    assert_eq!(status.code(), Some(7), "{shown}");
}

#[test]
fn window_size_changes_reach_the_command() {
    let place = viv_fixture();
    let mut terminal = start(&place, "trap 'stty size; exit 3' WINCH; stty size; while :; do sleep 0.05; done");
    terminal.until("24 80\r\n");
    terminal.resize(50, 132);
    terminal.signal(rustix::process::Signal::WINCH);
    terminal.until("50 132\r\n");
    assert_eq!(terminal.finish().0.code(), Some(3));
}

#[test]
fn the_terminal_is_restored_after_every_kind_of_end() {
    let place = viv_fixture();
    let ended = |arguments: &[&str], signal: Option<rustix::process::Signal>, code: i32| {
        let mut terminal = Terminal::start(place.command(&[&["exec", "--tty"], arguments].concat()));
        if let Some(signal) = signal {
            terminal.until("up\r\n");
            assert!(!terminal.is_cooked());
            terminal.signal(signal);
        }
        let (status, cooked, shown) = terminal.finish_and_look();
        assert_eq!(status.code(), Some(code), "{arguments:?}: {shown}");
        assert!(cooked, "{arguments:?} left the terminal raw");
    };
    ended(&["--", "true"], None, 0);
    ended(&["--", "sh", "-c", "stty raw -echo; kill -9 $$"], None, 137);
    ended(&["--", "not-a-program"], None, 127);
    ended(&["--timeout", "200ms", "--", "sleep", "1000"], None, 124);
    ended(&["--idle-timeout", "200ms", "--", "sleep", "1000"], None, 124);
    ended(&["--", "sh", "-c", "echo up; sleep 1000"], Some(rustix::process::Signal::TERM), 143);
    ended(&["--", "sh", "-c", "echo up; sleep 1000"], Some(rustix::process::Signal::HUP), 143);
}

#[test]
fn drawing_passes_and_other_escape_sequences_are_removed() {
    let place = viv_fixture();
    let script = r"printf '\033[2J\033[5;5Hdrawn\033]52;c;c2VjcmV0\007\033]0;title\033\\\033[21t'";
    let (status, shown) = start(&place, script).finish();
    assert_eq!((status.code(), shown.as_str()), (Some(0), "\x1b[2J\x1b[5;5Hdrawn"));
}

#[test]
fn tty_without_a_terminal_is_rejected() {
    let place = viv_fixture();
    let ran = place.run(&["exec", "--tty", "--", "true"]);
    assert_eq!(ran.code, 125, "{}", ran.stderr);
    assert!(ran.stderr.contains("`--tty` needs a terminal") && ran.stderr.contains("help: "), "{}", ran.stderr);
    assert_eq!(place.run(&["--json", "exec", "--tty", "--", "true"]).code, 125);
}
