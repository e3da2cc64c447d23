//! What the person at the terminal is asked, and what they answer.
//!
//! A word that chooses (yes, no, apply) is read in any case; an answer to a question is what was typed, letter by letter.

use protocol::{Asked, PermissionReply, Question};

use crate::timeline::clean;

/// Asks which of a few words is meant: one of them in small letters, or nothing when nobody answers.
pub(crate) async fn choice(question: &'static str) -> String {
    line(question.to_owned()).await.to_lowercase()
}

/// Asks whether something is allowed; no is the answer to everything that is not yes.
pub(crate) async fn permission() -> PermissionReply {
    match choice("allow? [y]es once · [a]lways · [n]o: ").await.as_str() {
        "y" | "yes" => PermissionReply::Once,
        "a" | "always" => PermissionReply::Always,
        _ => PermissionReply::Reject,
    }
}

/// Asks each thing that `question` asks; nothing when one of them is not answered.
pub(crate) async fn answers(question: &Question) -> Option<Vec<Vec<String>>> {
    of_each(&question.asked(), line).await
}

/// The first option of each thing that `question` asks, which is what the agent thought most likely.
pub(crate) fn first_options(question: &Question) -> Option<Vec<Vec<String>>> {
    question.asked().into_iter().map(|asked| Some(vec![asked.options.into_iter().next()?])).collect()
}

async fn of_each(list: &[Asked], mut read: impl AsyncFnMut(String) -> String) -> Option<Vec<Vec<String>>> {
    let mut all = Vec::new();
    for asked in list {
        let mut prompt = String::new();
        // A single one stands on the screen already.
        if list.len() > 1 {
            prompt = format!("{}\n{:>22}", clean(&asked.prompt), "");
        }
        let numbered =
            asked.options.iter().enumerate().map(|(place, option)| format!("{} {}", place + 1, clean(option)));
        let numbered = numbered.collect::<Vec<_>>().join(" · ");
        if !numbered.is_empty() {
            prompt = format!("{prompt}{numbered}\n{:>22}", "");
        }
        let typed = read(format!("{prompt}answer: ")).await;
        if typed.is_empty() {
            return None;
        }
        all.push(meant(asked, &typed));
    }
    Some(all)
}

/// What was typed: the number of an option, its name, or words of the person's own.
fn meant(asked: &Asked, typed: &str) -> Vec<String> {
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

/// A line the person types, without what stands around it; nothing when there is none.
async fn line(prompt: String) -> String {
    let read = tokio::task::spawn_blocking(move || {
        anstream::eprint!("{:>22}\x1b[33m{prompt}\x1b[0m", "");
        let mut line = String::new();
        let _ = std::io::stdin().read_line(&mut line);
        line.trim().to_owned()
    });
    read.await.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(options: &[&str], several: bool) -> Asked {
        let options = options.iter().map(|option| (*option).to_owned()).collect();
        Asked { prompt: "Which?".to_owned(), options, several }
    }

    async fn check(list: &[Asked], typed: &[&str]) -> Option<Vec<Vec<String>>> {
        let mut lines = typed.iter();
        of_each(list, async |_| lines.next().map(|line| (*line).to_owned()).unwrap_or_default()).await
    }

    #[tokio::test]
    async fn each_question_gets_its_own_answer_as_it_was_typed() {
        let list = [asked(&["Red", "Blue"], false), asked(&["Small", "Large"], false), asked(&[], false)];
        let answers = check(&list, &["2", "large", "As It Is"]).await.unwrap();
        assert_eq!(answers, [["Blue"], ["Large"], ["As It Is"]]);
        assert_eq!(check(&list[..1], &["Deep Blue"]).await.unwrap(), [["Deep Blue"]]);
        assert_eq!(check(&list[..1], &["3"]).await.unwrap(), [["3"]]);
    }

    #[tokio::test]
    async fn one_without_an_answer_leaves_all_of_them_without() {
        let list = [asked(&["Red"], false), asked(&["Small"], false)];
        assert_eq!(check(&list, &["1"]).await, None);
    }

    #[test]
    fn several_are_chosen_where_several_may_be() {
        assert_eq!(meant(&asked(&["A", "B", "C"], true), "1, c"), ["A", "C"]);
        assert_eq!(meant(&asked(&["A", "B"], false), "1, b"), ["1, b"]);
    }
}
