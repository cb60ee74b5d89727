//! Methods of Python's strings, lists and dictionaries beyond those of minijinja-contrib. Methods
//! that change a list or dictionary are refused, as the immutable sandbox refuses them.

use minijinja::filters::split;
use minijinja::value::{from_args, Kwargs, Value, ValueKind};
use minijinja::{Error, ErrorKind, State};
use minijinja_contrib::pycompat::unknown_method_callback;

use crate::watch;

/// Limit of a text that one call makes.
const TEXT_BYTES_MAX: usize = 64 << 20;

fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

pub fn call(
    state: &mut State, value: &Value, method: &str, args: &[Value],
) -> Result<Value, Error> {
    let own = match value.kind() {
        ValueKind::String => {
            string_method(state, value.as_str().unwrap_or_default(), method, args)?
        }
        ValueKind::Seq if method == "index" => Some(list_index(value, args)?),
        ValueKind::Map if method == "copy" => {
            let () = from_args(args)?;
            Some(value.clone())
        }
        _ => None,
    };
    match own {
        Some(result) => Ok(result),
        None => unknown_method_callback(state, value, method, args),
    }
}

fn list_index(value: &Value, args: &[Value]) -> Result<Value, Error> {
    let (wanted,): (&Value,) = from_args(args)?;
    let found = value.try_iter()?.position(|item| item == *wanted);
    found.map(Value::from).ok_or_else(|| absent("list.index: no such element"))
}

fn absent(message: &'static str) -> Error {
    Error::new(ErrorKind::InvalidOperation, message)
}

fn tuple(parts: [&str; 3]) -> Value {
    Value::from(minijinja::value::Tuple::from(parts.map(Value::from)))
}

fn triple(parts: Option<(&str, &str)>, separator: &str, otherwise: [&str; 3]) -> Value {
    match parts {
        Some((before, after)) => tuple([before, separator, after]),
        None => tuple(otherwise),
    }
}

fn string_method(
    state: &State, text: &str, method: &str, args: &[Value],
) -> Result<Option<Value>, Error> {
    Ok(Some(match method {
        "strip" | "lstrip" | "rstrip" if args.is_empty() => {
            let left = if method == "rstrip" { text } else { text.trim_start_matches(is_space) };
            Value::from(if method == "lstrip" { left } else { left.trim_end_matches(is_space) })
        }
        "partition" => {
            let (separator,): (&str,) = from_args(args)?;
            check_separator(separator)?;
            triple(text.split_once(separator), separator, [text, "", ""])
        }
        "rpartition" => {
            let (separator,): (&str,) = from_args(args)?;
            check_separator(separator)?;
            triple(text.rsplit_once(separator), separator, ["", "", text])
        }
        "split" => {
            let (separator, count) = split_arguments(args)?;
            let parts = split(&Value::from(text), separator.map(Into::into), count)?;
            parts.try_iter()?.collect()
        }
        "rsplit" => rsplit(text, args)?,
        "casefold" => {
            let () = from_args(args)?;
            Value::from(text.to_lowercase().replace('ß', "ss"))
        }
        "swapcase" => {
            let () = from_args(args)?;
            let swap = |c: char| -> String {
                if c.is_uppercase() {
                    return c.to_lowercase().collect();
                }
                c.to_uppercase().collect()
            };
            Value::from(text.chars().map(swap).collect::<String>())
        }
        "removeprefix" => {
            let (prefix,): (&str,) = from_args(args)?;
            Value::from(text.strip_prefix(prefix).unwrap_or(text))
        }
        "removesuffix" => {
            let (suffix,): (&str,) = from_args(args)?;
            Value::from(text.strip_suffix(suffix).unwrap_or(text))
        }
        "index" | "rindex" => {
            let (wanted,): (&str,) = from_args(args)?;
            let at = if method == "index" { text.find(wanted) } else { text.rfind(wanted) };
            let at = at.ok_or_else(|| absent("substring not found"))?;
            Value::from(text[..at].chars().count())
        }
        "join" => joined(text, args)?,
        "format" => {
            check_format(text, b'{', args)?;
            return Ok(None);
        }
        "ljust" | "rjust" | "center" | "zfill" => padded(state, text, method, args)?,
        _ => return Ok(None),
    }))
}

