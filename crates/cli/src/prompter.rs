//! What the person at the terminal is asked, and what they answer.
//!
//! A word that chooses (yes, no, apply) is read in any case; an answer to a question is what was typed, letter by letter.

use protocol::{Asked, PermissionReply, Question};

use crate::timeline::clean;

/// Nobody is there to be asked: the input has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InputEnded;

/// Asks which of a few words is meant: one of them in small letters, or nothing when nobody answers.
pub(crate) async fn ask_choice(question: &'static str) -> String {
    read_line(question.to_owned()).await.unwrap_or_default().to_lowercase()
}

/// Asks whether something is allowed; no is the answer to everything that is not yes.
pub(crate) async fn ask_permission() -> Result<PermissionReply, InputEnded> {
    let typed = read_line("allow? [y]es once · [a]lways · [n]o: ".to_owned()).await?;
    Ok(match typed.to_lowercase().as_str() {
        "y" | "yes" => PermissionReply::Once,
        "a" | "always" => PermissionReply::Always,
        _ => PermissionReply::Reject,
    })
}

/// Asks each thing that `question` asks; nothing when one of them is not answered.
pub(crate) async fn ask_questions(question: &Question) -> Result<Option<Vec<Vec<String>>>, InputEnded> {
    ask_each(&question.asked(), read_line).await
}

/// The first option of each thing that `question` asks, which is what the agent thought most likely.
pub(crate) fn first_options(question: &Question) -> Option<Vec<Vec<String>>> {
    question.asked().into_iter().map(|asked| Some(vec![asked.options.into_iter().next()?])).collect()
}

async fn ask_each(
    list: &[Asked],
    mut read: impl AsyncFnMut(String) -> Result<String, InputEnded>,
) -> Result<Option<Vec<Vec<String>>>, InputEnded> {
    let mut all = Vec::new();
    for asked in list {
        // A single one stands on the screen already.
        let typed = read(prompt(asked, list.len() > 1)).await?;
        if typed.is_empty() {
            return Ok(None);
        }
        all.push(parse_answer(asked, &typed));
    }
    Ok(Some(all))
}

/// What stands before the place to type: the question, unless it stands there already, and what can be chosen.
fn prompt(asked: &Asked, with_question: bool) -> String {
    let mut lines = Vec::new();
    if with_question {
        let header = asked.header.as_deref().map(|header| format!("{}: ", clean(header))).unwrap_or_default();
        lines.push(format!("{header}{}", clean(&asked.prompt)));
    }
    let numbered = asked.options.iter().enumerate().map(|(place, option)| format!("{} {}", place + 1, clean(option)));
    if asked.descriptions.iter().all(String::is_empty) {
        lines.extend(Some(numbered.collect::<Vec<_>>().join(" · ")).filter(|line| !line.is_empty()));
    } else {
        // With words of their own they need a line each.
        let described = numbered.zip(&asked.descriptions).map(|(option, words)| match clean(words) {
            words if words.is_empty() => option,
            words => format!("{option}: {words}"),
        });
        lines.extend(described);
    }
    lines.push(if asked.several { "answers, with commas between: " } else { "answer: " }.to_owned());
    lines.join(&format!("\n{:>22}", ""))
}

/// What was typed: the number of an option, its name, or words of the person's own.
fn parse_answer(asked: &Asked, typed: &str) -> Vec<String> {
    let option = |word: &str| {
        let numbered = word.parse::<usize>().ok().and_then(|number| asked.options.get(number.checked_sub(1)?));
        numbered.or_else(|| asked.options.iter().find(|option| option.eq_ignore_ascii_case(word))).cloned()
    };
    if asked.several {
        let words = typed.split(',').map(str::trim).filter(|word| !word.is_empty());
        return words.map(|word| option(word).unwrap_or_else(|| word.to_owned())).collect();
    }
    vec![option(typed).unwrap_or_else(|| typed.to_owned())]
}

/// A line the person types, without what stands around it.
async fn read_line(prompt: String) -> Result<String, InputEnded> {
    let read = tokio::task::spawn_blocking(move || {
        anstream::eprint!("{:>22}\x1b[33m{prompt}\x1b[0m", "");
        let mut line = String::new();
        if let Ok(1..) = std::io::stdin().read_line(&mut line) {
            return Ok(line.trim().to_owned());
        }
        anstream::eprintln!();
        Err(InputEnded)
    });
    read.await.unwrap_or(Err(InputEnded))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(options: &[&str], several: bool) -> Asked {
        let options: Vec<String> = options.iter().map(|option| (*option).to_owned()).collect();
        let descriptions = vec![String::new(); options.len()];
        Asked { header: None, prompt: "Which?".to_owned(), options, descriptions, several }
    }

    async fn check(list: &[Asked], typed: &[&str]) -> Result<Option<Vec<Vec<String>>>, InputEnded> {
        let mut lines = typed.iter();
        ask_each(list, async |_| lines.next().map(|line| (*line).to_owned()).ok_or(InputEnded)).await
    }

    #[tokio::test]
    async fn each_question_gets_its_own_answer_as_it_was_typed() {
        let list = [asked(&["Red", "Blue"], false), asked(&["Small", "Large"], false), asked(&[], false)];
        let answers = check(&list, &["2", "large", "As It Is"]).await.unwrap().unwrap();
        assert_eq!(answers, [["Blue"], ["Large"], ["As It Is"]]);
        assert_eq!(check(&list[..1], &["Deep Blue"]).await.unwrap().unwrap(), [["Deep Blue"]]);
        assert_eq!(check(&list[..1], &["3"]).await.unwrap().unwrap(), [["3"]]);
    }

    #[tokio::test]
    async fn one_without_an_answer_leaves_all_of_them_without() {
        let list = [asked(&["Red"], false), asked(&["Small"], false)];
        assert_eq!(check(&list, &["1", ""]).await, Ok(None));
        assert_eq!(check(&list, &["1"]).await, Err(InputEnded));
    }

    #[test]
    fn a_person_sees_all_that_the_agent_says_of_a_question() {
        let mut one = asked(&["Red", "Blue"], true);
        assert_eq!(prompt(&asked(&["Red", "Blue"], false), false).replace(' ', ""), "1Red·2Blue\nanswer:");
        one.header = Some("Colour".to_owned());
        one.descriptions[1] = "like the sea".to_owned();
        let shown = prompt(&one, true);
        let lines: Vec<&str> = shown.lines().map(str::trim).collect();
        assert_eq!(lines, ["Colour: Which?", "1 Red", "2 Blue: like the sea", "answers, with commas between:"]);
    }

    #[test]
    fn several_are_chosen_where_several_may_be() {
        assert_eq!(parse_answer(&asked(&["A", "B", "C"], true), "1, c"), ["A", "C"]);
        assert_eq!(parse_answer(&asked(&["A", "B"], false), "1, b"), ["1, b"]);
    }
}
