//! The cost of a grammar in llguidance's variant of Lark, counted before it is compiled: llguidance
//! follows names and parentheses on the stack, and some of its steps go over all rules for each.

use std::collections::HashMap;

use serde_json::Value;

use crate::constraint_costs::{too_much, Cost, Costs};
use crate::constraint_failure::Failure;
use crate::references::References;
use crate::schema_check::check_schema;

/// Rules in rules, terminals in terminals and parentheses: a level takes some KiB of stack.
const LEVELS_MAX: u64 = 1000;
/// Characters of a terminal with those of all that it names.
const TERMINAL_MAX: u64 = 1_000_000;
/// Characters of a text whose parts are allowed.
const SUBSTRING_MAX: usize = 32 << 10;

/// The findings of the scanner; all else does not matter here.
enum Piece<'a> {
    Name(&'a str),
    Literal(usize),
    /// With its flags, or without.
    Regex(&'a str, &'a str),
    Schema(Value),
    Substring(usize),
    Open,
    Close,
    Colon,
    Statement,
    Ignore,
    Lark,
}

/// Refuses grammars that are too deep or too large. Malformed ones pass: llguidance says where.
pub fn check_lark(text: &str, costs: &mut Costs) -> Result<(), Failure> {
    let mut check = Check::default();
    let mut scanner = Scanner { text, at: 0 };
    while let Some(piece) = scanner.next() {
        check.take(piece, costs)?;
    }
    check.end(costs)
}

fn too_deep(levels: u64) -> Failure {
    too_much(format!("rules, terminals and parentheses nest {levels} deep, at most {LEVELS_MAX}"))
}

#[derive(Default)]
struct Check<'a> {
    parts: HashMap<&'a str, usize>,
    names: Vec<&'a str>,
    depths: References, // levels of each
    sizes: References,  // characters of each with those that it names
    characters: Vec<u64>,
    now: usize,            // the rule that is being read, or 0 for what is of none
    last: Option<&'a str>, // a name that a colon may follow
    open: Vec<bool>,       // brackets, and whether each holds a grammar
    is_lark: bool,         // the next one does
    lexemes: u64,
    links: u64,
}

impl<'a> Check<'a> {
    fn part(&mut self, name: &'a str) -> usize {
        if self.names.is_empty() {
            // Statements, `%ignore` above all.
            self.add("");
        }
        match self.parts.get(name) {
            Some(part) => *part,
            None => self.add(name),
        }
    }

    fn add(&mut self, name: &'a str) -> usize {
        self.names.push(name);
        self.characters.push(1);
        self.parts.insert(name, self.names.len() - 1);
        self.sizes.add(1);
        self.depths.add(1)
    }

    fn link(&mut self, name: &'a str) {
        let part = self.part(name);
        self.links += 1;
        self.depths.link(self.now, part);
        self.sizes.link(self.now, part);
    }

    fn take(&mut self, piece: Piece<'a>, costs: &mut Costs) -> Result<(), Failure> {
        let is_outside = self.open.last().copied().unwrap_or(true);
        match piece {
            Piece::Name(name) if !is_outside => self.link(name),
            Piece::Name(name) => {
                if let Some(last) = self.last.replace(name) {
                    self.link(last);
                }
            }
            Piece::Colon if is_outside => {
                if let Some(last) = self.last.take() {
                    self.now = self.part(last);
                }
            }
            Piece::Colon => {}
            Piece::Statement | Piece::Ignore => {
                if matches!(piece, Piece::Ignore) {
                    costs.spend(Cost::Ignored, 1)?;
                }
                if let Some(last) = self.last.take() {
                    self.link(last);
                }
                self.now = self.part("");
            }
            Piece::Lark => self.is_lark = true,
            Piece::Open => {
                self.open.push(std::mem::take(&mut self.is_lark));
                let levels = self.open.len() as u64 + 1;
                self.part("");
                self.depths.raise(self.now, levels);
                if levels > LEVELS_MAX {
                    return Err(too_deep(levels));
                }
            }
            Piece::Close => {
                self.open.pop();
            }
            Piece::Literal(size) => self.lexeme(size),
            Piece::Regex(text, flags) => {
                costs.regex(&format!("(?{flags}){text}"))?;
                self.lexeme(text.len());
            }
            Piece::Schema(schema) => check_schema(&schema, costs)?,
            Piece::Substring(size) if size > SUBSTRING_MAX => {
                let message = format!("a %regex of {size} characters, at most {SUBSTRING_MAX}");
                return Err(too_much(message));
            }
            Piece::Substring(_) => self.lexeme(1),
        }
        Ok(())
    }

    fn lexeme(&mut self, size: usize) {
        self.part("");
        self.lexemes += 1;
        self.characters[self.now] += size as u64;
        self.sizes.raise(self.now, self.characters[self.now]);
    }

