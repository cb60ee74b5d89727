//! The cost of a JSON schema where several of its parts hold for one value: llguidance copies and
//! intersects them, alternative by alternative. This walks the same pairs and counts, within an
//! allowance of its own.

use std::collections::{HashMap, HashSet};

use llguidance::derivre::{RegexAst, RegexBuilder};
use llguidance::regex_to_lark;
use serde_json::{Map, Value};

use crate::constraint_costs::{too_much, Cost, Costs};
use crate::constraint_failure::Failure;
use crate::regex_cost::{are_too_many, positions, ways_of};

/// llguidance refuses what is deeper.
const DEPTH_MAX: usize = 128;
/// Properties of an object follow each other in a chain, as items do that have schemas of their
/// own.
pub const CHAIN_MAX: usize = 2000;
/// Each that may be left out has four places in a row of llguidance's, which takes 2000.
const OPTIONAL_MAX: usize = 500;
/// With a least or greatest number of properties there is a chain for each.
const COUNTED_MAX: usize = 100;
/// Each is compared with each: copies, at most.
const PATTERNS_MAX: usize = 32;
/// Ways of a format's expression and of a length.
const FORMAT_WAYS: u64 = 32;
const LENGTH_WAYS: u64 = 3;

const APPLICATORS: [&str; 6] = ["allOf", "anyOf", "oneOf", "enum", "const", "$ref"];

/// The cost of a look at a value, in copies.
const STEP: u64 = 20;

pub struct Merges<'a> {
    root: &'a Value,
    sizes: HashMap<*const Value, u64>,
    ways: HashMap<&'a str, u64>, // of patterns
}

type Checked = Result<(), Failure>;

