//! Checks that all of a JSON schema can be enforced. llguidance refuses most of what it cannot;
//! here the place is found, as a JSON pointer, and schemas that it would misread are refused.

use std::collections::{HashMap, HashSet};

use llguidance::regex_to_lark;
use regex_syntax::ast::parse::Parser;
use serde_json::{json, Value};

use crate::constraint_costs::{Cost, Costs};
use crate::constraint_failure::{Failure, Kind};
use crate::references::References;
use crate::schema_merge::{Merges, CHAIN_MAX};

/// Keywords that say what is valid and that cannot be enforced here.
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

const FORMATS: [&str; 10] =
    ["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri"];

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

/// Schemas in schemas, through references too: llguidance follows them on the stack.
const LEVELS_MAX: u64 = 4000;

const COUNT: &str = "a whole number from 0";

const ENDLESS: &str = "no document is valid: each has to be, or contain, another of this schema";

/// The schema with what llguidance has to be told, once all of it is known to be understood.
pub fn prepare_schema(mut schema: Value, costs: &mut Costs) -> Result<Value, Failure> {
    check_schema(&schema, costs)?;
    if let Some(object) = schema.as_object_mut() {
        object.insert("x-guidance".to_string(), json!({"whitespace_pattern": WHITE_SPACE}));
    }
    Ok(schema)
}

/// Refuses what is not understood, and what is too deep or too much.
pub fn check_schema(schema: &Value, costs: &mut Costs) -> Result<(), Failure> {
    let mut check = Check {
        root: schema,
        costs,
        merges: Merges::new(schema),
        parts: HashMap::new(),
        depths: References::default(),
        needs: References::default(),
        queue: Vec::new(),
        now: 0,
        level: 0,
    };
    check.part("");
    while let Some((target, pointer, part)) = check.queue.pop() {
        check.now = part;
        check.schema(target, &pointer)?;
        let mut needed = Vec::new();
        collect_needed(target, &mut needed);
        for text in needed {
            if let Some(other) = text.strip_prefix('#').and_then(|pointer| check.parts.get(pointer))
            {
                check.needs.link(part, *other);
            }
        }
    }
    if let Some(part) = check.needs.circular() {
        let pointer = check.parts.iter().find(|(_, one)| **one == part).map(|(pointer, _)| pointer);
        return Err(Failure::new(Kind::Invalid, ENDLESS).at(pointer.map_or("", String::as_str)));
    }
    let levels = check.depths.levels();
    if levels > LEVELS_MAX {
        let message = format!(
            "schemas nest {levels} deep, $ref and what they refer to included, at most {LEVELS_MAX}"
        );
        return Err(Failure::new(Kind::Limit, message));
    }
    Ok(())
}

struct Check<'a> {
    root: &'a Value,
    costs: &'a mut Costs,
    merges: Merges<'a>,
    parts: HashMap<String, usize>, // the root and targets of references
    depths: References,            // of these
    needs: References,             // the same, as far as a valid value cannot be without them
    queue: Vec<(&'a Value, String, usize)>,
    now: usize,
    level: u64,
}

fn child(pointer: &str, name: &str) -> String {
    format!("{pointer}/{}", name.replace('~', "~0").replace('/', "~1"))
}

fn excerpt(value: &Value) -> String {
    let text = value.to_string();
    let end = text.char_indices().map(|(at, _)| at).nth(60).unwrap_or(text.len());
    text[..end].to_string()
}

/// Whether the types that a schema names, if any, have values of this one, or of any for "".
fn allows(schema: &Value, of: &str) -> bool {
    let is = |name: &Value| of.is_empty() || name == of || (of == "number" && name == "integer");
    match schema.get("type") {
        None => true,
        Some(Value::Array(types)) => types.iter().any(is),
        Some(name) => is(name),
    }
}

/// A constant's values and names.
fn scalars(value: &Value) -> usize {
    match value {
        Value::Array(list) => 1 + list.iter().map(scalars).sum::<usize>(),
        Value::Object(object) => 1 + object.values().map(|one| 1 + scalars(one)).sum::<usize>(),
        _ => 1,
    }
}

/// The references of a schema that every valid value follows.
fn collect_needed<'a>(schema: &'a Value, needed: &mut Vec<&'a str>) {
    let list = |key: &str| schema.get(key).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let is = |name: &str| schema.get("type").is_some_and(|it| it == name || *it == json!([name]));
    needed.extend(schema.get("$ref").and_then(Value::as_str));
    let mut inner: Vec<&Value> = list("allOf").iter().collect();
    for key in ["anyOf", "oneOf"] {
        if let [only] = list(key) {
            inner.push(only);
        }
    }
    if is("object") {
        let required: HashSet<_> = list("required").iter().filter_map(Value::as_str).collect();
        let all = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
        inner.extend(all.filter(|(name, _)| required.contains(name.as_str())).map(|(_, one)| one));
    }
    let has_items = schema.get("minItems").and_then(Value::as_u64).is_some_and(|count| count > 0);
    if is("array") && has_items && schema.get("prefixItems").is_none() {
        inner.extend(schema.get("items"));
    }
    inner.into_iter().for_each(|one| collect_needed(one, needed));
}

