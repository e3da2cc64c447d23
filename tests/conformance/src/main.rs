//! Runs the same scenarios with every agent, in the real sandbox and with a scripted model.
//!
//! `VIV_TEST_AGENTS=mock,claude` or `all` selects the agents. By default these are the mock and the agents that are
//! installed in the directory `VIV_TEST_AGENTS_DIR`. The test binary also contains the mock agent's process.
//!
//! Not here: the protocols of the agents (`agents` tests them with recorded lines).

#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod every_upstream;
mod extensions;
mod first_use;
mod known_differences;
mod messages;
mod model_failures;
mod model_script;
mod observed_capabilities;
mod outline;
mod permissions;
mod plans;
mod replay;
mod scenario_session;
mod shutdown;
mod sub_agents;
mod terminal_ui;
mod tested_agent;
mod tools;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use jail::Spawner;
use libtest_mimic::{Arguments, Trial};
use sandbox::JailBackend;

use crate::scenario_session::Scenario;
use crate::tested_agent::TestedAgent;

/// Time limit of a scenario on a slow, busy machine.
const TIME_LIMIT: Duration = Duration::from_secs(600);

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let ["__agent", "mock", arguments @ ..] = &*words.iter().map(String::as_str).collect::<Vec<_>>() {
        let arguments = arguments.iter().map(|word| (*word).to_owned());
        let settings = mock::MockSettings::parse(arguments, |name| std::env::var(name).ok()).unwrap();
        return mock::main(settings, std::io::stdin(), std::io::stdout());
    }
    // The fork must happen before any thread starts.
    let spawner = Spawner::fork().unwrap();
    let backend = Arc::new(JailBackend::new(Arc::new(spawner)).unwrap());
    let mut arguments = Arguments::from_args();
    // Agents need several processes, but most of the time is spent waiting for timeouts and retries.
    arguments.test_threads.get_or_insert(4);
    let tested_agents = tested_agent::selected();
    if let Some(agent) = tested_agents.first() {
        let names = trials(agent, &backend).iter().map(|trial| trial.name().to_owned()).collect::<Vec<_>>();
        let scenarios: Vec<&str> = names.iter().filter_map(|name| Some(name.split_once("::")?.1)).collect();
        known_differences::check_names(&scenarios);
    }
    let trials = tested_agents.iter().flat_map(|agent| trials(agent, &backend)).collect();
    let conclusion = libtest_mimic::run(&arguments, trials);
    let complete = !conclusion.has_failed() && conclusion.num_filtered_out == 0 && !arguments.list;
    if !complete && !observed_capabilities::is_update_requested() {
        return conclusion.exit_code();
    }
    observed_capabilities::compare_or_write(&tested_agents)
}

/// Returns the scenarios of one agent.
fn trials(agent: &TestedAgent, backend: &Arc<JailBackend>) -> Vec<Trial> {
    macro_rules! trials {
        ($($module:ident::$scenario:ident),* $(,)?) => {
            vec![$(trial(agent, backend, stringify!($scenario), |scenario| Box::pin($module::$scenario(scenario)))),*]
        };
    }
    trials![
        first_use::agent_runs_from_an_empty_data_directory,
        messages::agent_answers_and_remembers,
        messages::session_continues_after_a_restart,
        messages::huge_answer_arrives_complete,
        messages::reasoning_and_attachment_are_accepted,
        messages::mock_demo_shows_every_item,
        messages::message_during_a_turn_is_queued,
        replay::recorded_session_replays_identically,
        terminal_ui::terminal_ui_answers_makes_a_file_and_exits,
        tools::allowed_command_runs,
        tools::denied_command_does_not_run,
        tools::file_is_written,
        tools::line_of_a_file_is_replaced,
        tools::accept_edits_mode_does_not_ask_for_edits,
        sub_agents::sub_agent_items_are_below_its_call,
        plans::plan_mode_changes_nothing,
        plans::plan_is_reported,
        permissions::interrupt_withdraws_the_permission,
        permissions::always_allowed_command_is_not_asked_again,
        permissions::question_is_answered,
        permissions::agent_without_questions_offers_no_question_tool,
        permissions::turn_can_be_interrupted,
        model_failures::refusing_model_fails_the_turn,
        model_failures::transient_model_error_is_retried,
        model_failures::spent_budget_is_not_retried,
        model_failures::invalid_model_response_ends_the_turn,
        model_failures::truncated_model_response_ends_the_turn,
        model_failures::silent_model_times_out,
        every_upstream::file_is_edited_with_an_anthropic_upstream,
        every_upstream::file_is_edited_with_an_openai_upstream,
        every_upstream::file_is_edited_with_a_gemini_upstream,
        every_upstream::file_is_edited_with_a_compatible_upstream,
        extensions::skills_reach_the_model,
        extensions::mcp_tools_reach_the_model,
        extensions::mcp_tool_is_called,
        extensions::image_reaches_the_model,
        shutdown::crash_is_reported,
        shutdown::termination_kills_every_process,
    ]
}

type ScenarioFn = fn(Scenario) -> std::pin::Pin<Box<dyn Future<Output = ()>>>;

fn trial(agent: &TestedAgent, backend: &Arc<JailBackend>, name: &'static str, run: ScenarioFn) -> Trial {
    let (agent, backend) = (agent.clone(), backend.clone());
    let title = format!("{}::{name}", agent.name);
    Trial::test(title, move || {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let scenario = Scenario::new(agent, backend, name);
        runtime
            .block_on(async { tokio::time::timeout(TIME_LIMIT, run(scenario)).await })
            .map_err(|_| "time limit exceeded")?;
        Ok(())
    })
}