impl<'a> Merges<'a> {
    pub fn new(root: &'a Value) -> Merges<'a> {
        Merges { root, sizes: HashMap::new(), ways: HashMap::new() }
    }

    /// Fails with the excess at this place, if there is one; references that do not resolve are
    /// left to others.
    pub fn check(&mut self, costs: &mut Costs, schema: &'a Value) -> Checked {
        let Some(object) = schema.as_object() else { return Ok(()) };
        self.check_patterns(costs, object)?;
        let names = object.get("properties").and_then(Value::as_object);
        self.check_chain(&names.into_iter().flat_map(Map::keys).collect(), &[object])?;
        if let Some(options) = object.get("oneOf").and_then(Value::as_array) {
            self.check_exclusive(costs, options)?;
        }
        self.check_strings(&[schema])?;
        let is_alone = object.len() == 1 && !object.contains_key("allOf");
        if !is_alone && APPLICATORS.iter().any(|key| object.contains_key(*key)) {
            self.merge(costs, Vec::new(), vec![schema], Vec::new(), 0)?;
        }
        Ok(())
    }

    fn size(&mut self, value: &'a Value) -> u64 {
        let place: *const Value = value;
        if let Some(known) = self.sizes.get(&place) {
            return *known;
        }
        let size = 1 + match value {
            Value::String(text) => text.len() as u64 / 64,
            Value::Array(list) => list.iter().map(|one| self.size(one)).sum(),
            Value::Object(object) => {
                object.iter().map(|(name, one)| name.len() as u64 / 64 + self.size(one)).sum()
            }
            _ => 0,
        };
        self.sizes.insert(place, size);
        size
    }

    /// All of `open` and `plain` hold, and one of each of `choices`. Parts in `plain` have been
    /// taken apart.
    fn merge(
        &mut self,
        costs: &mut Costs,
        mut plain: Vec<&'a Value>,
        mut open: Vec<&'a Value>,
        mut choices: Vec<&'a [Value]>,
        depth: usize,
    ) -> Checked {
        let mut constants = 0;
        let mut seen = HashSet::new();
        while let Some(one) = open.pop() {
            costs.spend(Cost::Copies, STEP)?;
            let Some(object) = one.as_object() else { continue };
            if !seen.insert(one as *const Value) {
                continue;
            }
            if object.keys().any(|key| !APPLICATORS.contains(&key.as_str())) {
                plain.push(one);
            }
            let list = |key: &str| object.get(key).and_then(Value::as_array);
            open.extend(list("allOf").into_iter().flatten());
            open.extend(self.target(object));
            constants += list("enum").map_or(0, |list| list.len() as u64);
            for options in ["anyOf", "oneOf"].into_iter().filter_map(list) {
                match options.as_slice() {
                    [only] => open.push(only),
                    _ => choices.push(options),
                }
            }
        }
        let copied: u64 = plain.iter().map(|one| self.size(one)).sum();
        costs.spend(Cost::Copies, copied.saturating_mul(constants.max(1)))?;
        let Some(options) = choices.pop() else { return self.combine(costs, &plain, depth) };
        if plain.is_empty() && choices.is_empty() {
            return Ok(()); // alternatives alone: each is a place of its own
        }
        for option in options {
            self.merge(costs, plain.clone(), vec![option], choices.clone(), depth)?;
        }
        Ok(())
    }

    fn target(&self, object: &'a Map<String, Value>) -> Option<&'a Value> {
        self.root.pointer(object.get("$ref")?.as_str()?.strip_prefix('#')?)
    }

    /// These objects, without what is in place of them, hold for one value.
    fn combine(&mut self, costs: &mut Costs, plain: &[&'a Value], depth: usize) -> Checked {
        if plain.len() < 2 {
            return Ok(());
        }
        if depth > DEPTH_MAX {
            return Err(too_much(format!(
                "parts that hold together nest more than {DEPTH_MAX} deep"
            )));
        }
        // They are joined one after the other, for each of six types where none is said.
        let copied: u64 = plain.iter().map(|one| self.size(one)).sum();
        costs.spend(Cost::Copies, copied.saturating_mul(plain.len() as u64))?;
        self.check_strings(plain)?;
        let objects: Vec<_> = plain.iter().filter_map(|one| one.as_object()).collect();
        self.combine_properties(costs, &objects, depth)?;
        self.combine_items(costs, &objects, depth)
    }

    fn together(&mut self, costs: &mut Costs, schemas: Vec<&'a Value>, depth: usize) -> Checked {
        let copied: u64 = schemas.iter().map(|one| self.size(one)).sum();
        costs.spend(Cost::Copies, copied)?;
        if schemas.len() < 2 {
            return Ok(());
        }
        self.merge(costs, Vec::new(), schemas, Vec::new(), depth + 1)
    }

    fn combine_properties(
        &mut self,
        costs: &mut Costs,
        objects: &[&'a Map<String, Value>],
        depth: usize,
    ) -> Checked {
        let map =
            |object: &'a Map<String, Value>, key: &str| object.get(key).and_then(Value::as_object);
        let mut names = HashSet::new();
        let mut patterns = HashSet::new();
        for object in objects {
            names.extend(map(object, "properties").into_iter().flat_map(Map::keys));
            patterns.extend(map(object, "patternProperties").into_iter().flat_map(Map::keys));
        }
        self.check_chain(&names, objects)?;
        self.check_pattern_count(costs, patterns.len())?;
        for name in names {
            let mut schemas = Vec::new();
            for object in objects {
                match map(object, "properties").and_then(|all| all.get(name)) {
                    Some(schema) => schemas.push(schema),
                    None => {
                        schemas.extend(
                            map(object, "patternProperties").into_iter().flat_map(Map::values),
                        );
                        schemas.extend(object.get("additionalProperties"));
                    }
                }
            }
            self.together(costs, schemas, depth)?;
        }
        for pattern in patterns {
            let of = |object: &&'a Map<String, Value>| {
                let own = map(object, "patternProperties").and_then(|all| all.get(pattern));
                own.or_else(|| object.get("additionalProperties"))
            };
            self.together(costs, objects.iter().filter_map(of).collect(), depth)?;
        }
        let rest = objects.iter().filter_map(|object| object.get("additionalProperties"));
        self.together(costs, rest.collect(), depth)
    }

    fn combine_items(
        &mut self,
        costs: &mut Costs,
        objects: &[&'a Map<String, Value>],
        depth: usize,
    ) -> Checked {
        let first = |object: &'a Map<String, Value>| {
            let list = |key: &str| object.get(key).and_then(Value::as_array);
            list("prefixItems").or_else(|| list("items")).map_or(&[][..], Vec::as_slice)
        };
        let rest = |object: &'a Map<String, Value>| {
            object.get("items").filter(|items| !items.is_array()).or(object.get("additionalItems"))
        };
        let longest = objects.iter().map(|object| first(object).len()).max().unwrap_or(0);
        for at in 0..longest {
            let of =
                |object: &&'a Map<String, Value>| first(object).get(at).or_else(|| rest(object));
            self.together(costs, objects.iter().filter_map(of).collect(), depth)?;
        }
        self.together(costs, objects.iter().filter_map(|object| rest(object)).collect(), depth)
    }

    /// `objects` hold together and have properties of these names.
    fn check_chain(&self, names: &HashSet<&String>, objects: &[&Map<String, Value>]) -> Checked {
        let lists = objects.iter().filter_map(|object| object.get("required")?.as_array());
        let required: HashSet<&str> = lists.flatten().filter_map(Value::as_str).collect();
        let optional = names.iter().filter(|name| !required.contains(name.as_str())).count();
        let counted = ["minProperties", "maxProperties"];
        let is_counted = objects.iter().any(|one| counted.iter().any(|key| one.contains_key(*key)));
        let all = optional + required.len();
        for (found, most, what) in [
            (all, CHAIN_MAX, "properties of an object"),
            (optional, OPTIONAL_MAX, "properties of an object that are not required"),
            (
                if is_counted { all } else { 0 },
                COUNTED_MAX,
                "properties of an object that has to have some number of them",
            ),
        ] {
            if found > most {
                return Err(too_much(format!("{found} {what}, at most {most}")));
            }
        }
        Ok(())
    }

    fn check_pattern_count(&mut self, costs: &mut Costs, patterns: usize) -> Checked {
        if patterns > PATTERNS_MAX {
            return Err(too_much(format!("{patterns} patternProperties, at most {PATTERNS_MAX}")));
        }
        costs.spend(Cost::Copies, (patterns * patterns * 100) as u64)
    }

    fn check_patterns(&mut self, costs: &mut Costs, object: &'a Map<String, Value>) -> Checked {
        let patterns = object.get("patternProperties").and_then(Value::as_object);
        let Some(patterns) = patterns else { return Ok(()) };
        self.check_pattern_count(costs, patterns.len())?;
        let two =
            |ways: &[u64]| ways.iter().fold(1u64, |product, one| product.saturating_mul(*one));
        let mut ways: Vec<u64> = patterns.keys().map(|pattern| self.ways_of(pattern)).collect();
        ways.sort_unstable();
        if are_too_many(two(&ways[ways.len().saturating_sub(2)..])) {
            return Err(too_much("patternProperties that are too complex to compare"));
        }
        let names = object.get("properties").and_then(Value::as_object);
        let bytes: usize = names.into_iter().flat_map(Map::keys).map(String::len).sum();
        let all = patterns.keys().filter_map(|pattern| positions(pattern));
        let steps = all.fold(0u64, |sum, one| sum.saturating_add(one)).saturating_mul(bytes as u64);
        costs.spend(Cost::NameSteps, steps)
    }

    fn check_exclusive(&mut self, costs: &mut Costs, options: &'a [Value]) -> Checked {
        let required = |one: &Value| one.get("required").map_or(0, length);
        let most = options.iter().map(required).max().unwrap_or(0) as u64;
        let count: u64 = options.iter().map(alternatives).sum();
        costs.spend(Cost::Pairs, count.saturating_mul(count).saturating_mul(1 + most))
    }

    /// Expressions that hold for one string.
    fn check_strings(&mut self, plain: &[&'a Value]) -> Checked {
        let mut product = 1u64;
        for one in plain {
            if let Some(pattern) = one.get("pattern").and_then(Value::as_str) {
                product = product.saturating_mul(self.ways_of(pattern));
            }
            if one.get("format").is_some() {
                product = product.saturating_mul(FORMAT_WAYS);
            }
        }
        let has_length = |one: &&Value| one.get("minLength").or(one.get("maxLength")).is_some();
        if plain.iter().any(has_length) {
            product = product.saturating_mul(LENGTH_WAYS);
        }
        if are_too_many(product) {
            return Err(too_much("patterns and formats that hold together and are too complex"));
        }
        Ok(())
    }

    fn ways_of(&mut self, pattern: &'a str) -> u64 {
        if let Some(known) = self.ways.get(pattern) {
            return *known;
        }
        let mut builder = RegexBuilder::new();
        let made = builder.mk(&RegexAst::SearchRegex(regex_to_lark(pattern, "dw")));
        // A part that does not parse is refused when it is compiled.
        let ways = made.map_or(1, |expression| ways_of(builder.exprset(), expression));
        self.ways.insert(pattern, ways);
        ways
    }
}

fn length(value: &Value) -> usize {
    match value {
        Value::Array(list) => list.len(),
        Value::Object(object) => object.len(),
        _ => 0,
    }
}

/// How many alternatives stand where this one does once those within it are taken out.
fn alternatives(schema: &Value) -> u64 {
    let list = |key: &str| schema.get(key).and_then(Value::as_array);
    let inner = ["anyOf", "oneOf"].into_iter().filter_map(list).flatten();
    let inner: u64 = inner.map(alternatives).sum();
    inner.max(list("enum").map_or(0, |list| list.len() as u64)).max(1)
}
