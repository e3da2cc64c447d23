//! Two words for people, where an id is for programs.

use crate::Digest;

const MANNERS: &[&str] = &[
    "able", "airy", "amber", "apt", "azure", "bold", "brave", "brisk", "bright", "calm", "candid", "civil", "clear",
    "clever", "coral", "cosy", "crisp", "curious", "dapper", "daring", "deft", "eager", "early", "easy", "fair",
    "fleet", "fond", "frank", "fresh", "gentle", "glad", "golden", "grand", "hardy", "honest", "humble", "jolly",
    "keen", "kind", "late", "lively", "lucid", "lucky", "mellow", "merry", "mild", "modest", "neat", "nimble", "noble",
    "patient", "plain", "proud", "quick", "quiet", "ready", "rustic", "sage", "silent", "silver", "sober", "solid",
    "spry", "steady", "still", "sunny", "swift", "tidy", "trim", "true", "vivid", "warm", "wise", "witty", "young",
    "zesty",
];

const ANIMALS: &[&str] = &[
    "adder", "badger", "bat", "bear", "beaver", "bee", "bison", "boar", "cat", "cicada", "cod", "crane", "cricket",
    "crow", "deer", "dingo", "dove", "duck", "eagle", "eel", "egret", "elk", "falcon", "ferret", "finch", "fox",
    "frog", "gecko", "goat", "goose", "gull", "hare", "hawk", "heron", "hornet", "horse", "ibex", "ibis", "jay",
    "kite", "koala", "lark", "lemur", "linnet", "lizard", "llama", "lynx", "magpie", "mole", "moose", "moth", "mouse",
    "newt", "otter", "owl", "ox", "panda", "perch", "pike", "plover", "pony", "puffin", "quail", "rabbit", "raven",
    "robin", "salmon", "seal", "shrew", "skink", "snail", "sparrow", "stork", "swan", "tapir", "tern", "thrush",
    "toad", "trout", "turtle", "viper", "vole", "walrus", "wasp", "weasel", "wolf", "wren", "yak",
];

/// Names to try for the session `id`, in order: two words, and where many sessions have taken theirs, a number
/// after them. The same id gives the same names.
pub(super) fn names(id: &str) -> impl Iterator<Item = String> {
    (0_u64..).map(move |attempt| {
        let digest = Digest::of(format!("{attempt}/{id}").as_bytes()).to_string();
        let pick = |from: usize, words: &[&'static str]| {
            let number = usize::from_str_radix(&digest[from..from + 8], 16).unwrap_or(0);
            words[number % words.len()]
        };
        let (manner, animal) = (pick(0, MANNERS), pick(8, ANIMALS));
        match attempt {
            0..8 => format!("{manner}-{animal}"),
            _ => format!("{manner}-{animal}-{attempt}"),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_id_gives_the_same_names_and_they_never_run_out() {
        let first: Vec<_> = names("s1").take(12).collect();
        assert_eq!(first, names("s1").take(12).collect::<Vec<_>>());
        assert_eq!(first[0].split('-').count(), 2);
        assert_eq!(first[11].split('-').count(), 3);
        assert_ne!(first[0], names("s2").next().unwrap());
    }
}
