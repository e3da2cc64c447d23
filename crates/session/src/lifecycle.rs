//! The life of a session: its actor, its turns, its agent process and its permission requests.
//!
//! A prompt passes these main files of the crate, in this order:
//!
//! 1. `sessions.rs`: `Sessions::send` passes the message to the session's actor and waits for the reply.
//! 2. `actor.rs`: the actor's loop receives the command.
//! 3. `actor/turns.rs`: starts a turn, or queues the message behind the running turn.
//! 4. `turn_state.rs`: the state machine that returns the effect of each input.
//! 5. `recorder.rs`: writes `turn.started` and every later event to the journal, from which clients read.
//! 6. `agent_process.rs`: writes the prompt to the agent's stdin and reads the agent's stdout.
//!
//! Output of the agent takes the same files in reverse, from 6 to 3, and then 5.

mod actor;
mod actor_command;
mod agent_launch;
mod agent_process;
mod agent_stderr;
mod answers;
mod create_request;
mod current_turn;
mod detach_on_drop;
mod drain;
mod drift;
mod fork;
mod git_config;
mod host;
mod listeners;
mod message;
mod metadata;
mod pending;
mod policy_change;
mod ports;
mod prompt_images;
mod queue;
mod receipts;
mod recorder;
mod session_handle;
mod session_plan;
mod start_metadata;
mod turn_state;

pub use actor::grant_pattern;
pub use detach_on_drop::{DetachOnDrop, detach_on_drop};
pub use drift::{Drift, DriftByAgent};
pub use message::{AcceptedMessage, SessionOptions, UserMessage, WhenBusy};
pub use pending::{PendingRequest, Request};
pub use ports::PortConnection;
pub use queue::QueuedMessage;

pub(crate) use actor::{Actor, resolved_permission, resolved_question, summarize_changes};
pub(crate) use actor_command::{ActorCommand, GivenAnswer, ReplySender};
pub(crate) use create_request::check_description;
pub(crate) use drift::{drift_of_event, group_drift};
pub(crate) use git_config::git_config;
pub(crate) use host::SessionHost;
pub(crate) use listeners::{Listeners, SandboxCredentials};
pub(crate) use metadata::{ExitDetails, TurnMetadata};
pub(crate) use policy_change::SessionPolicyChange;
pub(crate) use receipts::{MessageDigest, MessageReceipt};
pub(crate) use recorder::Recorder;
pub(crate) use session_handle::{ActorExit, SessionHandle};
pub(crate) use session_plan::{NO_AGENT, SessionPlan, workspace_at};
pub(crate) use start_metadata::StartMetadata;

use agent_process::{AgentExit, AgentProcess, AgentSignal, LineReader, OutputLine};
use agent_stderr::StderrBuffer;
use current_turn::CurrentTurn;
use metadata::RequestedTool;
use pending::PendingRequests;
use prompt_images::read_images;
use receipts::MessageReceipts;
use session_plan::epoch_number;
use turn_state::{TurnEffect, TurnInput, TurnState};
