//! Limits of one grammar, all of its parts together. Compiling cannot be interrupted, so its cost
//! is counted first: with all of these used up it takes about two seconds and half a GiB.

use crate::constraint_failure::{Failure, Kind};

/// Bytes of one regular expression, and of all. Parsed, a byte takes some hundred.
const REGEX_BYTES_MAX: u64 = 64 << 10;
/// Classes that stand for tables of Unicode, of up to 6 KiB each.
const TABLES: Allowance = Allowance::of(1000, "classes of Unicode in regular expressions");
const ALL_REGEX_BYTES: Allowance = Allowance::of(256 << 10, "bytes of regular expressions");
/// Each is compared with all before it.
const LEXEMES: Allowance = Allowance::of(16_384, "literals, expressions and names of properties");
/// Rules that can be empty are found by walks over all that rules name, one for each level.
const RULES: Allowance = Allowance::of(6000, "rules and terminals");
const NAMES: Allowance = Allowance::of(50_000, "names in rules");
/// llguidance numbers what each grammar ignores with a byte.
const IGNORED: Allowance = Allowance::of(100, "%ignore");
const PLACES: Allowance = Allowance::of(50_000, "subschemas");
/// Values that are copied where parts of a schema hold together, strings by pieces of 64 bytes. One
/// takes some 200 bytes and 100 ns.
const COPIES: Allowance = Allowance::of(
    2_000_000,
    "copies of subschemas where allOf, anyOf, oneOf, enum and $ref combine",
);
/// Alternatives that have to exclude each other.
const PAIRS: Allowance = Allowance::of(4_000_000, "pairs of alternatives of oneOf");
/// Bytes of names times characters of patterns.
const NAME_STEPS: Allowance =
    Allowance::of(20_000_000, "steps to match names of properties with patternProperties");

#[derive(Clone, Copy)]
struct Allowance {
    most: u64,
    what: &'static str,
}

impl Allowance {
    const fn of(most: u64, what: &'static str) -> Allowance {
        Allowance { most, what }
    }

    fn spend(self, spent: &mut u64, more: u64) -> Result<(), Failure> {
        *spent = spent.saturating_add(more);
        if *spent <= self.most {
            return Ok(());
        }
        Err(too_much(format!("more than {} {}", self.most, self.what)))
    }
}

pub fn too_much(message: impl Into<String>) -> Failure {
    Failure::new(Kind::Limit, message)
}

#[derive(Default)]
pub struct Costs {
    regex_bytes: u64,
    tables: u64,
    lexemes: u64,
    rules: u64,
    names: u64,
    ignored: u64,
    places: u64,
    copies: u64,
    pairs: u64,
    name_steps: u64,
}

impl Costs {
    /// Letters of both cases are found in tables too.
    pub fn regex(&mut self, text: &str) -> Result<(), Failure> {
        let bytes = text.len() as u64;
        if bytes > REGEX_BYTES_MAX {
            let message =
                format!("a regular expression of {bytes} bytes, at most {REGEX_BYTES_MAX}");
            return Err(too_much(message));
        }
        ALL_REGEX_BYTES.spend(&mut self.regex_bytes, bytes)?;
        let times = if ignores_case(text) { CASE_TIMES } else { 1 };
        TABLES.spend(&mut self.tables, tables(text) * times)
    }

    pub fn lexemes(&mut self, count: usize) -> Result<(), Failure> {
        LEXEMES.spend(&mut self.lexemes, count as u64)
    }

    pub fn rules(&mut self, count: usize) -> Result<(), Failure> {
        RULES.spend(&mut self.rules, count as u64)
    }

    pub fn names(&mut self, count: usize) -> Result<(), Failure> {
        NAMES.spend(&mut self.names, count as u64)
    }

    pub fn ignored(&mut self) -> Result<(), Failure> {
        IGNORED.spend(&mut self.ignored, 1)
    }

    pub fn place(&mut self) -> Result<(), Failure> {
        PLACES.spend(&mut self.places, 1)
    }

    pub fn copies(&mut self, count: u64) -> Result<(), Failure> {
        COPIES.spend(&mut self.copies, count)
    }

    pub fn pairs(&mut self, count: u64) -> Result<(), Failure> {
        PAIRS.spend(&mut self.pairs, count)
    }

    pub fn name_steps(&mut self, count: u64) -> Result<(), Failure> {
        NAME_STEPS.spend(&mut self.name_steps, count)
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
