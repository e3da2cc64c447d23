//! `viv exec --tty`: a command that has a terminal, and a person whose own one is left as it was.

use crate::place::Place;
use crate::terminal::Terminal;

fn start(place: &Place, script: &str) -> Terminal {
    Terminal::start(place.viv(&["exec", "--tty", "--", "sh", "-c", script]))
}

#[test]
fn the_command_has_a_terminal_of_its_own_and_keys_go_there() {
    let place = Place::new();
    // Ctrl-C is a key for the command, not a signal for viv.
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
fn the_size_of_the_window_follows() {
    let place = Place::new();
    let mut terminal = start(&place, "trap 'stty size; exit 3' WINCH; stty size; while :; do sleep 0.05; done");
    terminal.until("24 80\r\n");
    terminal.resize(50, 132);
    terminal.signal(rustix::process::Signal::WINCH);
    terminal.until("50 132\r\n");
    assert_eq!(terminal.finish().0.code(), Some(3));
}

#[test]
fn the_persons_terminal_is_as_it_was_however_it_ends() {
    let place = Place::new();
    let ended = |arguments: &[&str], signal: Option<rustix::process::Signal>, code: i32| {
        let mut terminal = Terminal::start(place.viv(&[&["exec", "--tty"], arguments].concat()));
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
fn what_is_drawn_passes_and_what_commands_the_terminal_does_not() {
    let place = Place::new();
    let script = r"printf '\033[2J\033[5;5Hdrawn\033]52;c;c2VjcmV0\007\033]0;title\033\\\033[21t'";
    let (status, shown) = start(&place, script).finish();
    assert_eq!((status.code(), shown.as_str()), (Some(0), "\x1b[2J\x1b[5;5Hdrawn"));
}

#[test]
fn without_a_terminal_there_is_none_to_give() {
    let place = Place::new();
    let ran = place.run(&["exec", "--tty", "--", "true"]);
    assert_eq!(ran.code, 125, "{}", ran.people);
    assert!(ran.people.contains("`--tty` needs a terminal") && ran.people.contains("help: "), "{}", ran.people);
    assert_eq!(place.run(&["--json", "exec", "--tty", "--", "true"]).code, 125);
}
