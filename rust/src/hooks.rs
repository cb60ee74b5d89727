//! Puts calls of ours between a compiled template's instructions: the engine counts fuel, but one
//! of its instructions may take any time and memory (`x == y` where x and y are lists that hold
//! each other twice, sixty levels deep). A call looks at clock and bytes, and at what the next
//! instruction is about to work on.

use std::fmt;
use std::sync::Arc;

use minijinja::machinery::{Instruction, Instructions};
use minijinja::value::{Object, ObjectRepr, Value, ValueKind};
use minijinja::{Error, State};

use crate::watch;

/// Instructions in a row that go without a look, each linear in the bytes of its operands.
const UNWATCHED_MAX: usize = 16;

/// Filters that look at a value's own elements at most, and not into those.
const SHALLOW_FILTERS: [&str; 27] = [
    "abs", "bool", "capitalize", "count", "d", "default", "e", "escape", "first", "float", "int",
    "last", "length", "list", "lower", "moeflux_same", "reverse", "round", "safe", "string",
    "title", "tojson", "trim", "upper", "items", "attr", "indent",
];
/// Filters whose results hold lists of their input's elements, which may hold lists.
const NESTING_FILTERS: [&str; 8] =
    ["batch", "chain", "dictsort", "groupby", "items", "map", "slice", "zip"];
/// Filters and methods that make many values of a string.
const TEARING: [&str; 19] = [
    "batch", "from_json", "join", "lines", "list", "map", "max", "min", "reject", "reverse",
    "rsplit", "select", "slice", "sort", "split", "splitlines", "unique", "zip", "groupby",
];
/// Methods that compare or print what they are given.
const DEEP_METHODS: [&str; 5] = ["changed", "count", "format", "index", "join"];

#[derive(Clone, Copy, PartialEq)]
enum Task {
    /// Nothing but a look at clock and bytes.
    Tick,
    Compare,
    /// The first is looked for in the second, or its text is.
    Search,
    /// Two texts, or what is printed.
    Concatenate,
    Add,
    Multiply,
    /// A value and the namespace that takes it.
    Assign,
    /// Arguments of a filter, test or method.
    Arguments { deep: bool, tears: bool },
    /// Elements for `map`, `select` and their like, which look into them if asked to.
    EachElement { calls_filter: bool },
    /// The value that was made.
    Settle { nests: bool },
    Built,
}

/// Called with one value, which it returns, perhaps settled.
struct Hook(Task);

impl fmt::Debug for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("hook")
    }
}

fn items(list: &Value) -> &[Value] {
    list.downcast_object_ref::<Vec<Value>>().map_or(&[], Vec::as_slice)
}

fn length(value: &Value) -> usize {
    match value.kind() {
        ValueKind::Seq | ValueKind::Iterable => value.len().unwrap_or(0),
        _ => 0,
    }
}

fn check_sum(values: &[Value]) -> Result<(), Error> {
    if values.iter().map(length).fold(0, usize::saturating_add) > watch::ITEMS_MAX {
        return Err(watch::over(format!("a list has more than {} elements", watch::ITEMS_MAX)));
    }
    Ok(())
}

fn check_product(values: &[Value]) -> Result<(), Error> {
    let times = values.iter().filter_map(Value::as_usize).fold(1, usize::saturating_mul);
    let many = values.iter().map(length).max().unwrap_or(0).saturating_mul(times);
    let long = values.iter().filter_map(Value::as_str).map(str::len).max().unwrap_or(0);
    if many > watch::ITEMS_MAX || long.saturating_mul(times) > watch::STRING_BYTES_MAX {
        return Err(watch::over("a product of a list or text is too long"));
    }
    Ok(())
}

fn check_assignment(state: &State, value: &Value) -> Result<(), Error> {
    match value.kind() {
        ValueKind::Map | ValueKind::Plain => {
            watch::look_into(state, &[Value::from(vec![value.clone()])])
        }
        _ => Ok(()),
    }
}

fn check_arguments(state: &State, given: &[Value], deep: bool, tears: bool) -> Result<(), Error> {
    let text = given.first().and_then(Value::as_str).unwrap_or_default();
    if tears && text.len() > watch::STRING_BYTES_MAX {
        return Err(watch::over(format!("a text of {} bytes is taken apart", text.len())));
    }
    if deep && watch::any_contains(given) {
        watch::look_through(state, given)?;
    }
    Ok(())
}

