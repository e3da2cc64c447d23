//! Stopping a task of another process: by `viv sessions stop` and over a server's API.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

use crate::fixture::viv_fixture;
use crate::journal;
use crate::processes;
use crate::server::Server;
use testkit::{VivFixture, wait_for_exit};

const COMMANDS: &str = "{version: 1, name: endless, commands: [{run: [sleep, '600']}]}";
const PROMPTS: &str = "{version: 1, name: endless, agent: mock, prompts: [{text: /hang}]}";

/// Starts a `viv task` that never ends; returns it with its session.
fn running(place: &VivFixture, task: &str) -> (Child, String) {
    let file = place.workspace().join("task.yaml");
    std::fs::write(&file, task).unwrap();
    let mut command = place.command(&["task", file.to_str().unwrap()]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    let first = lines.find(|line| line.contains("· session ")).unwrap();
    lines.find(|line| line.contains('▶')).unwrap();
    std::thread::spawn(move || lines.for_each(drop));
    (child, first.rsplit(' ').next().unwrap().to_owned())
}

#[track_caller]
fn check_stopped(place: &VivFixture, task: &str, stop: impl FnOnce(&str)) {
    let (mut child, session) = running(place, task);
    let family = processes::family(child.id());
    stop(&session);
    assert_eq!(wait_for_exit(&mut child).code(), Some(130), "{task}");
    processes::check_gone(child.id(), &family);
}

#[test]
fn a_task_of_another_process_can_be_stopped() {
    for task in [COMMANDS, PROMPTS] {
        let place = viv_fixture();
        check_stopped(&place, task, |session| {
            let stopped = place.run(&["sessions", "stop", session]);
            assert_eq!((stopped.code, stopped.stderr.as_str()), (0, ""), "{task}");
            journal::check_terminated(&place.data_dir(), session);
        });
    }
}

#[test]
fn a_server_stops_a_session_of_another_process() {
    let place = viv_fixture();
    let server = Server::start(&place);
    for task in [COMMANDS, PROMPTS] {
        check_stopped(&place, task, |session| {
            let answer = server.client().post(&format!("/v1/sessions/{session}/terminate"), "");
            assert_eq!(answer.status, 204, "{}", answer.body);
            journal::check_terminated(&place.data_dir(), session);
        });
        check_stopped(&place, task, |session| {
            let answer = server.client().delete(&format!("/v1/sessions/{session}"));
            assert_eq!(answer.status, 204, "{}", answer.body);
            assert_eq!(server.client().get(&format!("/v1/sessions/{session}")).status, 404);
        });
    }
    server.stop();
}
