//! Jinja's filters and globals where minijinja has none, or others.

use minijinja::value::{ArgType, Kwargs, Rest, Value, ValueKind, ValueOrKwargs};
use minijinja::{Error, ErrorKind, State};

use crate::cycler::{Cycler, Joiner};
use crate::{methods, python_text, watch};

/// An argument that was given by its place, or is by its name. None is as if it was not given.
pub fn named<'a, T>(
    given: Option<T>, kwargs: &'a Kwargs, name: &'a str,
) -> Result<Option<T>, Error>
where
    Option<T>: ArgType<'a, Output = Option<T>>,
{
    match given {
        Some(value) => Ok(Some(value)),
        None => kwargs.get(name),
    }
}

pub fn string(state: &State, value: &Value) -> Result<Value, Error> {
    if value.kind() == ValueKind::String {
        return Ok(value.clone());
    }
    let text = python_text::str(value)?;
    state.consume_fuel(text.len() as u64 / 64)?;
    Ok(Value::from(text))
}

/// default(value, default_value='', boolean=False)
pub fn default(
    value: &Value, other: Option<Value>, boolean: Option<bool>, kwargs: Kwargs,
) -> Result<Value, Error> {
    let other = named(other, &kwargs, "default_value")?.unwrap_or_else(|| Value::from(""));
    let boolean = named(boolean, &kwargs, "boolean")?.unwrap_or(false);
    kwargs.assert_all_used()?;
    let absent = value.is_undefined() || (boolean && !value.is_true());
    Ok(if absent { other } else { value.clone() })
}

fn as_float(value: &Value) -> Option<f64> {
    match value.kind() {
        ValueKind::Bool => Some(f64::from(u8::from(value.is_true()))),
        ValueKind::Number => f64::try_from(value.clone()).ok(),
        ValueKind::String => value.as_str()?.trim().replace('_', "").parse().ok(),
        _ => None,
    }
}

/// int(value, default=0, base=10): no text fails.
pub fn int(
    value: &Value, other: Option<Value>, base: Option<u32>, kwargs: Kwargs,
) -> Result<Value, Error> {
    let other = named(other, &kwargs, "default")?.unwrap_or_else(|| Value::from(0));
    let base = named(base, &kwargs, "base")?.unwrap_or(10);
    kwargs.assert_all_used()?;
    if value.is_integer() {
        return Ok(value.clone());
    }
    if let Some(text) = value.as_str() {
        let text = text.trim().replace('_', "");
        if (2..=36).contains(&base) {
            let digits = match base {
                16 => text.trim_start_matches("0x").trim_start_matches("0X"),
                8 => text.trim_start_matches("0o").trim_start_matches("0O"),
                2 => text.trim_start_matches("0b").trim_start_matches("0B"),
                _ => text.as_str(),
            };
            if let Ok(number) = i128::from_str_radix(digits, base) {
                return Ok(Value::from(number));
            }
        }
    }
    match as_float(value) {
        Some(number) if number.is_finite() && number.abs() < 1e38 => {
            Ok(Value::from(number.trunc() as i128))
        }
        _ => Ok(other),
    }
}

/// float(value, default=0.0)
pub fn float(value: &Value, other: Option<Value>) -> Value {
    as_float(value).map_or_else(|| other.unwrap_or_else(|| Value::from(0.0)), Value::from)
}

pub fn format(
    state: &mut State, text: &Value, args: Rest<ValueOrKwargs>,
) -> Result<Value, Error> {
    let given: Vec<Value> = args.0.iter().cloned().map(Value::from).collect();
    methods::check_format(text.as_str().unwrap_or_default(), b'%', &given)?;
    minijinja::filters::format(state, text, args)
}

/// slice(value, slices, fill_with=None), each of which is a list, be there nothing for it.
pub fn slice(
    state: &State, value: Value, count: usize, fill: Option<Value>,
) -> Result<Value, Error> {
    if count > watch::ITEMS_MAX {
        return Err(watch::over(format!("slice: {count} lists")));
    }
    minijinja::filters::slice(state, value, count, fill)
}

/// dict(...) and namespace(...), whose values are looked into: nothing may hold itself.
pub fn dict(state: &State, value: Option<Value>, more: Kwargs) -> Result<Value, Error> {
    let made = minijinja::functions::dict(value, more)?;
    watch::look_into(state, std::slice::from_ref(&made))?;
    Ok(made)
}

pub fn namespace(state: &State, values: Option<ValueOrKwargs>) -> Result<Value, Error> {
    let made = minijinja::functions::namespace(values)?;
    watch::look_into(state, std::slice::from_ref(&made))?;
    Ok(made)
}

pub fn wordcount(value: &Value) -> Result<usize, Error> {
    Ok(python_text::str(value)?
        .split(|c: char| !(c.is_alphanumeric() || c == '_'))
        .filter(|word| !word.is_empty())
        .count())
}

pub fn center(state: &mut State, value: &Value, width: Option<i64>) -> Result<Value, Error> {
    let text = Value::from(python_text::str(value)?);
    methods::call(state, &text, "center", &[Value::from(width.unwrap_or(80))])
}

/// cycler(...) and joiner(', '), whose items are looked into, too.
pub fn cycler(state: &State, items: Rest<Value>) -> Result<Value, Error> {
    watch::look_into(state, &[Value::from(items.0.clone())])?;
    if items.0.is_empty() {
        return Err(Error::new(ErrorKind::MissingArgument, "cycler: at least one item"));
    }
    Ok(Value::from_object(Cycler::new(items.0)))
}

pub fn joiner(state: &State, separator: Option<Value>) -> Result<Value, Error> {
    let separator = separator.unwrap_or_else(|| Value::from(", "));
    watch::look_into(state, &[Value::from(vec![separator.clone()])])?;
    Ok(Value::from_object(Joiner::new(separator)))
}