    fn end(mut self, costs: &mut Costs) -> Result<(), Failure> {
        if let Some(last) = self.last.take() {
            self.link(last);
        }
        costs.spend(Cost::Rules, self.names.len() as u64)?;
        costs.spend(Cost::Names, self.links)?;
        costs.spend(Cost::Lexemes, self.lexemes)?;
        let levels = self.depths.levels();
        if levels > LEVELS_MAX {
            return Err(too_deep(levels));
        }
        let is_terminal = |name: &str| name.trim_start_matches('_').starts_with(char::is_uppercase);
        for (name, size) in self.names.iter().zip(self.sizes.sizes()) {
            if is_terminal(name) && size > TERMINAL_MAX {
                let message = format!(
                    "the terminal {name} comes to {size} characters with those that it names, at \
                     most {TERMINAL_MAX}"
                );
                return Err(too_much(message));
            }
        }
        Ok(())
    }
}

/// Reads as llguidance's lexer does, as far as names, literals and parentheses are told apart.
struct Scanner<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Scanner<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn next(&mut self) -> Option<Piece<'a>> {
        loop {
            let rest = self.rest();
            let first = rest.chars().next()?;
            if rest.starts_with("//") || first == '#' {
                self.at += rest.find('\n').unwrap_or(rest.len());
                continue;
            }
            let piece = match first {
                '"' => self.literal(),
                '/' => self.regex(),
                '%' => self.statement(),
                '<' => self.marker(),
                '(' | '[' | '{' => Some(self.skip(1, Piece::Open)),
                ')' | ']' | '}' => Some(self.skip(1, Piece::Close)),
                ':' if rest.starts_with("::") => {
                    self.at += 2;
                    None
                }
                ':' => Some(self.skip(1, Piece::Colon)),
                '@' => {
                    self.at +=
                        1 + run(&rest[1..], |c| c.is_ascii_alphanumeric() || "_-".contains(c));
                    None
                }
                _ => match name_length(rest) {
                    0 => {
                        self.at += first.len_utf8();
                        None
                    }
                    length => Some(self.skip(length, Piece::Name(bare_name(&rest[..length])))),
                },
            };
            if piece.is_some() {
                return piece;
            }
        }
    }

    fn skip(&mut self, length: usize, piece: Piece<'a>) -> Piece<'a> {
        self.at += length;
        piece
    }

    fn literal(&mut self) -> Option<Piece<'a>> {
        let length = quoted_length(self.rest(), '"');
        Some(self.skip(length, Piece::Literal(length)))
    }

    fn regex(&mut self) -> Option<Piece<'a>> {
        let rest = self.rest();
        let length = quoted_length(rest, '/');
        let flags = run(&rest[length..], |c| "imslux".contains(c));
        let text = rest[1..length].trim_end_matches('/');
        Some(self.skip(length + flags, Piece::Regex(text, &rest[length..length + flags])))
    }

    // <|name|> and <[12]>
    fn marker(&mut self) -> Option<Piece<'a>> {
        let rest = self.rest();
        let inner = run(&rest[1..], |c| !c.is_whitespace() && !"<>".contains(c));
        let is_closed = inner > 0 && rest[1 + inner..].starts_with('>');
        self.at += if is_closed { inner + 2 } else { 1 };
        is_closed.then_some(Piece::Literal(1))
    }

    fn statement(&mut self) -> Option<Piece<'a>> {
        let word = &self.rest()[..1 + run(&self.rest()[1..], |c| c.is_ascii_lowercase())];
        self.at += word.len();
        match word {
            "%lark" => return Some(Piece::Lark),
            "%if" => return None,
            "%ignore" => return Some(Piece::Ignore),
            "%json" | "%regex" | "%llguidance" => {}
            _ => return Some(Piece::Statement),
        }
        let mut values = serde_json::Deserializer::from_str(self.rest()).into_iter::<Value>();
        let value = values.next()?.ok()?;
        self.at += values.byte_offset();
        match word {
            "%json" => Some(Piece::Schema(value)),
            "%regex" => Some(Piece::Substring(value.to_string().len())),
            _ => Some(Piece::Statement),
        }
    }
}

fn run(text: &str, is_of_it: impl Fn(char) -> bool) -> usize {
    text.find(|c| !is_of_it(c)).unwrap_or(text.len())
}

/// Up to the next quote that no backslash stands before.
fn quoted_length(text: &str, quote: char) -> usize {
    let mut is_escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        if c == quote && !is_escaped {
            return at + c.len_utf8();
        }
        is_escaped = c == '\\' && !is_escaped;
    }
    text.len()
}

/// `!?_rule-1` or `_TERMINAL`, of which letters of the other case are no part.
fn name_length(text: &str) -> usize {
    let marks = usize::from(text.starts_with('!'));
    let begin = marks + usize::from(text[marks..].starts_with(['_', '?']));
    let of_name = |c: char| c.is_ascii_digit() || "_-".contains(c);
    match text[begin..].chars().next() {
        Some('a'..='z') => begin + run(&text[begin..], |c| c.is_ascii_lowercase() || of_name(c)),
        Some('A'..='Z') if marks == 0 && !text.starts_with('?') => {
            begin + run(&text[begin..], |c| c.is_ascii_uppercase() || of_name(c))
        }
        _ => 0,
    }
}

