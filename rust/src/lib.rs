//! The C interface: chat templates are compiled and rendered here. Nothing unwinds into the caller,
//! and no call has state besides its arguments. Constrained decoding has an interface of its own.

#[cfg(feature = "constraints")]
mod constraint;
#[cfg(feature = "constraints")]
mod constraint_costs;
#[cfg(feature = "constraints")]
mod constraint_failure;
#[cfg(feature = "constraints")]
mod constraint_interface;
#[cfg(all(test, feature = "constraints"))]
mod constraint_tests;
mod cycler;
mod environment;
mod filters;
mod hooks;
mod json;
#[cfg(feature = "constraints")]
mod lark_check;
mod memory;
mod methods;
mod python_text;
#[cfg(feature = "constraints")]
mod references;
#[cfg(feature = "constraints")]
mod regex_cost;
#[cfg(feature = "constraints")]
mod schema_check;
#[cfg(feature = "constraints")]
mod schema_merge;
#[cfg(feature = "constraints")]
mod schema_place;
mod source;
mod strftime;
mod template;
mod watch;

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::slice;

use template::{Failure, Kind, Limits, Template};

/// Bytes that this library owns until they are freed with `moeflux_template_free_text` or its like.
#[repr(C)]
pub struct Text {
    data: *mut u8,
    size: usize,
}

/// Limits of `moeflux_template_render`, and the time that `strftime_now` says.
#[repr(C)]
pub struct RenderOptions {
    limits: Limits,
    now: strftime::Time,
}

pub(crate) fn text_of(string: String) -> Text {
    let mut bytes = string.into_bytes().into_boxed_slice();
    let text = Text { data: bytes.as_mut_ptr(), size: bytes.len() };
    std::mem::forget(bytes);
    text
}

/// # Safety
/// `data` has `size` bytes, or `size` is 0.
unsafe fn utf8<'a>(data: *const u8, size: usize) -> Result<&'a str, Failure> {
    if size == 0 {
        return Ok("");
    }
    std::str::from_utf8(slice::from_raw_parts(data, size))
        .map_err(|error| Failure::new(Kind::Syntax, format!("not UTF-8: {error}")))
}

/// Runs what may panic; 0 or a kind of failure, whose message goes to `text`, its line to `line`.
unsafe fn guarded(
    text: *mut Text,
    line: *mut u64,
    body: impl FnOnce() -> Result<(), Failure>,
) -> i32 {
    let failure = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => return 0,
        Ok(Err(failure)) => failure,
        Err(_) => Failure::new(Kind::Bug, "the template engine panicked".to_string()),
    };
    *line = failure.line;
    *text = text_of(failure.message);
    failure.kind as i32
}

/// # Safety
/// `pointer` is from `Box::into_raw`, or null, and in use by nobody.
pub(crate) unsafe fn free<T>(pointer: *mut T) {
    if !pointer.is_null() {
        let _ = catch_unwind(AssertUnwindSafe(|| drop(Box::from_raw(pointer))));
    }
}

/// Compiles a template. Returns 0 and sets `out`, or returns a kind of failure and sets `message`
/// and `line` (0: none).
///
/// # Safety
/// `source` has `size` bytes; the other pointers are not null.
#[no_mangle]
pub unsafe extern "C" fn moeflux_template_compile(
    source: *const u8,
    size: usize,
    out: *mut *mut Template,
    message: *mut Text,
    line: *mut u64,
) -> i32 {
    guarded(message, line, || {
        *out = Box::into_raw(Box::new(Template::compile(utf8(source, size)?)?));
        Ok(())
    })
}

/// Renders a template with the variables of a JSON object. Returns 0 and sets `text` to the output,
/// or returns a kind of failure, and `text` is its message. Threads may share a template.
///
/// # Safety
/// `template` is from `moeflux_template_compile`, `context` has `size` bytes; no pointer is null.
#[no_mangle]
pub unsafe extern "C" fn moeflux_template_render(
    template: *const Template,
    context: *const u8,
    size: usize,
    options: *const RenderOptions,
    text: *mut Text,
    line: *mut u64,
) -> i32 {
    guarded(text, line, || {
        let RenderOptions { limits, now } = &*options;
        *text = text_of((*template).render(utf8(context, size)?, limits, now)?);
        Ok(())
    })
}

/// # Safety
/// `template` is from `moeflux_template_compile`, or null, and in use by nobody.
#[no_mangle]
pub unsafe extern "C" fn moeflux_template_free(template: *mut Template) {
    free(template);
}

/// # Safety
/// `text` was set by one of these functions and is not used again.
#[no_mangle]
pub unsafe extern "C" fn moeflux_template_free_text(text: Text) {
    if !text.data.is_null() {
        drop(Box::from_raw(std::ptr::slice_from_raw_parts_mut(text.data, text.size)));
    }
}
