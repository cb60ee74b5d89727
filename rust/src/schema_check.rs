//! Whether all of a JSON schema can be held to. llguidance refuses most of what it cannot; here the
//! place is found, as a JSON pointer, and what it would read otherwise than the standard is refused.

use std::collections::HashSet;

use serde_json::{json, Value};

use crate::constraint_failure::{Failure, Kind};

/// Keywords that say what is valid and that no text can be held to here.
const UNSUPPORTED: [&str; 18] = [
    "$dynamicRef",
    "$recursiveRef",
    "contains",
    "contentSchema",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "else",
    "if",
    "maxContains",
    "minContains",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
    "uniqueItems",
    "$anchor",
];

const FORMATS: [&str; 10] = [
    "date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri",
];

const TYPES: [&str; 7] = ["null", "boolean", "integer", "number", "string", "array", "object"];

const DRAFTS: [&str; 5] = [
    "https://json-schema.org/draft/2020-12/schema",
    "https://json-schema.org/draft/2019-09/schema",
    "http://json-schema.org/draft-07/schema",
    "http://json-schema.org/draft-06/schema",
    "http://json-schema.org/draft-04/schema",
];

/// White space between parts of a document: enough to indent, not enough to go on for ever.
const WHITE_SPACE: &str = r"[\x20\x0A\x0D\x09]{1,40}";

/// Whole numbers up to here are the same as a double.
const WHOLE_MAX: f64 = 9_007_199_254_740_992.0;

const PLACES_MAX: usize = 50_000;

/// The schema with what llguidance has to be told, once all of it is known to be understood.
pub fn prepare_schema(mut schema: Value) -> Result<Value, Failure> {
    let mut check = Check { root: &schema, seen: HashSet::new(), places: 0 };
    check.schema(&schema, "")?;
    if let Some(object) = schema.as_object_mut() {
        object.insert("x-guidance".to_string(), json!({"whitespace_pattern": WHITE_SPACE}));
    }
    Ok(schema)
}

struct Check<'a> {
    root: &'a Value,
    seen: HashSet<String>, // targets of references
    places: usize,
}

fn failure(kind: Kind, pointer: &str, message: String) -> Failure {
    Failure { pointer: pointer.to_string(), ..Failure::new(kind, message) }
}

fn child(pointer: &str, name: &str) -> String {
    format!("{pointer}/{}", name.replace('~', "~0").replace('/', "~1"))
}

fn excerpt(value: &Value) -> String {
    let text = value.to_string();
    let end = text.char_indices().map(|(at, _)| at).nth(60).unwrap_or(text.len());
    text[..end].to_string()
}

impl<'a> Check<'a> {
    fn schema(&mut self, schema: &'a Value, pointer: &str) -> Result<(), Failure> {
        self.places += 1;
        if self.places > PLACES_MAX {
            let message = format!("more than {PLACES_MAX} subschemas");
            return Err(failure(Kind::Limit, pointer, message));
        }
        if schema.is_boolean() {
            return Ok(());
        }
        let Some(object) = schema.as_object() else {
            let message = format!("{}, expected an object or a boolean", excerpt(schema));
            return Err(failure(Kind::Invalid, pointer, message));
        };
        for (key, value) in object {
            let at = child(pointer, key);
            // What forbids nothing is no matter.
            let is_empty = key == "uniqueItems" && *value == Value::Bool(false);
            if UNSUPPORTED.contains(&key.as_str()) && !is_empty {
                let message = format!("the keyword {key} is not supported");
                return Err(failure(Kind::Unsupported, &at, message));
            }
            self.keyword(key, value, schema, &at)?;
        }
        Ok(())
    }

