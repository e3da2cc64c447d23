//! An assembler for the kernel's system call filter, a BPF program that is made from rules.
//!
//! The kernel runs every installed filter at each call and compiles each at every start of a sandbox. So there is one
//! program, which finds a call's rules by bisection: the ranges of call numbers cover all numbers, so a leaf needs no
//! test of its bounds. The kernel caches the result of calls that are always allowed.

use std::collections::BTreeMap;

/// The action of a filter for a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FilterAction {
    /// The kernel carries the call out.
    Allow,
    /// The call fails with this error number. With zero, it returns success without being carried out.
    Errno(i32),
    /// The calling process is killed.
    Kill,
}

impl FilterAction {
    fn code(self) -> u32 {
        match self {
            Self::Allow => 0x7fff_0000,
            Self::Errno(number) => 0x0005_0000 | (number.cast_unsigned() & 0xffff),
            Self::Kill => 0x8000_0000,
        }
    }
}

/// Half of a 64-bit argument: BPF works with 32 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ArgumentHalf {
    /// The lower 32 bits.
    Low,
    /// The upper 32 bits.
    High,
}

/// A condition on an argument: `argument & mask` equals `value`, or does not if `negated`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ArgumentCondition {
    pub(crate) argument: u8,
    pub(crate) half: ArgumentHalf,
    pub(crate) mask: u32,
    pub(crate) value: u32,
    pub(crate) negated: bool,
}

impl ArgumentCondition {
    /// Holds when the argument is `value`.
    pub(crate) fn is(argument: u8, value: u32) -> Self {
        Self { argument, half: ArgumentHalf::Low, mask: u32::MAX, value, negated: false }
    }

    /// Holds when the argument is not `value`.
    pub(crate) fn is_not(argument: u8, value: u32) -> Self {
        Self { negated: true, ..Self::is(argument, value) }
    }

    /// Holds when the argument has every bit of `bits`.
    pub(crate) fn has(argument: u8, bits: u32) -> Self {
        Self { mask: bits, ..Self::is(argument, bits) }
    }

    /// Holds when the argument has any bit of `bits`.
    pub(crate) fn has_any(argument: u8, bits: u32) -> Self {
        Self { mask: bits, ..Self::is_not(argument, 0) }
    }

    /// Holds when the upper half of the argument is not `value`.
    pub(crate) fn high_is_not(argument: u8, value: u32) -> Self {
        Self { half: ArgumentHalf::High, ..Self::is_not(argument, value) }
    }
}

/// The action for a call when every condition holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SyscallRule {
    pub(crate) conditions: Vec<ArgumentCondition>,
    pub(crate) action: FilterAction,
}

/// Rules by system call number.
#[derive(Debug)]
pub(crate) struct SyscallRules {
    /// The listed calls. The first rule that holds decides; without one the call is allowed.
    listed: BTreeMap<u32, Vec<SyscallRule>>,
    /// The rules of all other calls: none, or one without conditions.
    unlisted: Vec<SyscallRule>,
}

impl SyscallRules {
    /// Returns rules without any listed call. A call that is not listed gets `unlisted`.
    pub(crate) fn new(unlisted: FilterAction) -> Self {
        let rule = SyscallRule { conditions: Vec::new(), action: unlisted };
        let unlisted = if unlisted == FilterAction::Allow { Vec::new() } else { vec![rule] };
        Self { listed: BTreeMap::new(), unlisted }
    }

    /// Lists a call, and returns its rules.
    pub(crate) fn list(&mut self, number: u32) -> &mut Vec<SyscallRule> {
        self.listed.entry(number).or_default()
    }
}

/// One instruction in the layout of the kernel's `struct sock_filter`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BpfInstruction {
    code: u16,
    if_true: u8,
    if_false: u8,
    k: u32,
}

