//! Snapshots of the help texts.

use crate::fixture::viv_fixture;

fn help(arguments: &[&str]) -> String {
    let ran = viv_fixture().run(&[arguments, &["--help"]].concat());
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{arguments:?}");
    ran.stdout
}

macro_rules! help {
    ($($name:ident: $($argument:literal)*;)*) => {
        $(
            #[test]
            fn $name() {
                insta::assert_snapshot!(help(&[$($argument),*]));
            }
        )*
    };
}

help! {
    viv:;
    demo: "demo";
    run: "run";
    task: "task";
    exec: "exec";
    serve: "serve";
    doctor: "doctor";
    sessions: "sessions";
    sessions_ls: "sessions" "ls";
    sessions_show: "sessions" "show";
    sessions_events: "sessions" "events";
    sessions_diff: "sessions" "diff";
    sessions_stop: "sessions" "stop";
    sessions_attach: "sessions" "attach";
    sessions_export: "sessions" "export";
    sessions_rm: "sessions" "rm";
    logs: "logs";
    perms: "perms";
    api: "api";
    tokens: "tokens";
    tokens_create: "tokens" "create";
    policy: "policy";
    policy_log: "policy" "log";
    policy_suggest: "policy" "suggest";
    policy_narrow: "policy" "narrow";
    policy_grant: "policy" "grant";
    policy_test: "policy" "test";
    replay: "replay";
    usage_settle: "usage" "settle";
    credentials: "credentials";
}
