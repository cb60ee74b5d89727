//! Limits of one rendering beside the engine's fuel: time, bytes that are alive, and how large
//! and deep a value is. The engine compares, hashes, prints, sorts and drops values with one call a
//! level and without a look at anything, so a value is looked through before it does.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use minijinja::value::{Value, ValueKind};
use minijinja::{Error, ErrorKind, State};

use crate::cycler;
use crate::memory::live_bytes;

/// Limit of values that are alive, beside the variables that the rendering begins with.
const LIVE_BYTES_MAX: i64 = 256 << 20;
/// Elements within each other of a value that is compared, put into another or sorted.
const ELEMENTS_MAX: usize = 1_000_000;
/// JSON comes with at most 128 levels.
const DEPTH_MAX: usize = 200;
/// Elements of a list that is made, and bytes of a string that is multiplied or taken apart.
pub const ITEMS_MAX: usize = 1_000_000;
pub const STRING_BYTES_MAX: usize = 8 << 20;

/// The reason of an error, with its message: the template says so itself, or it is over a limit.
#[derive(Debug)]
pub enum Stop {
    Raised(String),
    OverLimit(String),
}

impl Stop {
    pub fn error(self) -> Error {
        Error::new(ErrorKind::InvalidOperation, self.to_string()).with_source(self)
    }
}

impl std::fmt::Display for Stop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (Stop::Raised(message) | Stop::OverLimit(message)) = self;
        f.write_str(message)
    }
}

impl std::error::Error for Stop {}

pub fn over(message: impl Into<String>) -> Error {
    Stop::OverLimit(message.into()).error()
}

struct Watched {
    deadline: Option<Instant>,
    live_before: i64,
    written: u64,
    written_max: u64,
    output_bytes_max: u64,
}

thread_local! {
    // The engine gives functions no place of their own: a rendering stays on one thread, and this
    // is empty between renderings.
    static WATCHED: RefCell<Option<Watched>> = const { RefCell::new(None) };
}

/// Watches what this thread renders for as long as it lives.
pub struct Watch;

impl Watch {
    pub fn begin(milliseconds_max: u64, output_bytes_max: u64) -> Watch {
        let watched = Watched {
            deadline: (milliseconds_max > 0)
                .then(|| Instant::now() + Duration::from_millis(milliseconds_max)),
            live_before: live_bytes(),
            written: 0,
            // Text of macros and of `set` blocks is written more than once.
            written_max: output_bytes_max.saturating_mul(4),
            output_bytes_max,
        };
        WATCHED.with(|slot| slot.replace(Some(watched)));
        Watch
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        WATCHED.with(|slot| slot.replace(None));
    }
}

/// Stops a rendering that is over its time or bytes.
pub fn tick() -> Result<(), Error> {
    WATCHED.with(|slot| {
        let slot = slot.borrow();
        let Some(watched) = slot.as_ref() else { return Ok(()) };
        if watched.deadline.is_some_and(|deadline| Instant::now() > deadline) {
            return Err(over("the template takes too long"));
        }
        if live_bytes() - watched.live_before > LIVE_BYTES_MAX {
            let message = format!("the template's values take more than {LIVE_BYTES_MAX} bytes");
            return Err(over(message));
        }
        Ok(())
    })
}

/// Counts what is written; fails where no prompt can be so long.
pub fn written(bytes: usize) -> Result<(), Error> {
    WATCHED.with(|slot| {
        let mut slot = slot.borrow_mut();
        let Some(watched) = slot.as_mut() else { return Ok(()) };
        watched.written += bytes as u64;
        if watched.written > watched.written_max {
            return Err(over(format!(
                "the prompt is longer than {} bytes",
                watched.output_bytes_max
            )));
        }
        Ok(())
    })
}

pub fn is_container(value: &Value) -> bool {
    value.as_object().is_some()
}

fn type_name(value: &Value) -> &'static str {
    value.as_object().map_or("", |object| object.type_name())
}

/// A namespace, which changes after it was put somewhere, and could then hold itself.
fn is_namespace(value: &Value) -> bool {
    type_name(value).ends_with("::Namespace")
}

/// A loop holds the elements before and behind.
fn is_loop(value: &Value) -> bool {
    type_name(value).ends_with("::Loop")
}

/// Looks through values, each element for a step of fuel.
struct Walk {
    elements: usize,
    /// Whether namespaces and loops may be within.
    strict: bool,
}

impl Walk {
    fn item(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        self.elements += 1;
        if self.elements > ELEMENTS_MAX {
            let message = format!("a value has more than {ELEMENTS_MAX} elements");
            return Err(over(message));
        }
        if !is_container(value) {
            return Ok(());
        }
        if depth > DEPTH_MAX {
            return Err(over(format!("a value is nested deeper than {DEPTH_MAX}")));
        }
        if self.strict && depth > 0 && (is_namespace(value) || is_loop(value)) {
            let what = if is_loop(value) { "loop" } else { "namespace" };
            let message = format!("a {what} within another value");
            return Err(Error::new(ErrorKind::InvalidOperation, message));
        }
        match cycler::held(value) {
            Some(held) => held.iter().try_for_each(|item| self.item(item, depth + 1)),
            None => self.elements_of(value, depth),
        }
    }

    fn elements_of(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        match value.kind() {
            ValueKind::Seq | ValueKind::Iterable => {
                for item in value.try_iter()? {
                    self.item(&item, depth + 1)?;
                }
            }
            ValueKind::Map => {
                let pairs = value.as_object().and_then(|object| object.try_iter_pairs());
                for (key, item) in pairs.into_iter().flatten() {
                    self.item(&key, depth + 1)?;
                    self.item(&item, depth + 1)?;
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// Bounds what a comparison, a sort or a filter may meet in values.
pub fn look_through(state: &State, values: &[Value]) -> Result<(), Error> {
    look(state, values, false)
}

/// Bounds a value that is put into another one or has been made of others.
pub fn look_into(state: &State, values: &[Value]) -> Result<(), Error> {
    look(state, values, true)
}

fn look(state: &State, values: &[Value], strict: bool) -> Result<(), Error> {
    let mut walk = Walk { elements: 0, strict };
    for value in values {
        if is_container(value) {
            walk.item(value, 0)?;
        }
    }
    state.consume_fuel(walk.elements as u64)
}

/// Two containers; all else is compared and joined in time linear in its bytes.
pub fn both_contain(values: &[Value]) -> bool {
    values.iter().filter(|value| is_container(value)).count() > 1
}

pub fn any_contains(values: &[Value]) -> bool {
    values.iter().any(is_container)
}

/// A list where the engine has made something that computes its elements when it is asked for them,
/// which nests without a bound: a slice of a slice, a list's product.
pub fn settled(state: &State, value: &Value) -> Result<Value, Error> {
    let is_chain = type_name(value).ends_with("::MergeDict");
    if is_chain {
        let pairs = value.as_object().and_then(|object| object.try_iter_pairs());
        let pairs: Vec<(Value, Value)> = pairs.into_iter().flatten().collect();
        state.consume_fuel(pairs.len() as u64)?;
        return Ok(Value::from_pairs(pairs));
    }
    let is_joined = type_name(value).ends_with("::MergeSeq");
    if value.kind() != ValueKind::Iterable && !is_joined {
        return Ok(value.clone());
    }
    let mut items = Vec::new();
    for item in value.try_iter()?.checked() {
        if items.len() == ITEMS_MAX {
            return Err(over(format!("a list has more than {ITEMS_MAX} elements")));
        }
        items.push(item?);
    }
    Ok(Value::from(items))
}
