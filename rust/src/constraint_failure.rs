//! The reason why a grammar is refused, or why constrained output ends.

use std::fmt::Display;

/// Numbered as in src/constraint/rust_interface.h.
#[derive(Clone, Copy, PartialEq, Debug)]
#[repr(i32)]
pub enum Kind {
    /// The request cannot be right.
    Invalid = 1,
    /// It could be, and there is no means for it here.
    Unsupported = 2,
    /// Takes too much time or memory.
    Limit = 3,
    /// A token that cannot stand where it does.
    Misfit = 4,
    Bug = 5,
}

#[derive(Debug)]
pub struct Failure {
    pub kind: Kind,
    pub message: String,
    /// The grammar, of several.
    pub grammar: String,
    /// A JSON pointer into its schema, if the place is known.
    pub pointer: String,
}

/// Signs of messages that name parts of llguidance, and the words that clients get instead.
const OWN_WORDS: [(&str, Kind, &str); 6] = [
    (
        "coerce_one_of",
        Kind::Unsupported,
        "the alternatives of a oneOf are not known to exclude each other, expected other types, \
         constants or required properties in each, or anyOf",
    ),
    (
        "circular references with sibling keys",
        Kind::Unsupported,
        "a $ref that leads back to itself is supported without keywords beside it alone",
    ),
    (
        "lookarounds not supported",
        Kind::Unsupported,
        "regular expression: \\b, \\B and other conditions on what is beside a place are not \
         supported",
    ),
    (
        "Regex is empty",
        Kind::Invalid,
        "no string is valid: none has the pattern and the format or lengths beside it",
    ),
    ("anyOf is empty", Kind::Invalid, "no value is valid: an enum is empty"),
    (
        "NoExtensionBias",
        Kind::Invalid,
        "nothing can follow and the text is not complete: no text of this form ends here",
    ),
];

impl Failure {
    pub fn new(kind: Kind, message: impl Into<String>) -> Failure {
        Failure { kind, message: message.into(), grammar: String::new(), pointer: String::new() }
    }

    /// The same of a place, a JSON pointer.
    pub fn at(self, pointer: &str) -> Failure {
        Failure { pointer: pointer.to_string(), ..self }
    }

    /// Not about time, memory or a defect.
    pub fn is_about_values(&self) -> bool {
        matches!(self.kind, Kind::Invalid | Kind::Unsupported)
    }

    pub fn has_no_values(&self) -> bool {
        self.message.starts_with("no value is valid:")
            || self.message.starts_with("no string is valid:")
    }

    /// A failure in llguidance's words, in which a state dump or a backtrace follows the reason.
    pub fn of_words(words: impl Display) -> Failure {
        let words = words.to_string();
        let said = words.split("\n<").next().unwrap_or_default().trim();
        if let Some((_, kind, message)) = OWN_WORDS.iter().find(|(sign, ..)| said.contains(sign)) {
            return Failure::new(*kind, *message);
        }
        let has = |signs: &[&str]| signs.iter().any(|sign| said.contains(sign));
        let kind = if said.starts_with("panic") {
            Kind::Bug
        } else if has(&[
            "fuel",
            "too big",
            "too large",
            "too complex",
            "too many",
            "limit",
            "items; max",
            "exceeded",
        ]) {
            Kind::Limit
        } else if has(&[
            "not supported",
            "only supported",
            "Unimplemented",
            "not disjoint",
            "can't determine",
            "Unable to determine",
        ]) {
            Kind::Unsupported
        } else {
            Kind::Invalid
        };
        let message = match said.split_once("\nerror: ") {
            Some((shown, reason)) if shown.starts_with("regex parse error:") => {
                format!("regular expression: {reason}")
            }
            _ => said.replace("Unsatisfiable schema:", "no value is valid:"),
        };
        Failure::new(kind, message)
    }
}
