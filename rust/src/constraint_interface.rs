//! The C interface of constrained decoding, declared in src/constraint/rust_interface.h. Nothing
//! unwinds into the caller, and no call has state besides its arguments.

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::slice;

use llguidance::CancellationHandle;

use crate::constraint::{Constraint, Language, Limits, Progress, Tokens};
use crate::constraint_failure::{Failure, Kind};
use crate::{free, moeflux_template_free_text, text_of, Text};

/// A failure, in texts that the caller frees.
#[repr(C)]
pub struct Problem {
    message: Text,
    grammar: Text,
    pointer: Text,
}

/// Runs what may panic; 0 or a kind of failure, which `problem` then tells.
unsafe fn guarded(problem: *mut Problem, body: impl FnOnce() -> Result<(), Failure>) -> i32 {
    let failure = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => return 0,
        Ok(Err(failure)) => failure,
        Err(_) => Failure::new(Kind::Bug, "the grammar engine panicked"),
    };
    *problem = Problem {
        message: text_of(failure.message),
        grammar: text_of(failure.grammar),
        pointer: text_of(failure.pointer),
    };
    failure.kind as i32
}

/// Makes the tree of a vocabulary of `count` tokens, whose bytes follow each other in `bytes` and
/// end at `ends`; `markers` is not 0 for those that no text spells.
///
/// # Safety
/// `ends` and `markers` have `count` entries, `bytes` as many as the last of `ends`.
#[no_mangle]
pub unsafe extern "C" fn moeflux_tokens_make(
    bytes: *const u8,
    ends: *const u64,
    markers: *const u8,
    count: usize,
    out: *mut *mut Tokens,
    problem: *mut Problem,
) -> i32 {
    guarded(problem, || {
        let ends = slice::from_raw_parts(ends, count);
        let markers = slice::from_raw_parts(markers, count);
        let bytes = slice::from_raw_parts(bytes, ends.last().map_or(0, |end| *end as usize));
        let begins = std::iter::once(&0).chain(ends.iter());
        let words = begins
            .zip(ends)
            .zip(markers)
            .map(|((begin, end), marker)| (&bytes[*begin as usize..*end as usize], *marker != 0));
        *out = Box::into_raw(Box::new(Tokens::make(words)?));
        Ok(())
    })
}

/// # Safety
/// `tokens` is from `moeflux_tokens_make`, or null, and in use by nobody.
#[no_mangle]
pub unsafe extern "C" fn moeflux_tokens_free(tokens: *mut Tokens) {
    free(tokens);
}

/// Compiles a text of a language (0 schema, 1 regular expression, 2 Lark, 3 several grammars).
///
/// # Safety
/// `text` has `size` bytes; no pointer is null.
#[no_mangle]
pub unsafe extern "C" fn moeflux_constraint_compile(
    tokens: *const Tokens,
    language: u32,
    text: *const u8,
    size: usize,
    limits: *const Limits,
    out: *mut *mut Constraint,
    problem: *mut Problem,
) -> i32 {
    guarded(problem, || {
        let text = if size == 0 { &[][..] } else { slice::from_raw_parts(text, size) };
        let text = std::str::from_utf8(text)
            .map_err(|error| Failure::new(Kind::Invalid, format!("not UTF-8: {error}")))?;
        let language = match language {
            0 => Language::Schema,
            1 => Language::Regex,
            2 => Language::Lark,
            _ => Language::Parts,
        };
        *out = Box::into_raw(Box::new(Constraint::compile(&*tokens, language, text, &*limits)?));
        Ok(())
    })
}

/// # Safety
/// `constraint` is from `moeflux_constraint_compile`, or null, and in use by nobody.
#[no_mangle]
pub unsafe extern "C" fn moeflux_constraint_free(constraint: *mut Constraint) {
    free(constraint);
}

/// A text that begins. Threads may share a constraint.
///
/// # Safety
/// No pointer is null.
#[no_mangle]
pub unsafe extern "C" fn moeflux_progress_start(
    constraint: *const Constraint,
    out: *mut *mut Progress,
    problem: *mut Problem,
) -> i32 {
    guarded(problem, || {
        *out = Box::into_raw(Box::new(Progress::start(&*constraint)));
        Ok(())
    })
}

/// # Safety
/// `progress` is from `moeflux_progress_start`, or null, and in use by nobody.
#[no_mangle]
pub unsafe extern "C" fn moeflux_progress_free(progress: *mut Progress) {
    free(progress);
}

/// The tokens that can follow, a bit each, and whether the text may end (1), has to (2) or not (0).
///
/// # Safety
/// `words` has `count` entries; no pointer is null.
#[no_mangle]
pub unsafe extern "C" fn moeflux_progress_mask(
    progress: *mut Progress,
    words: *mut u32,
    count: usize,
    end: *mut u32,
    problem: *mut Problem,
) -> i32 {
    guarded(problem, || {
        let may_end = (*progress).mask(slice::from_raw_parts_mut(words, count))?;
        *end = if (*progress).is_done() { 2 } else { u32::from(may_end) };
        Ok(())
    })
}

/// # Safety
/// No pointer is null.
#[no_mangle]
pub unsafe extern "C" fn moeflux_progress_consume(
    progress: *mut Progress,
    token: u32,
    problem: *mut Problem,
) -> i32 {
    guarded(problem, || (*progress).consume(token))
}

/// # Safety
/// No pointer is null.
#[no_mangle]
pub unsafe extern "C" fn moeflux_progress_rollback(
    progress: *mut Progress,
    count: usize,
    problem: *mut Problem,
) -> i32 {
    guarded(problem, || (*progress).rollback(count))
}

/// A handle that stops a progress from another thread, and may outlive it.
///
/// # Safety
/// `progress` is from `moeflux_progress_start` and in use by nobody.
#[no_mangle]
pub unsafe extern "C" fn moeflux_stopper_make(
    progress: *const Progress,
) -> *mut CancellationHandle {
    Box::into_raw(Box::new((*progress).stopper()))
}

/// # Safety
/// `stopper` is from `moeflux_stopper_make`.
#[no_mangle]
pub unsafe extern "C" fn moeflux_stopper_stop(stopper: *const CancellationHandle) {
    (*stopper).cancel();
}

/// # Safety
/// `stopper` is from `moeflux_stopper_make`, or null, and in use by nobody.
#[no_mangle]
pub unsafe extern "C" fn moeflux_stopper_free(stopper: *mut CancellationHandle) {
    free(stopper);
}

/// # Safety
/// `text` was set by one of these functions and is not used again.
#[no_mangle]
pub unsafe extern "C" fn moeflux_constraint_free_text(text: Text) {
    moeflux_template_free_text(text);
}
