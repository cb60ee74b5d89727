//! `tojson` as json.dumps, and `from_json`.

use std::fmt::Write;

use minijinja::value::{from_args, Kwargs, Rest, Value, ValueKind, ValueOrKwargs};
use minijinja::{Error, ErrorKind, State};

use crate::filters::named;
use crate::python_text::{self, FIRST_STAND_IN};
use crate::watch;

const DEPTH_MAX: usize = 512;
const INDENT_MAX: usize = 64;
const BYTES_MAX: usize = 64 << 20;
/// A list of two bytes becomes sixty.
const READ_BYTES_MAX: usize = 4 << 20;

struct Style {
    ensure_ascii: bool,
    indent: Option<String>,
    item_separator: String,
    key_separator: String,
    sort_keys: bool,
}

/// json.dumps(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False)
pub fn tojson(state: &State, value: &Value, args: Rest<ValueOrKwargs>) -> Result<Value, Error> {
    let args: Vec<Value> = args.0.into_iter().map(Value::from).collect();
    let (a, b, c, d, kwargs): (
        Option<Value>, Option<Value>, Option<Value>, Option<Value>, Kwargs,
    ) = from_args(&args)?;
    let ensure_ascii = named(a, &kwargs, "ensure_ascii")?.is_some_and(|value| value.is_true());
    let indent = match named(b, &kwargs, "indent")? {
        Some(value) => match value.as_str() {
            Some(text) if text.len() > INDENT_MAX => {
                return Err(watch::over(format!("tojson: indent of {} bytes", text.len())));
            }
            Some(text) => Some(text.to_string()),
            None => Some(" ".repeat(i64::try_from(value)?.clamp(0, INDENT_MAX as i64) as usize)),
        },
        None => None,
    };
    let (mut item, mut key) = (if indent.is_some() { "," } else { ", " }.to_string(), ": ".into());
    if let Some(separators) = named(c, &kwargs, "separators")? {
        item = python_text::str(&separators.get_item_by_index(0)?)?;
        key = python_text::str(&separators.get_item_by_index(1)?)?;
    }
    let sort_keys = named(d, &kwargs, "sort_keys")?.is_some_and(|value| value.is_true());
    kwargs.assert_all_used()?;
    let style = Style { ensure_ascii, indent, item_separator: item, key_separator: key, sort_keys };
    let mut out = String::new();
    write_json(state, value, &style, 0, &mut out)?;
    Ok(Value::from(out))
}

fn refuse(value: &Value) -> Error {
    let message = format!("tojson: a value of type {} is not JSON", value.kind());
    Error::new(ErrorKind::InvalidOperation, message)
}

fn new_line(style: &Style, depth: usize, out: &mut String) {
    if let Some(indent) = &style.indent {
        out.push('\n');
        for _ in 0..depth {
            out.push_str(indent);
        }
    }
}

fn write_json(
    state: &State, value: &Value, style: &Style, depth: usize, out: &mut String,
) -> Result<(), Error> {
    let size_before = out.len();
    if out.len() > BYTES_MAX {
        return Err(watch::over(format!("tojson: more than {BYTES_MAX} bytes")));
    }
    if depth > DEPTH_MAX {
        let message = format!("tojson: nested deeper than {DEPTH_MAX}");
        return Err(Error::new(ErrorKind::InvalidOperation, message));
    }
    match value.kind() {
        ValueKind::None => out.push_str("null"),
        ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
        ValueKind::Number if value.is_integer() => out.push_str(&value.to_string()),
        ValueKind::Number => out.push_str(&number(f64::try_from(value.clone())?)),
        ValueKind::String => {
            write_string(value.as_str().unwrap_or_default(), style.ensure_ascii, out);
        }
        ValueKind::Seq => {
            write_all(('[', ']'), value.try_iter()?, style, depth, out, |item, out| {
                write_json(state, &item, style, depth + 1, out)
            })?;
        }
        ValueKind::Map => write_object(state, value, style, depth, out)?,
        _ => return Err(refuse(value)),
    }
    if depth == 0 {
        state.consume_fuel((out.len() - size_before) as u64 / 64)?;
    } else {
        state.consume_fuel(1)?;
    }
    Ok(())
}

