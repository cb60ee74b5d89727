//! The cost of regular expressions, counted before they are compiled: compiling and matching cannot
//! be interrupted. Knows derivre's expressions, nothing of schemas or grammars.

use std::collections::{HashMap, HashSet};

use llguidance::derivre::raw::ExprSet;
use llguidance::derivre::ExprRef;
use regex_syntax::hir::{Hir, HirKind};

use crate::constraint_costs::too_much;
use crate::constraint_failure::Failure;

/// How many pairs of ways to go on one step of an intersection may look at. A pair takes about a
/// microsecond; 39 expressions of two ways each have 2^39.
const WAYS_MAX: u64 = 20_000;
/// Nodes that are looked at to count them.
const VISITS_MAX: usize = 2_000_000;
/// Ways of a complement below others, whose own differ from state to state.
const COMPLEMENT_WAYS: u64 = 8;
/// Limit of parts that are walked as often as there are paths to them.
const PATHS_MAX: u64 = 1_000_000;

/// Characters that an expression has when each repetition is written out. None for one that does
/// not parse.
pub fn positions(text: &str) -> Option<u64> {
    Some(positions_of(&regex_syntax::parse(text).ok()?))
}

// The parser nests no deeper than 250.
fn positions_of(hir: &Hir) -> u64 {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => 0,
        HirKind::Literal(literal) => literal.0.len() as u64,
        HirKind::Class(_) => 1,
        HirKind::Repetition(repeated) => {
            let times = u64::from(repeated.max.unwrap_or(repeated.min).max(1));
            positions_of(&repeated.sub).saturating_mul(times)
        }
        HirKind::Capture(capture) => positions_of(&capture.sub),
        HirKind::Concat(all) | HirKind::Alternation(all) => {
            all.iter().fold(0, |sum, one| sum.saturating_add(positions_of(one)))
        }
    }
}

/// derivre's numbers of kinds of expressions; a test compares them.
mod tag {
    pub const BYTE: u8 = 3;
    pub const BYTE_SET: u8 = 4;
    pub const BYTE_CONCAT: u8 = 5;
    pub const REMAINDER: u8 = 6;
    pub const NOT: u8 = 8;
    pub const CONCAT: u8 = 10;
    pub const OR: u8 = 11;
    pub const AND: u8 = 12;
}

/// A bit for each byte.
type Bytes = [u64; 4];

const NO_BYTES: Bytes = [0; 4];
const ALL_BYTES: Bytes = [u64::MAX; 4];

fn has(bytes: &Bytes, byte: usize) -> bool {
    bytes[byte / 64] >> (byte % 64) & 1 == 1
}

fn unite(into: &mut Bytes, more: &Bytes) {
    into.iter_mut().zip(more).for_each(|(word, more)| *word |= more);
}

/// A byte that goes on with a character: parts that wait for one agree on how the character begins.
fn goes_on(byte: usize) -> bool {
    (0x80..0xC0).contains(&byte)
}

/// Refuses a set in which a step of an intersection, whose parts are compared way by way, would
/// look at too many, or a walk over a complement would not end.
pub fn check_intersections(set: &ExprSet) -> Result<(), Failure> {
    let all = (1..set.len() as u32).map(ExprRef::new);
    let mut ways = Ways { set, first: HashMap::new(), ways: HashMap::new(), visits: 0 };
    let mut paths: Option<Vec<u64>> = None;
    for expression in all {
        match set.get_tag(expression) as u8 {
            tag::AND if ways.of_intersection(expression) > WAYS_MAX => {
                return Err(too_much("an intersection of expressions that are too complex"));
            }
            tag::NOT => {
                let paths = paths.get_or_insert_with(|| paths_of(set));
                if set.get_args(expression).iter().any(|arg| paths[arg.as_usize()] > PATHS_MAX) {
                    return Err(too_much("a complement of an expression that is too complex"));
                }
            }
            _ => {}
        }
        if ways.visits > VISITS_MAX {
            return Err(too_much("intersections of expressions that are too large"));
        }
    }
    Ok(())
}

