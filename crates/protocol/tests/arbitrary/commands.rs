//! Generators of events of commands.

use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;
use protocol::{ExecFinished, ExecStarted, TaskCommandFinished};

use super::text;

pub(super) fn exec_started() -> impl Strategy<Value = ExecStarted> {
    (vec(text(), 0..4), text()).prop_map(|(command, workdir)| ExecStarted { command, workdir })
}

pub(super) fn exec_finished() -> impl Strategy<Value = ExecFinished> {
    (vec(text(), 0..4), of(any::<i32>()), of(any::<i32>()), any::<u64>())
        .prop_map(|(command, exit_code, signal, wall_micros)| ExecFinished { command, exit_code, signal, wall_micros })
}

pub(super) fn task_command_finished() -> impl Strategy<Value = TaskCommandFinished> {
    let fields = (vec(text(), 0..4), any::<i32>(), any::<u64>(), of(text()));
    fields.prop_map(|(command, exit_code, wall_micros, reason)| TaskCommandFinished {
        command,
        exit_code,
        wall_micros,
        reason,
    })
}