fn joined(separator: &str, args: &[Value]) -> Result<Value, Error> {
    let (items,): (&Value,) = from_args(args)?;
    let mut out = String::new();
    for (index, item) in items.try_iter()?.enumerate() {
        if index > 0 {
            out.push_str(separator);
        }
        match item.as_str() {
            Some(text) => out.push_str(text),
            None => out.push_str(&item.to_string()),
        }
        if out.len() > TEXT_BYTES_MAX {
            return Err(watch::over(format!("join: more than {TEXT_BYTES_MAX} bytes")));
        }
    }
    Ok(Value::from(out))
}

/// Widths, precisions and repeated fields are paid for when the text is there, which may be too
/// late.
pub fn check_format(text: &str, marker: u8, args: &[Value]) -> Result<(), Error> {
    let longest = |value: &Value| match (value.as_str(), value.as_usize()) {
        (Some(text), _) => text.len(),
        // A number may be the width of another field.
        (None, Some(number)) => number,
        (None, None) => value.to_string().len(),
    };
    let fields = text.bytes().filter(|byte| *byte == marker).count();
    let args = args.iter().map(longest).max().unwrap_or(0).saturating_mul(fields);
    let digits = text.split(|c: char| !c.is_ascii_digit()).filter(|run| !run.is_empty());
    let widths = digits.map(|run| run.parse::<usize>().unwrap_or(usize::MAX));
    let bytes = widths.fold(args, usize::saturating_add);
    if bytes > TEXT_BYTES_MAX {
        return Err(watch::over(format!("format: more than {TEXT_BYTES_MAX} bytes")));
    }
    Ok(())
}

fn check_separator(separator: &str) -> Result<(), Error> {
    if separator.is_empty() { Err(absent("empty separator")) } else { Ok(()) }
}

/// `sep` and `maxsplit`, by place or by name.
fn split_arguments(args: &[Value]) -> Result<(Option<String>, Option<i64>), Error> {
    let (by_place, by_name) = match args.split_last() {
        Some((last, others)) if last.is_kwargs() => (others, Kwargs::try_from(last.clone())?),
        _ => (args, Kwargs::from_iter(std::iter::empty::<(&str, Value)>())),
    };
    let (separator, count): (Option<String>, Option<i64>) = from_args(by_place)?;
    let separator = if by_place.is_empty() { by_name.get("sep")? } else { separator };
    let count = if by_place.len() < 2 { by_name.get("maxsplit")? } else { count };
    by_name.assert_all_used()?;
    check_separator(separator.as_deref().unwrap_or(" "))?;
    Ok((separator, count))
}

fn rsplit(text: &str, args: &[Value]) -> Result<Value, Error> {
    let (separator, count) = split_arguments(args)?;
    let count = count.filter(|count| *count >= 0).map_or(usize::MAX, |count| count as usize);
    let mut parts: Vec<&str> = match separator.as_deref() {
        Some(separator) => text.rsplitn(count.saturating_add(1), separator).collect(),
        None => {
            let mut parts = Vec::new();
            let mut rest = text.trim_end_matches(is_space);
            while parts.len() < count {
                let Some(at) = rest.rfind(is_space) else { break };
                let begin = at + rest[at..].chars().next().map_or(1, char::len_utf8);
                parts.push(&rest[begin..]);
                rest = rest[..at].trim_end_matches(is_space);
            }
            if !rest.is_empty() {
                parts.push(rest);
            }
            parts
        }
    };
    parts.reverse();
    Ok(Value::from(parts.into_iter().map(Value::from).collect::<Vec<Value>>()))
}

fn padded(state: &State, text: &str, method: &str, args: &[Value]) -> Result<Value, Error> {
    let (width, fill): (i64, Option<&str>) = from_args(args)?;
    let missing = usize::try_from(width).unwrap_or(0).saturating_sub(text.chars().count());
    if missing > watch::STRING_BYTES_MAX {
        return Err(watch::over(format!("{method}: a width of {width}")));
    }
    state.consume_fuel(missing as u64 / 16)?;
    let fill = if method == "zfill" { "0" } else { fill.unwrap_or(" ") };
    let (left, right) = match method {
        "ljust" => (0, missing),
        "center" => {
            let left = missing / 2 + (missing & usize::try_from(width).unwrap_or(0) & 1);
            (left, missing - left)
        }
        _ => (missing, 0),
    };
    let (sign, digits) = match text.strip_prefix(['-', '+']) {
        Some(digits) if method == "zfill" => (&text[..1], digits),
        _ => ("", text),
    };
    Ok(Value::from(format!("{sign}{}{digits}{}", fill.repeat(left), fill.repeat(right))))
}
