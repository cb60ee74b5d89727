//! A compiled template, and what goes wrong with one.

use std::io;
use std::time::{Duration, Instant};

use minijinja::{Environment, Error, ErrorKind};

use crate::environment::{make_environment, Raised};
use crate::generation_tag::replace_generation_tags;
use crate::json::value_of;
use crate::strftime::{strftime, Time};

const NAME: &str = "template";
const SOURCE_BYTES_MAX: usize = 1 << 20;

/// Numbered as in src/templates/rust_interface.h.
#[derive(Clone, Copy, PartialEq, Debug)]
#[repr(i32)]
pub enum Kind {
    Syntax = 1,
    /// `raise_exception` of the template itself.
    Raised = 2,
    /// Used up fuel, bytes of output or time.
    Limit = 3,
    /// Any other failure while rendering: undefined values, operations that do not exist.
    Render = 4,
    Bug = 5,
}

pub struct Failure {
    pub kind: Kind,
    pub message: String,
    pub line: u64,
}

impl Failure {
    pub fn new(kind: Kind, message: String) -> Failure {
        Failure { kind, message, line: 0 }
    }

    fn from_error(error: Error) -> Failure {
        let line = error.line().unwrap_or(0) as u64;
        let mut source: Option<&(dyn std::error::Error + 'static)> = Some(&error);
        let mut deepest = String::new();
        while let Some(cause) = source {
            if let Some(raised) = cause.downcast_ref::<Raised>() {
                return Failure { kind: Kind::Raised, message: raised.0.clone(), line };
            }
            // io::Error passes over the error that it holds when asked for its source.
            let held = cause.downcast_ref::<io::Error>().and_then(|error| error.get_ref());
            if let Some(limit) = held.and_then(|error| error.downcast_ref::<OverLimit>()) {
                return Failure { kind: Kind::Limit, message: limit.0.clone(), line };
            }
            if let Some(inner) = cause.downcast_ref::<Error>() {
                if inner.kind() == ErrorKind::OutOfFuel {
                    let message = "the template takes too many steps".to_string();
                    return Failure { kind: Kind::Limit, message, line };
                }
                deepest = match inner.detail() {
                    Some(detail) => format!("{}: {detail}", inner.kind()),
                    None => inner.kind().to_string(),
                };
            }
            source = cause.source();
        }
        let kind = match error.kind() {
            ErrorKind::SyntaxError => Kind::Syntax,
            _ => Kind::Render,
        };
        Failure { kind, message: deepest, line }
    }
}

pub struct Limits {
    pub fuel: u64,
    pub output_bytes_max: u64,
    pub milliseconds_max: u64,
}

#[derive(Debug)]
struct OverLimit(String);

impl std::fmt::Display for OverLimit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for OverLimit {}

/// Takes output up to a number of bytes and a point of time.
struct BoundedWriter {
    bytes: Vec<u8>,
    bytes_max: u64,
    deadline: Option<Instant>,
    over: bool,
}

impl BoundedWriter {
    fn refuse(&mut self, message: String) -> io::Error {
        self.over = true;
        io::Error::other(OverLimit(message))
    }
}

impl io::Write for &mut BoundedWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if (self.bytes.len() + bytes.len()) as u64 > self.bytes_max {
            let message = format!("the prompt is longer than {} bytes", self.bytes_max);
            return Err(self.refuse(message));
        }
        if self.deadline.is_some_and(|deadline| Instant::now() > deadline) {
            return Err(self.refuse("the template takes too long".to_string()));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

pub struct Template {
    environment: Environment<'static>,
}

impl Template {
    pub fn compile(source: &str) -> Result<Template, Failure> {
        if source.len() > SOURCE_BYTES_MAX {
            let message = format!("{} bytes, at most {SOURCE_BYTES_MAX}", source.len());
            return Err(Failure::new(Kind::Syntax, message));
        }
        // Jinja reads every line ending as its own.
        let source = source.replace("\r\n", "\n").replace('\r', "\n");
        let mut environment = make_environment();
        environment
            .add_template_owned(NAME, replace_generation_tags(&source))
            .map_err(Failure::from_error)?;
        Ok(Template { environment })
    }

    pub fn render(&self, context: &str, limits: &Limits, now: &Time) -> Result<String, Failure> {
        let context: serde_json::Value = serde_json::from_str(context)
            .map_err(|error| Failure::new(Kind::Bug, format!("context: {error}")))?;
        let mut environment = self.environment.clone();
        environment.set_fuel(Some(limits.fuel));
        let now = *now;
        environment.add_function("strftime_now", move |format: &str| strftime(format, &now));
        let mut writer = BoundedWriter {
            bytes: Vec::new(),
            bytes_max: limits.output_bytes_max,
            deadline: (limits.milliseconds_max > 0)
                .then(|| Instant::now() + Duration::from_millis(limits.milliseconds_max)),
            over: false,
        };
        let rendered = environment
            .get_template(NAME)
            .and_then(|t| t.render_captured_to(value_of(context), &mut writer).map(drop));
        match rendered {
            Ok(()) => Ok(String::from_utf8(writer.bytes)
                .map_err(|_| Failure::new(Kind::Bug, "output is not UTF-8".to_string()))?),
            Err(error) => {
                let mut failure = Failure::from_error(error);
                if writer.over {
                    failure.kind = Kind::Limit;
                }
                Err(failure)
            }
        }
    }
}