impl BpfInstruction {
    /// Returns the instruction as it lies in memory.
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

/// Offsets in `struct seccomp_data`. Each argument has eight bytes.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const ARGUMENTS: u32 = 16;

/// System calls of the x32 table have this bit. They have the architecture of x86-64 but numbers that no rule covers.
const X32: u32 = 0x4000_0000;

/// Returns a program that applies `rules` to calls of `architecture`. A call of another architecture kills the caller, and
/// a call of another table gets `other_table`: their numbers would bypass every rule.
pub(crate) fn assemble(architecture: u32, rules: &SyscallRules, other_table: FilterAction) -> Vec<BpfInstruction> {
    let mut program = vec![
        load(ARCHITECTURE),
        branch(JUMP_EQUAL, architecture, 1, 0),
        return_action(FilterAction::Kill),
        load(NUMBER),
        branch(JUMP_GREATER_EQUAL, X32, 0, 1),
        return_action(other_table),
    ];
    program.extend(bisect(&call_ranges(rules)));
    program
}

/// A range of neighbouring call numbers with the same rules, which share one part of the program. It ends where the next
/// one begins.
struct CallRange<'r> {
    first: u32,
    rules: &'r [SyscallRule],
}

/// Returns ranges that cover all call numbers.
fn call_ranges(rules: &SyscallRules) -> Vec<CallRange<'_>> {
    let mut ranges: Vec<CallRange<'_>> = Vec::new();
    let mut extend = |first: u32, rules| match ranges.last() {
        Some(range) if range.rules == rules => {}
        _ => ranges.push(CallRange { first, rules }),
    };
    let mut next = 0;
    for (number, of_call) in &rules.listed {
        if *number > next {
            extend(next, rules.unlisted.as_slice());
        }
        extend(*number, of_call.as_slice());
        next = number + 1;
    }
    extend(next, rules.unlisted.as_slice());
    ranges
}

