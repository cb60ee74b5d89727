//! The environment that chat templates expect: Jinja's immutable sandbox as the transformers
//! library sets it up, with blocks trimmed and stripped, loop controls, its own `tojson`,
//! `raise_exception` and `strftime_now`.

use minijinja::value::{Value, ValueKind};
use minijinja::{AutoEscape, Environment, Error, Output, State, UndefinedBehavior};

use crate::watch::Stop;
use crate::{filters, json, methods, python_text, source, watch};

fn raise_exception(message: &Value) -> Result<Value, Error> {
    Err(Stop::Raised(python_text::str(message)?).error())
}

fn write_value(out: &mut Output, state: &mut State, value: &Value) -> Result<(), Error> {
    match value.as_str() {
        Some(text) => {
            watch::written(text.len())?;
            out.write_str(text).map_err(Error::from)
        }
        None => {
            let text = python_text::str(value)?;
            watch::tick()?;
            watch::written(text.len())?;
            state.consume_fuel(text.len() as u64 / 64)?;
            out.write_str(&text).map_err(Error::from)
        }
    }
}

/// As in Python, where strings and dictionaries have a length and can be indexed.
fn is_sequence(value: &Value) -> bool {
    matches!(
        value.kind(),
        ValueKind::Seq | ValueKind::String | ValueKind::Map | ValueKind::Undefined
    )
}

fn is_iterable(value: &Value) -> bool {
    is_sequence(value) || value.kind() == ValueKind::Iterable
}

pub fn make_environment() -> Environment<'static> {
    let mut env = Environment::new();
    env.set_syntax(source::syntax());
    env.set_auto_escape_callback(|_| AutoEscape::None);
    env.set_undefined_behavior(UndefinedBehavior::Lenient);
    env.set_debug(false);
    env.set_recursion_limit(200);
    env.set_formatter(write_value);
    env.set_unknown_method_callback(methods::call);
    env.add_function("raise_exception", raise_exception);
    env.add_function("cycler", filters::cycler);
    env.add_function("joiner", filters::joiner);
    env.add_function("dict", filters::dict);
    env.add_function("namespace", filters::namespace);
    // Prints all there is, on lines as deep as values are; transformers has none.
    env.remove_global("debug");
    // All of a value on one line, as pprint prints what fits it.
    env.add_filter("pprint", python_text::repr);
    env.add_filter("format", filters::format);
    env.add_filter("slice", filters::slice);
    env.add_filter(source::SAME, |value: Value| value);
    env.add_filter("tojson", json::tojson);
    // Jinja has none, but templates that were written for other engines use it.
    env.add_filter("from_json", json::from_json);
    env.add_filter("string", filters::string);
    env.add_filter("default", filters::default);
    env.add_filter("d", filters::default);
    env.add_filter("int", filters::int);
    env.add_filter("float", filters::float);
    env.add_filter("wordcount", filters::wordcount);
    env.add_filter("center", filters::center);
    env.add_test("sequence", is_sequence);
    env.add_test("iterable", is_iterable);
    env
}