/// The factor by which an intersection with this expression multiplies a step.
pub fn ways_of(set: &ExprSet, expression: ExprRef) -> u64 {
    Ways { set, first: HashMap::new(), ways: HashMap::new(), visits: 0 }.of(expression)
}

pub fn are_too_many(ways: u64) -> bool {
    ways > WAYS_MAX
}

/// Parts come before what has them.
fn paths_of(set: &ExprSet) -> Vec<u64> {
    let mut paths = vec![1u64; set.len()];
    for at in 1..set.len() {
        let args = set.get_args(ExprRef::new(at as u32)).iter();
        paths[at] = args.fold(1, |sum, arg| sum.saturating_add(paths[arg.as_usize()]));
    }
    paths
}

/// In how many ways at most texts that begin with the same byte go on at the same time: derivre
/// keeps one for each set of bytes.
struct Ways<'a> {
    set: &'a ExprSet,
    first: HashMap<ExprRef, Bytes>,
    ways: HashMap<ExprRef, u64>, // of intersections and their parts
    visits: usize,
}

impl Ways<'_> {
    fn of_intersection(&mut self, expression: ExprRef) -> u64 {
        if let Some(known) = self.ways.get(&expression) {
            return *known;
        }
        let args = self.set.get_args(expression).to_vec();
        let product = args.iter().fold(1u64, |product, arg| product.saturating_mul(self.of(*arg)));
        self.ways.insert(expression, product);
        product
    }

    // A complement by itself goes on in one way. Intersections within intersections are known:
    // parts come first.
    fn of(&mut self, part: ExprRef) -> u64 {
        if self.set.get_tag(part) as u8 == tag::NOT {
            return 1;
        }
        if let Some(known) = self.ways.get(&part) {
            return *known;
        }
        let mut count = [0u64; 256];
        let mut everywhere = 0u64;
        let mut seen = HashSet::new();
        let mut open = vec![part];
        while let Some(one) = open.pop() {
            if self.visits > VISITS_MAX || !seen.insert(one) {
                continue;
            }
            self.visits += 1;
            let args = self.set.get_args(one);
            match self.set.get_tag(one) as u8 {
                tag::BYTE | tag::BYTE_SET => self.add(&[one], &mut count),
                tag::OR => {
                    self.add(args, &mut count);
                    open.extend(args.iter().filter(|arg| !self.is_leaf(**arg)));
                }
                tag::AND if one != part => {
                    everywhere = everywhere.saturating_add(self.of_intersection(one));
                }
                tag::NOT => everywhere = everywhere.saturating_add(COMPLEMENT_WAYS),
                _ => open.extend(args),
            }
        }
        let most = (0..256).filter(|byte| !goes_on(*byte)).map(|byte| count[byte]).max();
        // One for bytes by themselves, which make one set each, and one for digits.
        let ways = most.unwrap_or(0).saturating_add(everywhere).saturating_add(1);
        self.ways.insert(part, ways);
        ways
    }

    fn is_leaf(&self, expression: ExprRef) -> bool {
        matches!(self.set.get_tag(expression) as u8, tag::BYTE | tag::BYTE_SET)
    }

    fn add(&mut self, parts: &[ExprRef], count: &mut [u64; 256]) {
        for part in parts {
            let first = self.first_of(*part);
            (0..256).filter(|byte| has(&first, *byte)).for_each(|byte| count[byte] += 1);
        }
    }

    /// The bytes with which a text of the expression can begin, and perhaps others.
    fn first_of(&mut self, expression: ExprRef) -> Bytes {
        let mut open = vec![expression];
        while let Some(one) = open.last().copied() {
            if self.first.contains_key(&one) {
                open.pop();
                continue;
            }
            let begins = self.begins(one);
            let missing = begins.iter().filter(|arg| !self.first.contains_key(arg));
            let missing: Vec<ExprRef> = missing.copied().collect();
            if !missing.is_empty() {
                open.extend(missing);
                continue;
            }
            let mut bytes = match self.set.get_tag(one) as u8 {
                tag::BYTE | tag::BYTE_SET | tag::BYTE_CONCAT => self.bytes_of(one),
                tag::NOT | tag::REMAINDER => ALL_BYTES,
                _ => NO_BYTES,
            };
            begins.iter().for_each(|arg| unite(&mut bytes, &self.first[arg]));
            self.first.insert(one, bytes);
            self.visits += 1;
        }
        self.first[&expression]
    }

    /// The parts with which it can begin.
    fn begins(&self, expression: ExprRef) -> Vec<ExprRef> {
        let args = self.set.get_args(expression);
        match self.set.get_tag(expression) as u8 {
            tag::BYTE_CONCAT | tag::NOT => Vec::new(),
            tag::CONCAT if !self.set.is_nullable(args[0]) => vec![args[0]],
            _ => args.to_vec(),
        }
    }

    fn bytes_of(&self, leaf: ExprRef) -> Bytes {
        let leaf = self.set.get(leaf);
        let mut bytes = NO_BYTES;
        for byte in 0..=255u8 {
            if !leaf.surely_no_match(byte) {
                bytes[usize::from(byte) / 64] |= 1 << (byte % 64);
            }
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use llguidance::derivre::{RegexAst, RegexBuilder};

    fn intersection(expressions: &[&str]) -> RegexBuilder {
        let mut builder = RegexBuilder::new();
        let parts = expressions.iter().map(|text| RegexAst::Regex(text.to_string())).collect();
        builder.mk(&RegexAst::And(parts)).expect("an expression");
        builder
    }

    #[test]
    fn kinds_have_the_numbers_of_derivre() {
        let mut builder = RegexBuilder::new();
        let mut tag_of = |ast: RegexAst| {
            let made = builder.mk(&ast).expect("an expression");
            builder.exprset().get_tag(made) as u8
        };
        let regex = |text: &str| RegexAst::Regex(text.to_string());
        assert_eq!(tag_of(regex("a")), tag::BYTE);
        assert_eq!(tag_of(regex("[ab]")), tag::BYTE_SET);
        assert_eq!(tag_of(regex("ab")), tag::BYTE_CONCAT);
        assert_eq!(tag_of(RegexAst::MultipleOf(3, 0)), tag::REMAINDER);
        assert_eq!(tag_of(RegexAst::Not(Box::new(regex("a")))), tag::NOT);
        assert_eq!(tag_of(regex("[ab][cd]")), tag::CONCAT);
        assert_eq!(tag_of(regex("a+|[cd]b")), tag::OR);
        assert_eq!(tag_of(RegexAst::And(vec![regex("a+"), regex("[ab]+")])), tag::AND);
    }

    #[test]
    fn ways_multiply_in_intersections() {
        let of = |count: usize| {
            let texts: Vec<String> = (1..=count).map(|i| format!(".*[a-z]{{{i}}}.*")).collect();
            intersection(&texts.iter().map(String::as_str).collect::<Vec<_>>())
        };
        assert!(check_intersections(of(6).exprset()).is_ok());
        assert!(check_intersections(of(39).exprset()).is_err());
    }

    #[test]
    fn complements_go_on_in_one_way() {
        let mut builder = RegexBuilder::new();
        let mut parts = vec![RegexAst::Regex("(?s:.*)".to_string())];
        for i in 1..40 {
            let inner = RegexAst::Regex(format!("(?s:.*)x{i}(?s:.*)"));
            parts.push(RegexAst::Not(Box::new(inner)));
        }
        builder.mk(&RegexAst::And(parts)).expect("an expression");
        assert!(check_intersections(builder.exprset()).is_ok());
    }

    #[test]
    fn texts_have_sizes() {
        assert_eq!(positions("(a[bc]{2,5}|d*)"), Some(7));
        assert_eq!(positions("(a{1000}){1000}"), Some(1_000_000));
    }
}
