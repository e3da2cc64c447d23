//! Two words for people, where an id is for programs.

use base::Digest;

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

/// So many names are tried at once.
pub(super) const AT_ONCE: usize = 8;
/// So many of them are two words alone.
const PLAIN: u32 = 4;
/// No number is as high.
const MOST: u64 = 1_000_000_000;

/// Names to try for the session `id`, in order, so many at a time: two words, and where many sessions have taken theirs,
/// a number after them, which is the longer the more were taken. The same id gives the same names.
pub(super) fn names(id: &str) -> impl Iterator<Item = [String; AT_ONCE]> {
    (0_u32..).step_by(AT_ONCE).map(move |first| {
        let mut attempts = first..;
        std::array::from_fn(|_| name(id, attempts.next().unwrap_or(u32::MAX)))
    })
}

fn name(id: &str, attempt: u32) -> String {
    let digest = Digest::of(format!("{attempt}/{id}").as_bytes()).to_bytes();
    let number = |from: usize| digest[from..from + 4].iter().fold(0, |all, byte| (all << 8) | u64::from(*byte));
    let pick = |from: usize, words: &[&'static str]| {
        let place = usize::try_from(number(from)).unwrap_or(0);
        words[place % words.len()]
    };
    let (manner, animal) = (pick(0, MANNERS), pick(4, ANIMALS));
    match attempt.checked_sub(PLAIN) {
        None => format!("{manner}-{animal}"),
        Some(later) => {
            let most = 10_u64.saturating_pow(later.saturating_add(2)).min(MOST);
            format!("{manner}-{animal}-{}", 2 + number(8) % (most - 2))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_id_gives_the_same_names_and_they_never_run_out() {
        let first: Vec<_> = names("s1").take(3).flatten().collect();
        assert_eq!(first, names("s1").take(3).flatten().collect::<Vec<_>>());
        assert_eq!(first[3].split('-').count(), 2);
        assert_eq!(first[4].split('-').count(), 3);
        assert_eq!(first.iter().collect::<std::collections::HashSet<_>>().len(), first.len());
        assert_ne!(first[0], names("s2").next().unwrap()[0]);
    }
}
