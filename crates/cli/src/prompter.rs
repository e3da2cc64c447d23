//! Prompts on the terminal: permissions, questions and choices.
//!
//! Choices such as `yes` or `apply` ignore case, and anything else asks again. Answers to questions are taken exactly as
//! typed.

mod approval_view;
mod line_input;

use base::PrintableText;
use protocol::{Permission, PermissionReply, Question, QuestionPrompt};

use self::approval_view::{ApprovalView, INDENT, ScreenSize, TypedAnswer};
use crate::approval::Approval;
use crate::{notification, output};

/// Standard input has ended, so nobody can answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InputEnded;

/// Asks for a choice; returns the typed word in lower case, empty at the end of input. An answer that is not among
/// `choices` asks again.
pub(crate) async fn ask_choice(question: &'static str, choices: &[&str]) -> String {
    loop {
        let Ok(typed) = read_line(question.to_owned()).await else { return String::new() };
        let typed = typed.to_lowercase();
        if choices.contains(&typed.as_str()) {
            return typed;
        }
        print_indented(&format!("not understood; answer {}", choices.join(", ")));
    }
}

/// Shows a permission request and asks until the answer is understood.
pub(crate) async fn ask_permission(permission: &Permission) -> Result<PermissionReply, InputEnded> {
    notification::agent_waits();
    let mut view = ApprovalView::new(Approval::of(permission), screen_size());
    output::print_message_part(&view.first_page());
    loop {
        match view.answer(&read_line(view.prompt()).await?) {
            TypedAnswer::Reply(reply) => return Ok(reply),
            TypedAnswer::More => output::print_message_part(&view.next_page()),
            TypedAnswer::Again(why) => print_indented(&why),
        }
    }
}

/// Asks all parts of `question`; returns `None` if one of them is left empty.
pub(crate) async fn ask_questions(question: &Question) -> Result<Option<Vec<Vec<String>>>, InputEnded> {
    notification::agent_waits();
    ask_each(&question.prompts(), read_line).await
}

/// Returns the first option of each part of `question`: agents list the most likely option first.
pub(crate) fn first_options(question: &Question) -> Option<Vec<Vec<String>>> {
    question.prompts().into_iter().map(|asked| Some(vec![asked.options.into_iter().next()?])).collect()
}

async fn ask_each(
    list: &[QuestionPrompt],
    mut read: impl AsyncFnMut(String) -> Result<String, InputEnded>,
) -> Result<Option<Vec<Vec<String>>>, InputEnded> {
    let mut all = Vec::new();
    for asked in list {
        // A question with a single part is on the screen already.
        let typed = read(prompt(asked, list.len() > 1)).await?;
        if typed.is_empty() {
            return Ok(None);
        }
        all.push(parse_answer(asked, &typed));
    }
    Ok(Some(all))
}

/// Returns the prompt: the question, if it is not on the screen already, and the options.
fn prompt(asked: &QuestionPrompt, with_question: bool) -> String {
    let mut lines = Vec::new();
    if with_question {
        let header = asked.header.as_deref().map(|header| format!("{}: ", exact(header))).unwrap_or_default();
        lines.push(format!("{header}{}", exact(&asked.prompt)));
    }
    let numbered = asked.options.iter().enumerate().map(|(place, option)| format!("{} {}", place + 1, exact(option)));
    if asked.descriptions.iter().all(String::is_empty) {
        lines.extend(Some(numbered.collect::<Vec<_>>().join(" · ")).filter(|line| !line.is_empty()));
    } else {
        // Options with descriptions get a line each.
        let described = numbered.zip(&asked.descriptions).map(|(option, words)| match exact(words) {
            words if words.as_str().is_empty() => option,
            words => format!("{option}: {words}"),
        });
        lines.extend(described);
    }
    lines.push(if asked.multi_select { "answers, separated by commas: " } else { "answer: " }.to_owned());
    lines.join(&format!("\n{:>INDENT$}", ""))
}

/// Returns a part of a question on one line; a question must not look like an answer or another question.
fn exact(text: &str) -> PrintableText {
    PrintableText::exact_line(text)
}

