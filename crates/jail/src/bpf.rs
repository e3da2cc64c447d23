//! One program for the kernel's system call filter, made from rules that each have their own answer.
//!
//! The kernel runs every installed filter at each call and compiles each at every start of a sandbox, so
//! there is one, and it finds a call's rules by bisection. What holds whatever the arguments are, the kernel
//! works out once and then answers without running it.

use std::collections::BTreeMap;

/// What becomes of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The kernel does it.
    Allow,
    /// The caller is told this error number; with zero, that it is done.
    Errno(i32),
    /// The caller's process ends.
    Kill,
}

impl Verdict {
    fn code(self) -> u32 {
        match self {
            Self::Allow => 0x7fff_0000,
            Self::Errno(number) => 0x0005_0000 | (number.cast_unsigned() & 0xffff),
            Self::Kill => 0x8000_0000,
        }
    }
}

/// Half of an argument: the filter's machine has 32 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Half {
    /// The lower 32 bits.
    Low,
    /// The upper ones.
    High,
}

/// Something a rule asks of an argument: whether `argument & mask` is (or is not) `value`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Condition {
    pub(crate) argument: u8,
    pub(crate) half: Half,
    pub(crate) mask: u32,
    pub(crate) value: u32,
    pub(crate) negated: bool,
}

impl Condition {
    /// The argument is `value`.
    pub(crate) fn is(argument: u8, value: u32) -> Self {
        Self { argument, half: Half::Low, mask: u32::MAX, value, negated: false }
    }

    /// The argument is anything but `value`.
    pub(crate) fn is_not(argument: u8, value: u32) -> Self {
        Self { negated: true, ..Self::is(argument, value) }
    }

    /// The argument has every bit of `bits`.
    pub(crate) fn has(argument: u8, bits: u32) -> Self {
        Self { mask: bits, ..Self::is(argument, bits) }
    }

    /// The upper half of the argument is anything but `value`.
    pub(crate) fn high_is_not(argument: u8, value: u32) -> Self {
        Self { half: Half::High, ..Self::is_not(argument, value) }
    }
}

/// What becomes of a call when every condition holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rule {
    pub(crate) conditions: Vec<Condition>,
    pub(crate) verdict: Verdict,
}

/// Rules by the number of the call; the first that holds counts, and without one the call is allowed.
pub(crate) type Rules = BTreeMap<u32, Vec<Rule>>;

/// One instruction as the kernel takes it: `struct sock_filter`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Instruction {
    code: u16,
    if_true: u8,
    if_false: u8,
    k: u32,
}

impl Instruction {
    /// As it lies in memory.
    pub(crate) fn bytes(self) -> impl Iterator<Item = u8> {
        self.code.to_ne_bytes().into_iter().chain([self.if_true, self.if_false]).chain(self.k.to_ne_bytes())
    }
}

const LOAD: u16 = 0x20;
const AND: u16 = 0x54;
const JUMP: u16 = 0x05;
const JUMP_EQUAL: u16 = 0x15;
const JUMP_GREATER_EQUAL: u16 = 0x35;
const RETURN: u16 = 0x06;

/// Where the fields of `struct seccomp_data` lie; arguments are eight bytes each.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const ARGUMENTS: u32 = 16;

/// Calls of the x32 table have this bit: the architecture's name, and numbers that no rule knows.
const X32: u32 = 0x4000_0000;

/// A program that answers calls of `architecture` by `rules`. Another architecture's calls end the caller,
/// and another table's do not exist: their numbers would walk around every rule.
pub(crate) fn assemble(architecture: u32, rules: &Rules, other_table: Verdict) -> Vec<Instruction> {
    let mut program = vec![
        load(ARCHITECTURE),
        branch(JUMP_EQUAL, architecture, 1, 0),
        answer(Verdict::Kill),
        load(NUMBER),
        branch(JUMP_GREATER_EQUAL, X32, 0, 1),
        answer(other_table),
    ];
    program.extend(find(&runs(rules)));
    program
}

/// Calls with neighbouring numbers and the same rules: one place in the program does for all of them.
struct Run<'r> {
    first: u32,
    last: u32,
    rules: &'r [Rule],
}

fn runs(rules: &Rules) -> Vec<Run<'_>> {
    let mut runs: Vec<Run<'_>> = Vec::new();
    for (number, rules) in rules {
        match runs.last_mut() {
            Some(run) if run.last + 1 == *number && run.rules == rules.as_slice() => run.last = *number,
            _ => runs.push(Run { first: *number, last: *number, rules }),
        }
    }
    runs
}