impl<'a> Check<'a> {
    /// The target of a reference, which is looked at once, and not on the way there: chains are
    /// long. None without a target.
    fn part(&mut self, pointer: &str) -> Option<usize> {
        if let Some(part) = self.parts.get(pointer) {
            return Some(*part);
        }
        let target = self.root.pointer(pointer)?;
        let part = self.depths.add(1);
        self.needs.add(1);
        self.parts.insert(pointer.to_string(), part);
        self.queue.push((target, pointer.to_string(), part));
        Some(part)
    }

    fn schema(&mut self, schema: &'a Value, pointer: &str) -> Result<(), Failure> {
        self.costs.spend(Cost::Places, 1).map_err(|failure| failure.at(pointer))?;
        self.level += 1;
        self.depths.raise(self.now, self.level);
        let done = self.keywords(schema, pointer);
        self.level -= 1;
        done
    }

    fn keywords(&mut self, schema: &'a Value, pointer: &str) -> Result<(), Failure> {
        if schema.is_boolean() {
            return Ok(());
        }
        let Some(object) = schema.as_object() else {
            let message = format!("{}, expected an object or a boolean", excerpt(schema));
            return Err(Failure::new(Kind::Invalid, message).at(pointer));
        };
        for (key, value) in object {
            let at = child(pointer, key);
            // A keyword that forbids nothing does not matter.
            let is_empty = key == "uniqueItems" && *value == Value::Bool(false);
            if UNSUPPORTED.contains(&key.as_str()) && !is_empty {
                let message = format!("the keyword {key} is not supported");
                return Err(Failure::new(Kind::Unsupported, message).at(&at));
            }
            self.keyword(key, value, schema, &at)?;
        }
        self.merges.check(self.costs, schema).map_err(|failure| failure.at(pointer))
    }

    fn keyword(
        &mut self,
        key: &str,
        value: &'a Value,
        schema: &'a Value,
        at: &str,
    ) -> Result<(), Failure> {
        Self::shape(key, value, schema, at)?;
        match key {
            "properties" => self.map(value, at),
            "patternProperties" => {
                for pattern in value.as_object().into_iter().flat_map(|all| all.keys()) {
                    self.regex(pattern, allows(schema, "object"), at)?;
                }
                self.map(value, at)
            }
            "pattern" => {
                self.regex(value.as_str().unwrap_or_default(), allows(schema, "string"), at)
            }
            "required" => self.count(value.as_array().map_or(0, Vec::len), at),
            "anyOf" | "oneOf" | "allOf" => self.list(value, at),
            "prefixItems" => self.items(value, at),
            "items" if value.is_array() => self.items(value, at),
            "items" | "additionalItems" | "additionalProperties" => self.schema(value, at),
            "$ref" => self.reference(value, at),
            "$schema" => Self::draft(value, at),
            "$id" | "id" if value.is_string() && std::ptr::eq(schema, self.root) => Ok(()),
            "$id" | "id" if value.is_string() => {
                let message = format!("{key} is supported at the root alone");
                Err(Failure::new(Kind::Unsupported, message).at(at))
            }
            "type" => Self::types(value, at),
            "format" => Self::format(value, schema, at),
            "const" | "enum" => {
                // Values of one type make one expression; contents of objects and lists do not.
                let nested = if key == "enum" {
                    value.as_array().map_or(&[][..], Vec::as_slice)
                } else {
                    std::slice::from_ref(value)
                };
                let count = nested.iter().map(|one| scalars(one)).filter(|count| *count > 1).sum();
                self.count(count, at)?;
                Self::numbers(value, at)
            }
            "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" | "multipleOf" => {
                Self::numbers(value, at)
            }
            _ => Ok(()),
        }
    }

    fn map(&mut self, value: &'a Value, at: &str) -> Result<(), Failure> {
        let Some(object) = value.as_object() else {
            let message = format!("{}, expected an object", excerpt(value));
            return Err(Failure::new(Kind::Invalid, message).at(at));
        };
        self.count(object.len(), at)?;
        object.iter().try_for_each(|(name, inner)| self.schema(inner, &child(at, name)))
    }

    fn count(&mut self, names: usize, at: &str) -> Result<(), Failure> {
        self.costs.spend(Cost::Lexemes, names as u64).map_err(|failure| failure.at(at))
    }

    fn regex(&mut self, text: &str, matters: bool, at: &str) -> Result<(), Failure> {
        self.costs.regex(text).map_err(|failure| failure.at(at))?;
        if !matters {
            return Ok(());
        }
        let parsed = Parser::new().parse(&regex_to_lark(text, "dw"));
        parsed.map(drop).map_err(|error| Failure::of_words(error).at(at))
    }

