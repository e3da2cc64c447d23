//! Session names for people, made of an adjective and an animal.

use base::Digest;

const ADJECTIVES: &[&str] = &[
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

/// Number of names that one query tries.
pub(super) const NAMES_PER_QUERY: usize = 8;
/// Number of names without a numeric suffix.
const NAMES_WITHOUT_SUFFIX: u32 = 4;
/// Suffixes are below this number.
const MAX_SUFFIX: u64 = 1_000_000_000;

/// Returns batches of names to try for the session `id`, in order. The first names are two words; later names have a
/// number, which gets longer. The same id always gives the same names.
pub(super) fn names(id: &str) -> impl Iterator<Item = [String; NAMES_PER_QUERY]> {
    (0_u32..).step_by(NAMES_PER_QUERY).map(move |first| {
        let mut attempts = first..;
        std::array::from_fn(|_| name(id, attempts.next().unwrap_or(u32::MAX)))
    })
}

fn name(id: &str, attempt: u32) -> String {
    let digest = Digest::of(format!("{attempt}/{id}").as_bytes()).to_bytes();
    let number = |from: usize| digest[from..from + 4].iter().fold(0, |all, byte| (all << 8) | u64::from(*byte));
    let pick = |from: usize, words: &[&'static str]| {
        let index = usize::try_from(number(from)).unwrap_or(0);
        words[index % words.len()]
    };
    let (adjective, animal) = (pick(0, ADJECTIVES), pick(4, ANIMALS));
    match attempt.checked_sub(NAMES_WITHOUT_SUFFIX) {
        None => format!("{adjective}-{animal}"),
        Some(later) => {
            let limit = 10_u64.saturating_pow(later.saturating_add(2)).min(MAX_SUFFIX);
            format!("{adjective}-{animal}-{}", 2 + number(8) % (limit - 2))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_id_gives_same_names_and_names_never_run_out() {
        let first: Vec<_> = names("s1").take(3).flatten().collect();
        assert_eq!(first, names("s1").take(3).flatten().collect::<Vec<_>>());
        assert_eq!(first[3].split('-').count(), 2);
        assert_eq!(first[4].split('-').count(), 3);
        assert_eq!(first.iter().collect::<std::collections::HashSet<_>>().len(), first.len());
        assert_ne!(first[0], names("s2").next().unwrap()[0]);
    }
}