impl Object for Hook {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn call(self: &Arc<Self>, state: &mut State, args: &[Value]) -> Result<Value, Error> {
        watch::tick()?;
        let Some(value) = args.first() else { return Ok(Value::UNDEFINED) };
        let given = items(value);
        match self.0 {
            Task::Tick => {}
            Task::Compare if watch::both_contain(given) => watch::look_through(state, given)?,
            Task::Search if given.first().is_some_and(watch::is_container) => {
                watch::look_through(state, given)?;
            }
            Task::Concatenate if watch::any_contains(given) => watch::look_through(state, given)?,
            Task::Compare | Task::Search | Task::Concatenate => {}
            Task::Add => check_sum(given)?,
            Task::Multiply => check_product(given)?,
            Task::Assign => {
                if let Some(assigned) = given.first() {
                    check_assignment(state, assigned)?;
                }
            }
            Task::Arguments { deep, tears } => check_arguments(state, given, deep, tears)?,
            Task::EachElement { calls_filter } => {
                let args = given.get(1..).unwrap_or_default();
                let filters = calls_filter && args.first().is_some_and(|first| !first.is_kwargs());
                let deep =
                    filters || args.iter().any(|one| watch::is_container(one) && !one.is_kwargs());
                check_arguments(state, given, deep, true)?;
            }
            Task::Settle { nests } => {
                let settled = watch::settled(state, value)?;
                if nests {
                    watch::look_into(state, std::slice::from_ref(&settled))?;
                }
                return Ok(settled);
            }
            Task::Built => watch::look_into(state, std::slice::from_ref(value))?,
        }
        Ok(value.clone())
    }
}

/// Copies instructions and puts calls before and behind them; jumps are moved.
struct Hooker<'source> {
    out: Instructions<'source>,
    unwatched: usize,
}

impl<'source> Hooker<'source> {
    fn add(&mut self, from: &Instructions<'source>, at: u32, instruction: Instruction<'source>) {
        match (from.get_span(at), from.get_line(at)) {
            (Some(span), _) => self.out.add_with_span(instruction, span),
            (None, Some(line)) => {
                self.out.add_with_line(instruction, line.min(usize::from(u16::MAX)) as u16)
            }
            (None, None) => self.out.add(instruction),
        };
    }

    /// Calls a hook with nothing: the stack is as before.
    fn tick(&mut self, from: &Instructions<'source>, at: u32) {
        self.unwatched = 0;
        self.add(from, at, Instruction::LoadConst(hook(Task::Tick)));
        self.add(from, at, Instruction::CallObject(Some(1)));
        self.add(from, at, Instruction::DiscardTop);
    }

    /// Calls a hook with the top of the stack, which becomes what it returns.
    fn on_top(&mut self, from: &Instructions<'source>, at: u32, task: Task) {
        self.unwatched = 0;
        self.add(from, at, Instruction::LoadConst(hook(task)));
        self.add(from, at, Instruction::Swap);
        self.add(from, at, Instruction::CallObject(Some(2)));
    }

    /// Calls a hook with a list of the top values (`None`: of as many as the top of the stack says)
    /// and puts them back, with their number on top.
    fn on_list(&mut self, from: &Instructions<'source>, at: u32, count: Option<u16>, task: Task) {
        self.add(from, at, Instruction::BuildList(count.map(usize::from)));
        self.on_top(from, at, task);
        self.add(from, at, Instruction::UnpackLists(1));
    }

    fn on_two(&mut self, from: &Instructions<'source>, at: u32, task: Task) {
        self.on_list(from, at, Some(2), task);
        self.add(from, at, Instruction::DiscardTop);
    }
}

fn hook(task: Task) -> Value {
    Value::from_object(Hook(task))
}

fn target<'a>(instruction: &'a mut Instruction<'_>) -> Option<&'a mut u32> {
    match instruction {
        Instruction::Iterate(target)
        | Instruction::Jump(target)
        | Instruction::JumpIfFalse(target)
        | Instruction::JumpIfFalseOrPop(target)
        | Instruction::JumpIfTrueOrPop(target)
        | Instruction::BuildMacro(_, target, _) => Some(target),
        _ => None,
    }
}

fn filter_task(name: &str) -> Task {
    match name {
        "map" => Task::EachElement { calls_filter: true },
        "select" | "reject" | "selectattr" | "rejectattr" => {
            Task::EachElement { calls_filter: false }
        }
        _ => Task::Arguments {
            deep: !SHALLOW_FILTERS.contains(&name),
            tears: TEARING.contains(&name),
        },
    }
}