/// Resolves an answer: the number of an option, its name, or free text.
fn parse_answer(asked: &QuestionPrompt, typed: &str) -> Vec<String> {
    let option = |word: &str| {
        let numbered = word.parse::<usize>().ok().and_then(|number| asked.options.get(number.checked_sub(1)?));
        numbered.or_else(|| asked.options.iter().find(|option| option.eq_ignore_ascii_case(word))).cloned()
    };
    if asked.multi_select {
        let words = typed.split(',').map(str::trim).filter(|word| !word.is_empty());
        return words.map(|word| option(word).unwrap_or_else(|| word.to_owned())).collect();
    }
    vec![option(typed).unwrap_or_else(|| typed.to_owned())]
}

/// Shows `prompt` and reads one line, trimmed. Keys that were typed before the prompt are dropped.
async fn read_line(prompt: String) -> Result<String, InputEnded> {
    line_input::drop_typed_ahead();
    output::print_message_part(&format!("{:>INDENT$}\x1b[33m{prompt}\x1b[0m", ""));
    let read = line_input::read_line().await;
    if read.is_err() {
        output::print_message("");
    }
    read
}

fn print_indented(text: &str) {
    output::print_message(&format!("{:>INDENT$}{text}", ""));
}

/// Returns the size of the terminal; `None` if stdin or stderr is not a terminal.
fn screen_size() -> Option<ScreenSize> {
    if !output::stdin_is_terminal() || !output::stderr_is_terminal() {
        return None;
    }
    let size = rustix::termios::tcgetwinsize(std::io::stdin()).ok()?;
    // Terminals that report no size get the traditional one.
    let or = |count: u16, usual: usize| if count == 0 { usual } else { usize::from(count) };
    Some(ScreenSize { rows: or(size.ws_row, 24), columns: or(size.ws_col, 80) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(options: &[&str], several: bool) -> QuestionPrompt {
        let options: Vec<String> = options.iter().map(|option| (*option).to_owned()).collect();
        let descriptions = vec![String::new(); options.len()];
        QuestionPrompt { header: None, prompt: "Which?".to_owned(), options, descriptions, multi_select: several }
    }

    async fn check(list: &[QuestionPrompt], typed: &[&str]) -> Result<Option<Vec<Vec<String>>>, InputEnded> {
        let mut lines = typed.iter();
        ask_each(list, async |_| lines.next().map(|line| (*line).to_owned()).ok_or(InputEnded)).await
    }

    #[tokio::test]
    async fn each_question_gets_its_own_answer_as_typed() {
        let list = [asked(&["Red", "Blue"], false), asked(&["Small", "Large"], false), asked(&[], false)];
        let answers = check(&list, &["2", "large", "As It Is"]).await.unwrap().unwrap();
        assert_eq!(answers, [["Blue"], ["Large"], ["As It Is"]]);
        assert_eq!(check(&list[..1], &["Deep Blue"]).await.unwrap().unwrap(), [["Deep Blue"]]);
        assert_eq!(check(&list[..1], &["3"]).await.unwrap().unwrap(), [["3"]]);
    }

    #[tokio::test]
    async fn an_empty_answer_rejects_the_whole_question() {
        let list = [asked(&["Red"], false), asked(&["Small"], false)];
        assert_eq!(check(&list, &["1", ""]).await, Ok(None));
        assert_eq!(check(&list, &["1"]).await, Err(InputEnded));
    }

    #[test]
    fn the_prompt_shows_header_options_and_descriptions() {
        let mut one = asked(&["Red", "Blue"], true);
        assert_eq!(prompt(&asked(&["Red", "Blue"], false), false).replace(' ', ""), "1Red·2Blue\nanswer:");
        one.header = Some("Colour".to_owned());
        one.descriptions[1] = "like the sea".to_owned();
        let shown = prompt(&one, true);
        let lines: Vec<&str> = shown.lines().map(str::trim).collect();
        assert_eq!(lines, ["Colour: Which?", "1 Red", "2 Blue: like the sea", "answers, separated by commas:"]);
    }

    #[test]
    fn several_options_can_be_chosen_if_the_question_allows_it() {
        assert_eq!(parse_answer(&asked(&["A", "B", "C"], true), "1, c"), ["A", "C"]);
        assert_eq!(parse_answer(&asked(&["A", "B"], false), "1, b"), ["1, b"]);
    }
}