    fn keyword(
        &mut self,
        key: &str,
        value: &'a Value,
        schema: &'a Value,
        at: &str,
    ) -> Result<(), Failure> {
        match key {
            "properties" | "patternProperties" => self.map(value, at),
            "anyOf" | "oneOf" | "allOf" | "prefixItems" => self.list(value, at),
            "items" if value.is_array() => self.list(value, at),
            "items" | "additionalItems" | "additionalProperties" => self.schema(value, at),
            "$ref" => self.reference(value, at),
            "$schema" => Self::draft(value, at),
            "$id" | "id" if value.is_string() && std::ptr::eq(schema, self.root) => Ok(()),
            "$id" | "id" if value.is_string() => {
                let message = format!("{key} is supported at the root alone");
                Err(failure(Kind::Unsupported, at, message))
            }
            "type" => Self::types(value, at),
            "format" => Self::format(value, schema, at),
            "const" | "enum" | "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum"
            | "multipleOf" => Self::numbers(value, at),
            _ => Ok(()),
        }
    }

    fn map(&mut self, value: &'a Value, at: &str) -> Result<(), Failure> {
        let Some(object) = value.as_object() else {
            let message = format!("{}, expected an object", excerpt(value));
            return Err(failure(Kind::Invalid, at, message));
        };
        object.iter().try_for_each(|(name, inner)| self.schema(inner, &child(at, name)))
    }

    fn list(&mut self, value: &'a Value, at: &str) -> Result<(), Failure> {
        let Some(list) = value.as_array() else {
            let message = format!("{}, expected a list", excerpt(value));
            return Err(failure(Kind::Invalid, at, message));
        };
        list.iter().enumerate().try_for_each(|(i, inner)| self.schema(inner, &format!("{at}/{i}")))
    }

    fn reference(&mut self, value: &'a Value, at: &str) -> Result<(), Failure> {
        let text = value.as_str().unwrap_or_default();
        let pointer = text.strip_prefix('#').unwrap_or("?");
        let is_plain = pointer.is_empty() || (pointer.starts_with('/') && !pointer.contains(['~', '%']));
        if !is_plain {
            let message = format!("{}, expected # or #/ and plain names", excerpt(value));
            return Err(failure(Kind::Unsupported, at, message));
        }
        let Some(target) = self.root.pointer(pointer) else {
            return Err(failure(Kind::Invalid, at, format!("{text} is not there")));
        };
        if !self.seen.insert(pointer.to_string()) {
            return Ok(());
        }
        self.schema(target, pointer)
    }

    fn draft(value: &Value, at: &str) -> Result<(), Failure> {
        let name = value.as_str().unwrap_or_default().trim_end_matches('#');
        if DRAFTS.contains(&name) {
            return Ok(());
        }
        let message = format!("{} is none of the drafts 4, 6, 7, 2019-09, 2020-12", excerpt(value));
        Err(failure(Kind::Unsupported, at, message))
    }

    fn types(value: &Value, at: &str) -> Result<(), Failure> {
        let list = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
        for name in list {
            if !name.as_str().is_some_and(|name| TYPES.contains(&name)) {
                let message = format!("{} is no type", excerpt(name));
                return Err(failure(Kind::Invalid, at, message));
            }
        }
        Ok(())
    }

    // A format says something of strings alone.
    fn format(value: &Value, schema: &Value, at: &str) -> Result<(), Failure> {
        let allows_strings = match schema.get("type") {
            None => true,
            Some(Value::Array(types)) => types.iter().any(|name| name == "string"),
            Some(name) => name == "string",
        };
        let is_known = value.as_str().is_some_and(|name| FORMATS.contains(&name));
        if is_known || !allows_strings {
            return Ok(());
        }
        let message = format!("the format {} is not supported", excerpt(value));
        Err(failure(Kind::Unsupported, at, message))
    }

    fn numbers(value: &Value, at: &str) -> Result<(), Failure> {
        match value {
            Value::Number(number) => {
                let is_exact = number.as_f64().is_some_and(|n| n.abs() < WHOLE_MAX);
                if is_exact {
                    return Ok(());
                }
                let message = format!("{number} is not below 2^53, where doubles are not exact");
                Err(failure(Kind::Unsupported, at, message))
            }
            Value::Array(list) => {
                list.iter().enumerate().try_for_each(|(i, v)| Self::numbers(v, &format!("{at}/{i}")))
            }
            Value::Object(map) => {
                map.iter().try_for_each(|(name, v)| Self::numbers(v, &child(at, name)))
            }
            _ => Ok(()),
        }
    }
}