/// Whether the instruction's second operand is a constant number or text, so that nothing is to be
/// looked into.
fn takes_plain_constant(from: &Instructions, at: u32, is_target: &[bool]) -> bool {
    if at == 0 || is_target[at as usize] {
        return false;
    }
    matches!(from.get(at - 1), Some(Instruction::LoadConst(value)) if value.as_object().is_none())
}

pub fn with_hooks<'source>(from: &Instructions<'source>) -> Instructions<'source> {
    let mut count = 0u32;
    let mut is_target = Vec::new();
    while let Some(instruction) = from.get(count) {
        count += 1;
        is_target.resize(is_target.len().max(count as usize + 1), false);
        if let Some(target) = target(&mut instruction.clone()) {
            is_target.resize(is_target.len().max(*target as usize + 1), false);
            is_target[*target as usize] = true;
        }
    }
    let out = Instructions::new(from.name(), from.source());
    let mut hooker = Hooker { out, unwatched: 0 };
    let mut places = Vec::with_capacity(count as usize + 1);
    let mut at = 0;
    while let Some(instruction) = from.get(at) {
        places.push(count_of(&hooker.out, places.last().copied().unwrap_or(0)));
        hooker.unwatched += 1;
        copy_hooked(&mut hooker, from, at, instruction, &is_target);
        at += 1;
    }
    places.push(count_of(&hooker.out, places.last().copied().unwrap_or(0)));
    let mut moved = 0;
    while let Some(instruction) = hooker.out.get_mut(moved) {
        if let Some(target) = target(instruction) {
            *target = places[*target as usize];
        }
        moved += 1;
    }
    hooker.out
}

/// The number of instructions, at least `known` of them.
fn count_of(instructions: &Instructions, known: u32) -> u32 {
    let mut count = known;
    while instructions.get(count).is_some() {
        count += 1;
    }
    count
}

fn copy_hooked<'source>(
    hooker: &mut Hooker<'source>, from: &Instructions<'source>, at: u32,
    instruction: &Instruction<'source>, is_target: &[bool],
) {
    let plain = takes_plain_constant(from, at, is_target);
    let mut copied = instruction.clone();
    let mut behind = None;
    match &mut copied {
        Instruction::EmitRaw(text) => {
            // Written by the formatter, which counts.
            hooker.add(from, at, Instruction::LoadConst(Value::from(*text)));
            copied = Instruction::Emit;
        }
        Instruction::Iterate(_) | Instruction::CallFunction(..) | Instruction::CallObject(_) => {
            hooker.tick(from, at);
        }
        Instruction::Eq | Instruction::Ne | Instruction::Lt | Instruction::Lte | Instruction::Gt
        | Instruction::Gte | Instruction::CompareAndPreserve(_)
            if !plain =>
        {
            hooker.on_two(from, at, Task::Compare);
        }
        Instruction::In => hooker.on_two(from, at, Task::Search),
        Instruction::StringConcat => hooker.on_two(from, at, Task::Concatenate),
        Instruction::Add if !plain => hooker.on_two(from, at, Task::Add),
        Instruction::Mul => {
            hooker.on_two(from, at, Task::Multiply);
            behind = Some(Task::Settle { nests: false });
        }
        Instruction::SetAttr(_) => hooker.on_two(from, at, Task::Assign),
        Instruction::Slice => behind = Some(Task::Settle { nests: false }),
        Instruction::BuildList(Some(count)) | Instruction::BuildMap(count)
        | Instruction::BuildTuple(Some(count))
            if *count > 0 =>
        {
            behind = Some(Task::Built);
        }
        Instruction::ApplyFilter(name, count, _) => {
            hooker.on_list(from, at, *count, filter_task(name));
            *count = None;
            let nests = NESTING_FILTERS.contains(name);
            if nests || !SHALLOW_FILTERS.contains(name) || matches!(*name, "reverse") {
                behind = Some(Task::Settle { nests });
            }
        }
        Instruction::PerformTest(_, count, _) if *count != Some(1) => {
            hooker.on_list(from, at, *count, Task::Search);
            *count = None;
        }
        Instruction::CallMethod(name, count) => {
            let deep = DEEP_METHODS.contains(name);
            let tears = TEARING.contains(name);
            hooker.on_list(from, at, *count, Task::Arguments { deep, tears });
            *count = None;
        }
        _ if hooker.unwatched >= UNWATCHED_MAX => hooker.tick(from, at),
        _ => {}
    }
    hooker.add(from, at, copied);
    if let Some(task) = behind {
        hooker.on_top(from, at, task);
    }
}
