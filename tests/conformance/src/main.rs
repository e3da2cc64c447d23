//! Every agent plays the same scenarios in the real sandbox, against the scripted model.
//!
//! `VIV_TEST_AGENTS=mock,claude` or `all` says which; without it, those that are installed in the folder that
//! `VIV_TEST_AGENTS_DIR` names, and the mock. The test binary is the mock's program as well.
//!
//! Not here: what an agent's lines mean (`agents` has its own tests, from recorded lines).

#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod ability;
mod asking;
mod cast;
mod delegating;
mod differences;
mod ending;
mod equipping;
mod failing;
mod first_use;
mod planning;
mod replaying;
mod script;
mod shape;
mod stage;
mod talking;
mod working;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use jail::Spawner;
use libtest_mimic::{Arguments, Trial};
use sandbox::JailBackend;

use crate::cast::Player;
use crate::stage::World;

/// No scenario takes longer, on a slow machine with others at work.
const LIMIT: Duration = Duration::from_secs(600);

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let ["__agent", "mock", arguments @ ..] = &*words.iter().map(String::as_str).collect::<Vec<_>>() {
        let arguments = arguments.iter().map(|word| (*word).to_owned());
        let settings = mock::MockSettings::parse(arguments, |name| std::env::var(name).ok()).unwrap();
        return mock::main(settings, std::io::stdin(), std::io::stdout());
    }
    // Before anything starts a thread.
    let spawner = Spawner::fork().unwrap();
    let backend = Arc::new(JailBackend::new(Arc::new(spawner)).unwrap());
    let mut arguments = Arguments::from_args();
    // Each agent is several processes, some of them hungry; but most of the time is spent waiting, for a silence to
    // be long enough or for an agent to try again.
    arguments.test_threads.get_or_insert(4);
    let players = cast::chosen();
    if let Some(player) = players.first() {
        let names = trials(player, &backend).iter().map(|trial| trial.name().to_owned()).collect::<Vec<_>>();
        let scenarios: Vec<&str> = names.iter().filter_map(|name| Some(name.split_once("::")?.1)).collect();
        differences::check_names(&scenarios);
    }
    let trials = players.iter().flat_map(|player| trials(player, &backend)).collect();
    let conclusion = libtest_mimic::run(&arguments, trials);
    let complete = !conclusion.has_failed() && conclusion.num_filtered_out == 0 && !arguments.list;
    if !complete && !ability::is_to_be_written() {
        return conclusion.exit_code();
    }
    ability::settle(&players)
}

/// The scenarios of one agent.
fn trials(player: &Player, backend: &Arc<JailBackend>) -> Vec<Trial> {
    macro_rules! trials {
        ($($module:ident::$scenario:ident),* $(,)?) => {
            vec![$(trial(player, backend, stringify!($scenario), |world| Box::pin($module::$scenario(world)))),*]
        };
    }
    trials![
        first_use::it_runs_from_an_empty_data_directory,
        talking::it_answers_and_remembers,
        talking::it_goes_on_after_a_restart,
        talking::a_huge_answer_arrives_whole,
        talking::it_thinks_aloud,
        talking::the_mock_shows_everything,
        talking::a_message_in_the_middle_of_a_turn_is_answered_after_it,
        replaying::it_plays_the_same_again_from_the_record,
        working::a_command_runs_when_allowed,
        working::a_command_does_not_run_when_denied,
        working::a_file_is_written,
        working::a_line_of_a_file_is_replaced,
        working::an_edit_is_not_asked_for_where_edits_are_accepted,
        delegating::what_a_sub_agent_does_is_below_its_call,
        planning::nothing_is_changed_in_plan_mode,
        planning::a_plan_is_told,
        asking::a_permission_is_withdrawn_with_its_turn,
        asking::what_is_always_allowed_is_not_asked_again,
        asking::a_question_is_answered,
        asking::who_asks_no_questions_offers_none,
        asking::a_turn_can_be_interrupted,
        failing::a_model_that_refuses_fails_the_turn,
        failing::a_model_that_stumbles_once_is_asked_again,
        failing::a_spent_budget_is_not_asked_twice,
        failing::a_model_that_talks_nonsense_ends_the_turn,
        failing::a_model_that_hangs_up_ends_the_turn,
        failing::a_model_that_hangs_ends_with_silence,
        equipping::skills_reach_its_model,
        equipping::tools_of_a_server_reach_its_model,
        equipping::a_tool_of_a_server_is_called,
        equipping::a_picture_reaches_its_model,
        ending::a_crash_is_told,
        ending::every_process_is_dead_when_it_is_terminated,
    ]
}

type Scenario = fn(World) -> std::pin::Pin<Box<dyn Future<Output = ()>>>;

fn trial(player: &Player, backend: &Arc<JailBackend>, scenario: &'static str, play: Scenario) -> Trial {
    let (player, backend) = (player.clone(), backend.clone());
    let title = format!("{}::{scenario}", player.agent);
    Trial::test(title, move || {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let world = World { player, backend, scenario };
        runtime.block_on(async { tokio::time::timeout(LIMIT, play(world)).await }).map_err(|_| "took too long")?;
        Ok(())
    })
}
