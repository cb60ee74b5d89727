//! The place in a schema that a failure is about, where the compiler did not say.

use serde_json::Value;

use crate::constraint_failure::Failure;

/// How many parts are tried: each is compiled anew.
const PARTS_MAX: usize = 100;

struct Part<'a> {
    /// A JSON pointer.
    place: String,
    schema: &'a Value,
    /// No value of the whole is valid where none of this is.
    is_needed: bool,
}

fn property<'a>(at: &str, key: &str, name: &str, schema: &'a Value, whole: &Value) -> Part<'a> {
    let required = whole.get("required").and_then(Value::as_array);
    Part {
        place: format!("{at}/{key}/{}", name.replace('~', "~0").replace('/', "~1")),
        schema,
        is_needed: required.is_some_and(|names| names.iter().any(|one| one == name)),
    }
}

/// The schemas directly in `schema`, which lies at `at`.
fn parts<'a>(schema: &'a Value, at: &str, root: &'a Value) -> Vec<Part<'a>> {
    let mut found = Vec::new();
    for (key, value) in schema.as_object().into_iter().flatten() {
        let place = format!("{at}/{key}");
        match (key.as_str(), value) {
            ("$ref", Value::String(name)) => {
                let pointer = name.strip_prefix('#').unwrap_or("?");
                let target = root.pointer(pointer).into_iter();
                let place = || pointer.to_string();
                found.extend(target.map(|schema| Part { place: place(), schema, is_needed: true }));
            }
            ("properties" | "patternProperties", Value::Object(inner)) => {
                let inner = inner.iter();
                found.extend(inner.map(|(name, one)| property(at, key, name, one, schema)));
            }
            ("allOf" | "anyOf" | "oneOf" | "prefixItems" | "items", Value::Array(inner)) => {
                found.extend(inner.iter().enumerate().map(|(i, schema)| Part {
                    place: format!("{place}/{i}"),
                    schema,
                    is_needed: true,
                }));
            }
            ("items", _) => found.push(Part { place, schema: value, is_needed: true }),
            ("additionalItems" | "additionalProperties", _) => {
                found.push(Part { place, schema: value, is_needed: false });
            }
            _ => {}
        }
    }
    found
}

/// A part with what references in it may mean.
fn alone(part: &Value, root: &Value) -> Value {
    let mut part = part.clone();
    if let Some(object) = part.as_object_mut() {
        for key in ["$defs", "definitions", "$schema"] {
            if let Some(value) = root.get(key) {
                object.entry(key).or_insert_with(|| value.clone());
            }
        }
    }
    part
}

/// The failure of the innermost part that is refused alone for the reason why the root is, with
/// its place. `refusal` compiles a schema.
pub fn innermost(
    root: &Value, failure: Failure, refusal: impl Fn(&Value) -> Option<Failure>,
) -> Failure {
    let (mut failure, mut schema) = (failure, root);
    let mut tried = 0;
    loop {
        let next = parts(schema, &failure.pointer, root).into_iter().find_map(|part| {
            tried += 1;
            if tried > PARTS_MAX {
                return None;
            }
            let found = refusal(&alone(part.schema, root))?;
            let is_cause = part.is_needed && failure.has_no_values() && found.has_no_values();
            (is_cause || found.message == failure.message)
                .then(|| (part.schema, found.at(&part.place)))
        });
        match next {
            Some((part, found)) => {
                schema = part;
                failure = Failure { grammar: failure.grammar, ..found };
            }
            None => return failure,
        }
    }
}
