//! Limits of one grammar, all of its parts together. Compiling cannot be interrupted, so its cost
//! is counted first: with all of these used up it takes about two seconds and half a GiB.

use crate::constraint_failure::{Failure, Kind};

/// Bytes of one regular expression.
const REGEX_BYTES_MAX: u64 = 64 << 10;

/// Parts and steps that are counted.
#[derive(Clone, Copy)]
pub enum Cost {
    RegexBytes,
    Tables,
    Lexemes,
    Rules,
    Names,
    Ignored,
    Places,
    Copies,
    Pairs,
    NameSteps,
}

impl Cost {
    /// The most that one grammar may have, and its name.
    fn allowance(self) -> (u64, &'static str) {
        match self {
            // Parsed, a byte takes some hundred.
            Cost::RegexBytes => (256 << 10, "bytes of regular expressions"),
            // A class stands for tables of up to 6 KiB.
            Cost::Tables => (1000, "classes of Unicode in regular expressions"),
            // Each is compared with all before it.
            Cost::Lexemes => (16_384, "literals, expressions and names of properties"),
            // Rules that can be empty are found by walks over all that rules name, one a level.
            Cost::Rules => (6000, "rules and terminals"),
            Cost::Names => (50_000, "names in rules"),
            // llguidance numbers what each grammar ignores with a byte.
            Cost::Ignored => (100, "%ignore"),
            Cost::Places => (50_000, "subschemas"),
            // Values that are copied where parts of a schema hold together, strings by pieces of 64
            // bytes. One takes some 200 bytes and 100 ns.
            Cost::Copies => (
                2_000_000,
                "copies of subschemas where allOf, anyOf, oneOf, enum and $ref combine",
            ),
            // Alternatives that have to exclude each other.
            Cost::Pairs => (4_000_000, "pairs of alternatives of oneOf"),
            // Bytes of names times characters of patterns.
            Cost::NameSteps => {
                (20_000_000, "steps to match names of properties with patternProperties")
            }
        }
    }
}

pub fn too_much(message: impl Into<String>) -> Failure {
    Failure::new(Kind::Limit, message)
}

#[derive(Default)]
pub struct Costs {
    spent: [u64; Cost::NameSteps as usize + 1],
}

impl Costs {
    pub fn spend(&mut self, cost: Cost, more: u64) -> Result<(), Failure> {
        let spent = &mut self.spent[cost as usize];
        *spent = spent.saturating_add(more);
        let (most, what) = cost.allowance();
        if *spent <= most {
            return Ok(());
        }
        Err(too_much(format!("more than {most} {what}")))
    }

    /// Letters of both cases are found in tables too.
    pub fn regex(&mut self, text: &str) -> Result<(), Failure> {
        let bytes = text.len() as u64;
        if bytes > REGEX_BYTES_MAX {
            let message =
                format!("a regular expression of {bytes} bytes, at most {REGEX_BYTES_MAX}");
            return Err(too_much(message));
        }
        self.spend(Cost::RegexBytes, bytes)?;
        let times = if ignores_case(text) { CASE_TIMES } else { 1 };
        self.spend(Cost::Tables, tables(text) * times)
    }
}

/// How much longer a table takes where letters of both cases are the same.
const CASE_TIMES: u64 = 8;

/// Whether an expression sets the flag i anywhere.
fn ignores_case(text: &str) -> bool {
    text.split("(?")
        .skip(1)
        .any(|rest| rest.chars().take_while(char::is_ascii_lowercase).any(|flag| flag == 'i'))
}

fn tables(text: &str) -> u64 {
    let mut found = 0;
    let mut is_escaped = false;
    for c in text.chars() {
        if is_escaped && "pPwWdDsSbB".contains(c) {
            found += 1;
        }
        is_escaped = c == '\\' && !is_escaped;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regular_expressions_add_up() {
        assert!(Costs::default().regex(&"a".repeat((64 << 10) + 1)).is_err());
        assert!(Costs::default().regex(&r"\pL".repeat(1001)).is_err());
        assert!(Costs::default().regex(&r"\\pL".repeat(2001)).is_ok());
        assert!(Costs::default().regex(&format!("(?si:{})", r"\pL".repeat(126))).is_err());
        let mut costs = Costs::default();
        let taken = (0..6).filter(|_| costs.regex(&"a".repeat(60_000)).is_ok()).count();
        assert_eq!(taken, 4);
    }
}