/// Bisects by call number down to one range. The number is in the accumulator.
fn bisect(ranges: &[CallRange<'_>]) -> Vec<BpfInstruction> {
    match ranges {
        [] => vec![return_action(FilterAction::Allow)],
        [range] => {
            let mut code: Vec<BpfInstruction> = range.rules.iter().flat_map(apply_rule).collect();
            if range.rules.last().is_none_or(|rule| !rule.conditions.is_empty()) {
                code.push(return_action(FilterAction::Allow));
            }
            code
        }
        _ => {
            let (lower, upper) = ranges.split_at(ranges.len() / 2);
            let (below, above) = (bisect(lower), bisect(upper));
            let mut code = match u8::try_from(below.len()) {
                Ok(over) => vec![branch(JUMP_GREATER_EQUAL, upper[0].first, over, 0)],
                // The distance is more than a branch can jump.
                Err(_) => vec![branch(JUMP_GREATER_EQUAL, upper[0].first, 0, 1), jump(below.len())],
            };
            code.extend(below);
            code.extend(above);
            code
        }
    }
}

/// Returns the rule's action when every condition holds; otherwise the code after it runs.
fn apply_rule(rule: &SyscallRule) -> Vec<BpfInstruction> {
    let mut code = vec![return_action(rule.action)];
    // From the last condition to the first, so that the distance to the end of the rule is known.
    for condition in rule.conditions.iter().rev() {
        // A rule has few conditions, so its length is far below the limit of a branch.
        let to_end = u8::try_from(code.len()).unwrap_or(u8::MAX);
        let (if_true, if_false) = if condition.negated { (to_end, 0) } else { (0, to_end) };
        let mut test = vec![load(offset(condition))];
        if condition.mask != u32::MAX {
            test.push(BpfInstruction { code: AND, if_true: 0, if_false: 0, k: condition.mask });
        }
        test.push(branch(JUMP_EQUAL, condition.value, if_true, if_false));
        test.extend(code);
        code = test;
    }
    code
}

fn offset(condition: &ArgumentCondition) -> u32 {
    let high_first = u32::from(cfg!(target_endian = "big"));
    let half = u32::from(condition.half == ArgumentHalf::High) ^ high_first;
    ARGUMENTS + 8 * u32::from(condition.argument) + 4 * half
}

fn load(offset: u32) -> BpfInstruction {
    BpfInstruction { code: LOAD, if_true: 0, if_false: 0, k: offset }
}

fn branch(code: u16, k: u32, if_true: u8, if_false: u8) -> BpfInstruction {
    BpfInstruction { code, if_true, if_false, k }
}

fn jump(over: usize) -> BpfInstruction {
    BpfInstruction { code: JUMP, if_true: 0, if_false: 0, k: u32::try_from(over).unwrap_or(u32::MAX) }
}

fn return_action(action: FilterAction) -> BpfInstruction {
    BpfInstruction { code: RETURN, if_true: 0, if_false: 0, k: action.code() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const X86_64: u32 = 0xC000_003E;

    fn half(argument: u64, half: ArgumentHalf) -> u32 {
        let bytes = argument.to_le_bytes();
        let (low, high) = bytes.split_at(4);
        u32::from_le_bytes(if half == ArgumentHalf::Low { low } else { high }.try_into().unwrap())
    }

    /// Runs a program for one call, as the kernel does.
    fn run(program: &[BpfInstruction], architecture: u32, number: u32, arguments: [u64; 6]) -> u32 {
        let (mut at, mut accumulator) = (0, 0);
        loop {
            let BpfInstruction { code, if_true, if_false, k } = program[at];
            at += 1;
            match code {
                LOAD => {
                    accumulator = match k {
                        NUMBER => number,
                        ARCHITECTURE => architecture,
                        _ => {
                            let argument = arguments[((k - ARGUMENTS) / 8) as usize];
                            half(argument, if k % 8 == 0 { ArgumentHalf::Low } else { ArgumentHalf::High })
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

    /// Returns the expected result by checking the rules one by one.
    fn expected(rules: &SyscallRules, number: u32, arguments: [u64; 6]) -> u32 {
        let holds = |condition: &ArgumentCondition| {
            let seen = half(arguments[usize::from(condition.argument)], condition.half);
            ((seen & condition.mask) == condition.value) != condition.negated
        };
        let of_call = rules.listed.get(&number).unwrap_or(&rules.unlisted);
        let rule = of_call.iter().find(|rule| rule.conditions.iter().all(holds));
        rule.map_or(FilterAction::Allow, |rule| rule.action).code()
    }

    #[test]
    fn program_returns_what_the_rules_say() {
        let rules = crate::seccomp::rules();
        let program = assemble(X86_64, &rules, FilterAction::Errno(38));
        assert!(program.len() < 768, "{} instructions", program.len());
        let values = [
            0,
            1,
            2,
            4,
            7,
            10,
            16,
            38,
            40,
            0o4755,
            0o2755,
            0o644,
            0o100,
            0x5412,
            0x541C,
            0x5423,
            0x1000_0000,
            u64::MAX,
        ];
        for number in 0..600 {
            for first in values {
                for second in values {
                    for third in [0, 0o4755, 0o2000, 1 << 40, 9] {
                        let arguments = [first, second, third, second, 0, 0];
                        let result = run(&program, X86_64, number, arguments);
                        assert_eq!(result, expected(&rules, number, arguments), "call {number} {arguments:x?}");
                    }
                }
            }
        }
    }

    #[test]
    fn calls_of_other_architectures_and_tables_are_refused() {
        let program = assemble(X86_64, &crate::seccomp::rules(), FilterAction::Errno(38));
        for number in [0, 59, 165, 0x4000_0000] {
            assert_eq!(run(&program, 0x4000_0003, number, [0; 6]), FilterAction::Kill.code());
        }
        for number in [X32, X32 + 101, u32::MAX] {
            assert_eq!(run(&program, X86_64, number, [0; 6]), FilterAction::Errno(38).code());
        }
    }
}