fn bare_name(name: &str) -> &str {
    name.trim_start_matches('!').trim_start_matches('?')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::constraint_failure::Kind;

    fn check(text: &str) -> Result<(), Failure> {
        check_lark(text, &mut Costs::default())
    }

    fn refusal(text: &str) -> String {
        let failure = check(text).expect_err("a grammar that is too much");
        assert_eq!(failure.kind, Kind::Limit);
        failure.message
    }

    fn chain(count: usize, line: impl Fn(usize) -> String, end: &str) -> String {
        let lines: Vec<String> = (0..count).map(line).collect();
        format!("{}{end}", lines.concat())
    }

    #[test]
    fn chains_of_rules_and_terminals_are_too_deep() {
        for n in [3000, 5000] {
            let rules =
                chain(n, |i| format!("r{i}: r{} \"a\"\n", i + 1), &format!("r{n}: \"a\"\n"));
            assert!(refusal(&format!("start: r0\n{rules}")).contains("deep"));
            let terminals =
                chain(n, |i| format!("T{i}: T{} /a/\n", i + 1), &format!("T{n}: \"a\"\n"));
            assert!(refusal(&format!("start: T0\n{terminals}")).contains("deep"));
        }
        let circle = chain(3000, |i| format!("r{i}: \"a\" | r{}\n", (i + 1) % 3000), "start: r0");
        assert!(refusal(&circle).contains("deep"));
    }

    // Rules that are read from the chain's end on are each one level deep, in one order.
    #[test]
    fn the_order_of_rules_makes_no_chain_shorter() {
        let rules = chain(3000, |i| format!("r{}: r{} \"a\"\n", i + 1, i), "r0: \"a\"\n");
        let start: Vec<String> = (0..3000).map(|i| format!("r{i}")).collect();
        assert!(refusal(&format!("{rules}start: {}\n", start.join(" | "))).contains("deep"));
    }

    // After an alias the next rule may begin on the same line.
    #[test]
    fn rules_on_one_line_and_in_nested_grammars_are_too_deep() {
        let one_line = chain(3000, |i| format!("r{i}: r{} \"a\" -> z ", i + 1), "r3000: \"a\"\n");
        assert!(refusal(&format!("start: r0 -> z {one_line}")).contains("deep"));
        let rules = chain(3000, |i| format!("r{i}: r{} \"a\"\n", i + 1), "r3000: \"a\"\n");
        assert!(refusal(&format!("start: %lark {{\nstart: r0\n{rules}}}\n")).contains("deep"));
        let alternatives =
            chain(3000, |i| format!("r{i}: \"a\"\n  | r{}\n", i + 1), "r3000: \"a\"\n");
        assert!(refusal(&format!("start: r0\n{alternatives}")).contains("deep"));
    }

    #[test]
    fn many_rules_that_name_few_are_not_deep() {
        let rules = chain(3000, |i| format!("r{i}[capture]: \"a\" | r{} -> z\n", i / 2 + 2999), "");
        assert!(check(&format!("start: r1\n{rules}r3000: \"a\"\n")).is_ok());
        let plain = chain(3000, |i| format!("r{i}: \"a\" B\n"), "B: \"b\"\n");
        assert!(check(&format!("start: r1 | r2\n{plain}")).is_ok());
    }

    #[test]
    fn parentheses_are_too_deep_in_conditions_too() {
        let deep = "not(".repeat(3000);
        assert!(refusal(&format!("start: a::0x0\na::_ : \"x\" %if {deep}true")).contains("deep"));
        assert!(refusal(&format!("start: {}\"a\"", "(".repeat(3000))).contains("deep"));
    }

    #[test]
    fn terminals_that_double_come_to_too_much() {
        let doubled = chain(40, |i| format!("T{i}: T{0} T{0}\n", i + 1), "T40: \"a\"\n");
        assert!(refusal(&format!("start: T0\n{doubled}")).contains("comes to"));
    }

    #[test]
    fn schemas_in_grammars_are_looked_at() {
        let text = "start: %json {\"properties\": {\"a\": {\"not\": {}}}}";
        assert_eq!(check(text).expect_err("a keyword").pointer, "/properties/a/not");
        assert!(refusal(&format!(
            "start: %regex {{\"substring_chars\": \"{}\"}}",
            "a".repeat(40_000)
        ))
        .contains("%regex"));
    }

    #[test]
    fn quotes_comments_and_markers_hide_what_they_hold() {
        let braces = "(".repeat(3000);
        for text in [
            format!("start: \"{braces}\" | /{}/ // {braces}\n# {braces}\n", "\\(".repeat(3000)),
            format!("start: <|{braces}|> \"a\\\"{braces}\" \"\\\\\"\n"),
        ] {
            assert!(check(&text).is_ok(), "{text}");
        }
        assert!(check("start: \"a\" | b\n  | C\nb: [C] \"x\"~2..3\nC: /x/ & ~\"y\"\n").is_ok());
    }
}