    fn items(&mut self, value: &'a Value, at: &str) -> Result<(), Failure> {
        let items = value.as_array().map_or(0, Vec::len);
        if items > CHAIN_MAX {
            let message = format!("{items} items with schemas of their own, at most {CHAIN_MAX}");
            return Err(Failure::new(Kind::Limit, message).at(at));
        }
        self.list(value, at)
    }

    fn list(&mut self, value: &'a Value, at: &str) -> Result<(), Failure> {
        let Some(list) = value.as_array() else {
            let message = format!("{}, expected a list", excerpt(value));
            return Err(Failure::new(Kind::Invalid, message).at(at));
        };
        list.iter().enumerate().try_for_each(|(i, inner)| self.schema(inner, &format!("{at}/{i}")))
    }

    fn reference(&mut self, value: &'a Value, at: &str) -> Result<(), Failure> {
        let text = value.as_str().unwrap_or_default();
        let pointer = text.strip_prefix('#').unwrap_or("?");
        let is_plain =
            pointer.is_empty() || (pointer.starts_with('/') && !pointer.contains(['~', '%']));
        if !is_plain {
            let message = format!("{}, expected # or #/ and plain names", excerpt(value));
            return Err(Failure::new(Kind::Unsupported, message).at(at));
        }
        let Some(part) = self.part(pointer) else {
            let message = format!("{}, expected a place in the schema", excerpt(value));
            return Err(Failure::new(Kind::Invalid, message).at(at));
        };
        self.depths.link(self.now, part);
        Ok(())
    }

    fn draft(value: &Value, at: &str) -> Result<(), Failure> {
        let name = value.as_str().unwrap_or_default().trim_end_matches('#');
        if DRAFTS.contains(&name) {
            return Ok(());
        }
        let found = excerpt(value);
        let message = format!("{found} is not one of the drafts 4, 6, 7, 2019-09, 2020-12");
        Err(Failure::new(Kind::Unsupported, message).at(at))
    }

    fn types(value: &Value, at: &str) -> Result<(), Failure> {
        let list = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
        if list.is_empty() {
            return Err(Failure::new(Kind::Invalid, "[], expected types").at(at));
        }
        for name in list {
            if !name.as_str().is_some_and(|name| TYPES.contains(&name)) {
                let known = TYPES.join(", ");
                let message = format!("{} is not a type, expected {known}", excerpt(name));
                return Err(Failure::new(Kind::Invalid, message).at(at));
            }
        }
        Ok(())
    }

    /// Refuses a value of another kind than the keyword has. A keyword of values of one type does
    /// not matter where the schema's types have none.
    fn shape(key: &str, value: &Value, schema: &Value, at: &str) -> Result<(), Failure> {
        let count = value.as_u64().is_some();
        let (of, fits, expected) = match key {
            "minLength" | "maxLength" => ("string", count, COUNT),
            "minItems" | "maxItems" => ("array", count, COUNT),
            "minProperties" | "maxProperties" => ("object", count, COUNT),
            "pattern" => ("string", value.is_string(), "a string"),
            "enum" => ("", value.is_array(), "a list of values"),
            "anyOf" | "oneOf" => ("", *value != json!([]), "schemas"),
            "required" => {
                let names = value.as_array();
                let fits = names.is_some_and(|names| names.iter().all(Value::is_string));
                ("object", fits, "a list of names")
            }
            "minimum" | "maximum" => ("number", value.is_number(), "a number"),
            "exclusiveMinimum" | "exclusiveMaximum" => {
                ("number", value.is_number() || value.is_boolean(), "a number")
            }
            "multipleOf" => ("number", value.as_f64().is_some_and(|n| n > 0.0), "a number above 0"),
            _ => return Ok(()),
        };
        if fits || !allows(schema, of) {
            return Ok(());
        }
        let message = format!("{}, expected {expected}", excerpt(value));
        Err(Failure::new(Kind::Invalid, message).at(at))
    }

    // A format says something of strings alone.
    fn format(value: &Value, schema: &Value, at: &str) -> Result<(), Failure> {
        let is_known = value.as_str().is_some_and(|name| FORMATS.contains(&name));
        if is_known || !allows(schema, "string") {
            return Ok(());
        }
        let known = FORMATS.join(", ");
        let message = format!("the format {} is not supported, expected {known}", excerpt(value));
        Err(Failure::new(Kind::Unsupported, message).at(at))
    }

    fn numbers(value: &Value, at: &str) -> Result<(), Failure> {
        match value {
            Value::Number(number) => {
                let is_exact = number.as_f64().is_some_and(|n| n.abs() < WHOLE_MAX);
                if is_exact {
                    return Ok(());
                }
                let message = format!("{number} is not below 2^53, where doubles are not exact");
                Err(Failure::new(Kind::Unsupported, message).at(at))
            }
            Value::Array(list) => list
                .iter()
                .enumerate()
                .try_for_each(|(i, v)| Self::numbers(v, &format!("{at}/{i}"))),
            Value::Object(map) => {
                map.iter().try_for_each(|(name, v)| Self::numbers(v, &child(at, name)))
            }
            _ => Ok(()),
        }
    }
}