fn number(number: f64) -> String {
    match python_text::float(number).as_str() {
        "nan" => "NaN".to_string(),
        "inf" => "Infinity".to_string(),
        "-inf" => "-Infinity".to_string(),
        text => text.to_string(),
    }
}

/// Items between brackets, each on a line of its own if lines are indented.
fn write_all<T>(
    brackets: (char, char), items: impl Iterator<Item = T>, style: &Style, depth: usize,
    out: &mut String, write: impl Fn(T, &mut String) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut empty = true;
    out.push(brackets.0);
    for item in items {
        if !empty {
            out.push_str(&style.item_separator);
        }
        empty = false;
        new_line(style, depth + 1, out);
        write(item, out)?;
    }
    if !empty {
        new_line(style, depth, out);
    }
    out.push(brackets.1);
    Ok(())
}

/// Keys that are no strings are written as JSON writes the value, in quotes.
fn key_text(key: &Value) -> Result<String, Error> {
    match key.kind() {
        ValueKind::String => Ok(key.as_str().unwrap_or_default().to_string()),
        ValueKind::None => Ok("null".to_string()),
        ValueKind::Bool => Ok(if key.is_true() { "true" } else { "false" }.to_string()),
        ValueKind::Number if key.is_integer() => Ok(key.to_string()),
        ValueKind::Number => Ok(number(f64::try_from(key.clone())?)),
        _ => Err(refuse(key)),
    }
}

fn write_object(
    state: &State, value: &Value, style: &Style, depth: usize, out: &mut String,
) -> Result<(), Error> {
    let pairs = value.as_object().and_then(|object| object.try_iter_pairs());
    let mut pairs: Vec<(Value, Value)> = pairs.ok_or_else(|| refuse(value))?.collect();
    if style.sort_keys {
        pairs.sort_by(|a, b| a.0.cmp(&b.0));
    }
    write_all(('{', '}'), pairs.iter(), style, depth, out, |(key, item), out| {
        write_string(&key_text(key)?, style.ensure_ascii, out);
        out.push_str(&style.key_separator);
        write_json(state, item, style, depth + 1, out)
    })
}

fn write_string(text: &str, ensure_ascii: bool, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            c if (c as u32) < 0x20 => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c if ensure_ascii && (c as u32) > 0x7E && c < FIRST_STAND_IN => {
                // 0x7F is ASCII, which json.dumps leaves as it is.
                if c == '\u{7F}' {
                    out.push(c);
                    continue;
                }
                for unit in c.encode_utf16(&mut [0; 2]) {
                    let _ = write!(out, "\\u{unit:04x}");
                }
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

pub fn from_json(text: &str) -> Result<Value, Error> {
    if text.len() > READ_BYTES_MAX {
        return Err(watch::over(format!("from_json: more than {READ_BYTES_MAX} bytes")));
    }
    let value: serde_json::Value = serde_json::from_str(text).map_err(|error| {
        Error::new(ErrorKind::InvalidOperation, format!("from_json: {error}"))
    })?;
    Ok(value_of(value))
}

/// The template's value of a JSON value; objects keep their order.
pub fn value_of(json: serde_json::Value) -> Value {
    match json {
        serde_json::Value::Null => Value::from(()),
        serde_json::Value::Bool(flag) => Value::from(flag),
        serde_json::Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(whole), _) => Value::from(whole),
            (None, Some(whole)) => Value::from(whole),
            (None, None) => Value::from(number.as_f64().unwrap_or(f64::NAN)),
        },
        serde_json::Value::String(text) => Value::from(text),
        serde_json::Value::Array(items) => {
            Value::from(items.into_iter().map(value_of).collect::<Vec<Value>>())
        }
        serde_json::Value::Object(pairs) => {
            let pairs = pairs.into_iter().map(|(key, item)| (Value::from(key), value_of(item)));
            Value::from_pairs(pairs)
        }
    }
}
