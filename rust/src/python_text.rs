//! Values as Python's str() and repr() print them.

use std::fmt::Write;

use minijinja::value::{Value, ValueKind};
use minijinja::{Error, ErrorKind};

use crate::watch;

const DEPTH_MAX: usize = 512;
/// Values may hold each other many times over.
const BYTES_MAX: usize = 64 << 20;

/// The first of the code points that stand for text which is put in after rendering; they are
/// never escaped.
pub const FIRST_STAND_IN: char = '\u{F0000}';

/// Fails for values that are nested deeper than any real one.
pub fn str(value: &Value) -> Result<String, Error> {
    match value.as_str() {
        Some(text) => Ok(text.to_string()),
        None => repr(value),
    }
}

pub fn repr(value: &Value) -> Result<String, Error> {
    let mut out = String::new();
    write_repr(value, 0, &mut out)?;
    Ok(out)
}

fn write_repr(value: &Value, depth: usize, out: &mut String) -> Result<(), Error> {
    if depth > DEPTH_MAX {
        let message = format!("a value is nested deeper than {DEPTH_MAX}");
        return Err(Error::new(ErrorKind::InvalidOperation, message));
    }
    if out.len() > BYTES_MAX {
        return Err(watch::over(format!("a value's text is longer than {BYTES_MAX} bytes")));
    }
    match value.kind() {
        ValueKind::String => write_string(value.as_str().unwrap_or_default(), out),
        ValueKind::Number if !value.is_integer() => match f64::try_from(value.clone()) {
            Ok(number) => out.push_str(&float(number)),
            Err(_) => out.push_str(&value.to_string()),
        },
        ValueKind::Seq => {
            let (open, close) = if value.is_tuple() { ('(', ')') } else { ('[', ']') };
            out.push(open);
            let mut count = 0;
            for item in value.try_iter().into_iter().flatten() {
                if count > 0 {
                    out.push_str(", ");
                }
                write_repr(&item, depth + 1, out)?;
                count += 1;
            }
            if value.is_tuple() && count == 1 {
                out.push(',');
            }
            out.push(close);
        }
        ValueKind::Map => match value.as_object().and_then(|object| object.try_iter_pairs()) {
            Some(pairs) if value.downcast_object_ref::<minijinja::value::Kwargs>().is_none() => {
                out.push('{');
                for (index, (key, item)) in pairs.enumerate() {
                    if index > 0 {
                        out.push_str(", ");
                    }
                    write_repr(&key, depth + 1, out)?;
                    out.push_str(": ");
                    write_repr(&item, depth + 1, out)?;
                }
                out.push('}');
            }
            _ => out.push_str(&value.to_string()),
        },
        _ => out.push_str(&value.to_string()),
    }
    Ok(())
}

fn write_string(text: &str, out: &mut String) {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == quote => {
                out.push('\\');
                out.push(c);
            }
            c if is_printable(c) => out.push(c),
            c => {
                let code = c as u32;
                let _ = match code {
                    0..=0xFF => write!(out, "\\x{code:02x}"),
                    0x100..=0xFFFF => write!(out, "\\u{code:04x}"),
                    _ => write!(out, "\\U{code:08x}"),
                };
            }
        }
    }
    out.push(quote);
}

/// str.isprintable() but for code points that nobody has assigned.
fn is_printable(c: char) -> bool {
    !(c.is_control()
        || (c != ' ' && c.is_whitespace())
        || matches!(c,
            '\u{AD}' | '\u{600}'..='\u{605}' | '\u{61C}' | '\u{6DD}' | '\u{70F}' | '\u{180E}'
            | '\u{200B}'..='\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2060}'..='\u{206F}'
            | '\u{E000}'..='\u{F8FF}' | '\u{FEFF}' | '\u{FFF0}'..='\u{FFFB}'
            | '\u{FFFE}' | '\u{FFFF}' | '\u{E0000}'..='\u{E0FFF}'))
}

/// The shortest digits that read back as the same number, with an exponent where Python has one.
pub fn float(number: f64) -> String {
    if number.is_nan() {
        return "nan".to_string();
    }
    if number.is_infinite() {
        return if number > 0.0 { "inf" } else { "-inf" }.to_string();
    }
    let scientific = format!("{number:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if number != 0.0 && !(-4..16).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{digits}e{sign}{:02}", exponent.abs());
    }
    let plain = format!("{number}");
    if plain.contains('.') {
        plain
    } else {
        plain + ".0"
    }
}

#[cfg(test)]
mod tests {
    use super::float;

    #[test]
    fn floats_are_as_python_prints_them() {
        for (number, text) in [
            (1.0, "1.0"), (-0.0, "-0.0"), (1e-5, "1e-05"), (0.0001, "0.0001"), (1e16, "1e+16"),
            (1.5e300, "1.5e+300"), (123456789012345680.0, "1.2345678901234568e+17"),
            (1234567890123456.0, "1234567890123456.0"), (0.1, "0.1"),
        ] {
            assert_eq!(float(number), text);
        }
    }
}