/// Bisects by number down to one run. The number is in the accumulator.
fn find(runs: &[Run<'_>]) -> Vec<Instruction> {
    match runs {
        [] => vec![answer(Verdict::Allow)],
        [run] => {
            let mut code = if run.first == run.last {
                vec![branch(JUMP_EQUAL, run.first, 1, 0)]
            } else {
                vec![branch(JUMP_GREATER_EQUAL, run.first, 0, 1), branch(JUMP_GREATER_EQUAL, run.last + 1, 0, 1)]
            };
            code.push(answer(Verdict::Allow));
            code.extend(run.rules.iter().flat_map(ask));
            if run.rules.last().is_none_or(|rule| !rule.conditions.is_empty()) {
                code.push(answer(Verdict::Allow));
            }
            code
        }
        _ => {
            let (lower, upper) = runs.split_at(runs.len() / 2);
            let (below, above) = (find(lower), find(upper));
            let mut code = match u8::try_from(below.len()) {
                Ok(over) => vec![branch(JUMP_GREATER_EQUAL, upper[0].first, over, 0)],
                // Further than a branch can jump.
                Err(_) => vec![branch(JUMP_GREATER_EQUAL, upper[0].first, 0, 1), jump(below.len())],
            };
            code.extend(below);
            code.extend(above);
            code
        }
    }
}

/// Answers when every condition holds, else runs on behind.
fn ask(rule: &Rule) -> Vec<Instruction> {
    let mut code = vec![answer(rule.verdict)];
    // From the last condition to the first, so that the way past the rule is known.
    for condition in rule.conditions.iter().rev() {
        // A rule has a handful of conditions: its length is far below what a branch can jump over.
        let past = u8::try_from(code.len()).unwrap_or(u8::MAX);
        let (if_true, if_false) = if condition.negated { (past, 0) } else { (0, past) };
        let mut asked = vec![load(offset(condition))];
        if condition.mask != u32::MAX {
            asked.push(Instruction { code: AND, if_true: 0, if_false: 0, k: condition.mask });
        }
        asked.push(branch(JUMP_EQUAL, condition.value, if_true, if_false));
        asked.extend(code);
        code = asked;
    }
    code
}

fn offset(condition: &Condition) -> u32 {
    let high_first = u32::from(cfg!(target_endian = "big"));
    let half = u32::from(condition.half == Half::High) ^ high_first;
    ARGUMENTS + 8 * u32::from(condition.argument) + 4 * half
}

fn load(offset: u32) -> Instruction {
    Instruction { code: LOAD, if_true: 0, if_false: 0, k: offset }
}

fn branch(code: u16, k: u32, if_true: u8, if_false: u8) -> Instruction {
    Instruction { code, if_true, if_false, k }
}

fn jump(over: usize) -> Instruction {
    Instruction { code: JUMP, if_true: 0, if_false: 0, k: u32::try_from(over).unwrap_or(u32::MAX) }
}

fn answer(verdict: Verdict) -> Instruction {
    Instruction { code: RETURN, if_true: 0, if_false: 0, k: verdict.code() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: u32 = 0xC000_003E;

    fn half(argument: u64, half: Half) -> u32 {
        let bytes = argument.to_le_bytes();
        let (low, high) = bytes.split_at(4);
        u32::from_le_bytes(if half == Half::Low { low } else { high }.try_into().unwrap())
    }

    /// What the kernel does with a program, for one call.
    fn run(program: &[Instruction], architecture: u32, number: u32, arguments: [u64; 6]) -> u32 {
        let (mut at, mut accumulator) = (0, 0);
        loop {
            let Instruction { code, if_true, if_false, k } = program[at];
            at += 1;
            match code {
                LOAD => {
                    accumulator = match k {
                        NUMBER => number,
                        ARCHITECTURE => architecture,
                        _ => {
                            let argument = arguments[((k - ARGUMENTS) / 8) as usize];
                            half(argument, if k % 8 == 0 { Half::Low } else { Half::High })
                        }
                    }
                }
                AND => accumulator &= k,
                JUMP => at += k as usize,
                JUMP_EQUAL => at += usize::from(if accumulator == k { if_true } else { if_false }),
                JUMP_GREATER_EQUAL => at += usize::from(if accumulator >= k { if_true } else { if_false }),
                RETURN => return k,
                other => unreachable!("instruction {other:#x}"),
            }
        }
    }

    /// The rules read one by one.
    fn expected(rules: &Rules, number: u32, arguments: [u64; 6]) -> u32 {
        let holds = |condition: &Condition| {
            let seen = half(arguments[usize::from(condition.argument)], condition.half);
            ((seen & condition.mask) == condition.value) != condition.negated
        };
        let rule = rules.get(&number).and_then(|rules| rules.iter().find(|rule| rule.conditions.iter().all(holds)));
        rule.map_or(Verdict::Allow, |rule| rule.verdict).code()
    }

    #[test]
    fn the_program_answers_as_the_rules_do() {
        let rules = crate::seccomp::rules();
        let program = assemble(HERE, &rules, Verdict::Errno(38));
        assert!(program.len() < 4096, "{} instructions", program.len());
        let values = [0, 1, 2, 4, 7, 10, 16, 38, 0o4755, 0o2755, 0o644, 0o100, 0x5412, 0x541C, 0x1000_0000, u64::MAX];
        for number in 0..600 {
            for first in values {
                for second in values {
                    for third in [0, 0o4755, 0o2000, 1 << 40, 9] {
                        let arguments = [first, second, third, second, 0, 0];
                        let told = run(&program, HERE, number, arguments);
                        assert_eq!(told, expected(&rules, number, arguments), "call {number} {arguments:x?}");
                    }
                }
            }
        }
    }

    #[test]
    fn other_tables_find_no_way_around() {
        let program = assemble(HERE, &crate::seccomp::rules(), Verdict::Errno(38));
        for number in [0, 59, 165, 0x4000_0000] {
            assert_eq!(run(&program, 0x4000_0003, number, [0; 6]), Verdict::Kill.code());
        }
        for number in [X32, X32 + 101, u32::MAX] {
            assert_eq!(run(&program, HERE, number, [0; 6]), Verdict::Errno(38).code());
        }
    }
}
