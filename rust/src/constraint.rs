//! The tokens that may follow in output constrained by a JSON schema, a regular expression or a
//! grammar: llguidance with the limits and the strictness that a server needs.

use std::ffi::{c_int, c_long};
use std::fmt::Display;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use llguidance::api::{GrammarInit, GrammarWithLexer, ParserLimits, StopReason, TopLevelGrammar};
use llguidance::earley::lexerspec::LexerSpec;
use llguidance::earley::SlicedBiasComputer;
use llguidance::toktrie::{
    ApproximateTokEnv, InferenceCapabilities, TokEnv, TokRxInfo, TokTrie, TokenId,
};
use llguidance::{panic_utils, CancellationHandle, Logger, Matcher, ParserFactory};
use regex_syntax::ast::parse::Parser;
use serde_json::Value;

use crate::constraint_costs::{too_much, Costs};
use crate::constraint_failure::{Failure, Kind};
use crate::lark_check::check_lark;
use crate::regex_cost::check_intersections;
use crate::schema_check::prepare_schema;
use crate::schema_place::innermost;

/// As in src/constraint/rust_interface.h.
#[repr(C)]
pub struct Limits {
    pub text_bytes_max: u64,
    pub compile_milliseconds_max: u64,
    pub lexer_states_max: u64,
    pub step_lexer_fuel: u64,
    pub step_items_max: u64,
}

/// A vocabulary as a tree of bytes. One token more than the model's stands for the end of the text.
pub struct Tokens {
    factory: Arc<ParserFactory>,
    end: TokenId,
    markers: Arc<Vec<TokenId>>,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Language {
    Schema,
    Regex,
    Lark,
    /// A JSON list of {"name", and one of "schema", "regex" and "lark"}: the first begins, and
    /// names others as @name.
    Parts,
}

/// The deepest grammars that are taken need a quarter of it, and few need a page.
const STACK_BYTES: usize = 256 << 20;

/// A symbol has a number of 16 bits.
const SYMBOLS_MAX: usize = 60_000;

/// Some tenths of a second.
const BEGIN_FUEL: u64 = 2_000_000;

impl Tokens {
    /// A marker is only itself: no text spells it, and a grammar names it.
    pub fn make<'a>(words: impl Iterator<Item = (&'a [u8], bool)>) -> Result<Tokens, Failure> {
        const MARKER: u8 = TokTrie::SPECIAL_TOKEN_MARKER;
        let mut list: Vec<Vec<u8>> = Vec::new();
        let mut markers = Vec::new();
        for (bytes, is_marker) in words {
            if is_marker {
                markers.push(list.len() as TokenId);
            }
            list.push(match (is_marker, bytes.contains(&MARKER)) {
                (true, _) => [&[MARKER], bytes].concat(),
                // No UTF-8 has the byte.
                (false, true) => Vec::new(),
                (false, false) => bytes.to_vec(),
            });
        }
        let end = list.len() as TokenId;
        list.push([&[MARKER][..], b"[end]"].concat());
        let trie = TokTrie::from(&TokRxInfo::new(end + 1, end), &list);
        // Not canonical: which of several spellings follows is the model's to say.
        let environment: TokEnv = Arc::new(ApproximateTokEnv::new(trie));
        let slices = SlicedBiasComputer::general_slices();
        let mut factory =
            ParserFactory::new(&environment, InferenceCapabilities::default(), &slices)
                .map_err(Failure::of_words)?;
        factory.quiet();
        Ok(Tokens { factory: Arc::new(factory), end, markers: Arc::new(markers) })
    }
}

fn parse(text: &str) -> Result<Value, Failure> {
    serde_json::from_str(text)
        .map_err(|error| Failure::new(Kind::Invalid, format!("not JSON: {error}")))
}

fn lark(text: &str, costs: &mut Costs) -> Result<GrammarWithLexer, Failure> {
    check_lark(text, costs)?;
    Ok(GrammarWithLexer::from_lark(text.to_string()))
}

fn regex(text: &str, costs: &mut Costs) -> Result<GrammarWithLexer, Failure> {
    costs.regex(text)?;
    Parser::new().parse(text).map_err(Failure::of_words)?;
    Ok(GrammarWithLexer::from_regex(text))
}

fn schema(schema: Value, costs: &mut Costs) -> Result<GrammarWithLexer, Failure> {
    Ok(GrammarWithLexer::from_json_schema(prepare_schema(schema, costs)?))
}

fn part_of(value: &Value, costs: &mut Costs) -> Result<GrammarWithLexer, Failure> {
    let text = |key: &str| value.get(key).and_then(Value::as_str);
    let name = text("name").unwrap_or_default().to_string();
    let grammar = if let Some(text) = text("lark") {
        lark(text, costs)
    } else if let Some(text) = text("regex") {
        regex(text, costs)
    } else if let Some(value) = value.get("schema") {
        schema(value.clone(), costs)
    } else {
        return Err(Failure::new(Kind::Bug, format!("grammar {name} is of no language")));
    };
    let mut grammar = grammar.map_err(|failure| Failure { grammar: name.clone(), ..failure })?;
    grammar.name = Some(name);
    Ok(grammar)
}

fn grammar_of(language: Language, text: &str) -> Result<TopLevelGrammar, Failure> {
    let mut costs = Costs::default();
    let grammars = match language {
        Language::Schema => vec![schema(parse(text)?, &mut costs)?],
        Language::Regex => vec![regex(text, &mut costs)?],
        Language::Lark => vec![lark(text, &mut costs)?],
        Language::Parts => {
            let parts = parse(text)?;
            let parts = parts.as_array().map(Vec::as_slice).unwrap_or_default();
            parts.iter().map(|part| part_of(part, &mut costs)).collect::<Result<Vec<_>, _>>()?
        }
    };
    Ok(TopLevelGrammar { grammars, max_tokens: None })
}

/// A compiled grammar, of which each text gets a copy.
pub struct Constraint {
    fresh: Matcher,
    end: TokenId,
    markers: Arc<Vec<TokenId>>,
}

impl Constraint {
    /// In a thread of its own, which has the stack that deep grammars need, and whose end is waited
    /// for. It ends because what it may cost is counted first, by depth, size and what of it is
    /// compared with what (`constraint_costs`, `lark_check`, `schema_check`, `schema_merge`,
    /// `regex_cost`), and what cannot be counted has fuel. Time is looked at between its steps, of
    /// which none takes seconds.
    pub fn compile(
        tokens: &Tokens,
        language: Language,
        text: &str,
        limits: &Limits,
    ) -> Result<Constraint, Failure> {
        if text.len() as u64 > limits.text_bytes_max {
            let message = format!("{} bytes, at most {}", text.len(), limits.text_bytes_max);
            return Err(too_much(message));
        }
        let parser_limits = ParserLimits {
            max_grammar_size: SYMBOLS_MAX,
            max_lexer_states: limits.lexer_states_max as usize,
            step_lexer_fuel: limits.step_lexer_fuel,
            step_max_items: limits.step_items_max as usize,
            verbose_errors: false,
            ..ParserLimits::default()
        };
        let work = Compile {
            factory: &tokens.factory,
            limits: parser_limits,
            milliseconds_max: limits.compile_milliseconds_max,
        };
        let fresh = std::thread::scope(|scope| {
            let compiler = std::thread::Builder::new()
                .stack_size(STACK_BYTES)
                .spawn_scoped(scope, || work.run(language, text))
                .map_err(|error| too_much(format!("no thread: {error}")))?;
            let made = compiler.join();
            made.map_err(|_| Failure::new(Kind::Bug, "the compiler panicked"))?
        })?;
        Ok(Constraint { fresh, end: tokens.end, markers: Arc::clone(&tokens.markers) })
    }
}

/// In time of the thread's processor: how long others make it wait says nothing of a grammar.
struct Patience {
    milliseconds: u64,
    begin: Duration,
}

#[repr(C)]
struct Timespec {
    seconds: c_long,
    nanoseconds: c_long,
}

extern "C" {
    fn clock_gettime(clock: c_int, time: *mut Timespec) -> c_int;
}

/// CLOCK_THREAD_CPUTIME_ID.
const THREAD_CLOCK: c_int = if cfg!(target_os = "macos") { 16 } else { 3 };

fn thread_time() -> Duration {
    let mut time = Timespec { seconds: 0, nanoseconds: 0 };
    // SAFETY: the clock is written to a value of its type.
    unsafe { clock_gettime(THREAD_CLOCK, &mut time) };
    Duration::new(time.seconds as u64, time.nanoseconds as u32)
}

impl Patience {
    /// From now on, of the thread that calls.
    fn of(milliseconds: u64) -> Patience {
        Patience { milliseconds, begin: thread_time() }
    }

    fn check(&self) -> Result<(), Failure> {
        let taken = thread_time().saturating_sub(self.begin);
        if taken <= Duration::from_millis(self.milliseconds) {
            return Ok(());
        }
        Err(too_much(format!("takes longer than {} ms to compile", self.milliseconds)))
    }
}

struct Compile<'a> {
    factory: &'a ParserFactory,
    limits: ParserLimits,
    milliseconds_max: u64,
}

impl Compile<'_> {
    /// llguidance tries each first byte without fuel. A divisor of 31 bits takes hours then.
    fn check_begin(&self, lexer: &LexerSpec) -> Result<(), Failure> {
        let mut limits = self.limits.clone();
        let states = lexer.to_regex_vec(&mut limits);
        let mut states = states.map_err(Failure::of_words)?;
        states.set_fuel(BEGIN_FUEL);
        let begin = states.initial_state(&lexer.all_lexemes());
        for byte in 0..=255 {
            states.transition(begin, byte);
            if states.has_error() {
                return Err(too_much("the choices for the first byte are too complex"));
            }
        }
        Ok(())
    }

    fn run(&self, language: Language, text: &str) -> Result<Matcher, Failure> {
        let patience = Patience::of(self.milliseconds_max);
        let grammar = grammar_of(language, text)?;
        self.build(grammar, &patience).map_err(|failure| {
            let is_known = !failure.pointer.is_empty() || !failure.is_about_values();
            if is_known { failure } else { self.placed(language, text, failure, &patience) }
        })
    }

    /// The failure with the place that it is about, if a part of a schema is refused alone.
    fn placed(
        &self, language: Language, text: &str, failure: Failure, patience: &Patience,
    ) -> Failure {
        let refusal = |part: &Value| {
            let made = schema(part.clone(), &mut Costs::default()).and_then(|one| {
                self.build(TopLevelGrammar { grammars: vec![one], max_tokens: None }, patience)
            });
            made.err()
        };
        let Ok(value) = parse(text) else { return failure };
        let name = |part: &Value| part["name"].as_str().unwrap_or_default().to_string();
        let schemas: Vec<(String, &Value)> = match language {
            Language::Schema => vec![(String::new(), &value)],
            Language::Parts => {
                let parts = value.as_array().into_iter().flatten();
                parts.filter_map(|part| Some((name(part), part.get("schema")?))).collect()
            }
            Language::Regex | Language::Lark => Vec::new(),
        };
        for (grammar, root) in schemas {
            if refusal(root).is_some_and(|other| other.message == failure.message) {
                return innermost(root, Failure { grammar, ..failure }, refusal);
            }
        }
        failure
    }

    fn build(&self, grammar: TopLevelGrammar, patience: &Patience) -> Result<Matcher, Failure> {
        let grammar = GrammarInit::Serialized(grammar);
        patience.check()?;
        let tokens = Some(self.factory.tok_env().clone());
        let limits = self.limits.clone();
        let built =
            panic_utils::catch_unwind(AssertUnwindSafe(|| grammar.to_internal(tokens, limits)));
        let (grammar, lexer) = built.map_err(Failure::of_words)?;
        patience.check()?;
        check_intersections(lexer.regex_builder.exprset())?;
        self.check_begin(&lexer)?;
        patience.check()?;
        let grammar = GrammarInit::Internal(grammar, lexer);
        let logger = Logger::new(0, 0);
        let capabilities = InferenceCapabilities::default();
        let limits = self.limits.clone();
        let parser =
            self.factory.create_parser_from_init_ext(grammar, logger, capabilities, limits);
        let matcher = Matcher::new(parser).into_cancellable();
        match matcher.get_error() {
            Some(words) => Err(Failure::of_words(words)),
            None => Ok(matcher),
        }
    }
}

/// Limit of the cost that all masks of a text add to its lexer, whose states stay: up to ten
/// bytes each.
const LEXER_COST_MAX: u64 = 30_000_000;

/// How far one text has come.
pub struct Progress {
    matcher: Matcher,
    end: TokenId,
    markers: Arc<Vec<TokenId>>,
    lexer_cost: u64,
}

impl Progress {
    /// Caches are not shared with other texts: what a step costs, and so whether it stays within
    /// its limits, depends on nobody else.
    pub fn start(constraint: &Constraint) -> Progress {
        Progress {
            matcher: constraint.fresh.deep_clone(),
            end: constraint.end,
            markers: Arc::clone(&constraint.markers),
            lexer_cost: 0,
        }
    }

    fn failure(&self, words: impl Display) -> Failure {
        let mut failure = Failure::of_words(words);
        let is_limit = matches!(
            self.matcher.stop_reason(),
            StopReason::LexerTooComplex | StopReason::ParserTooComplex | StopReason::Cancelled
        );
        if is_limit {
            failure.kind = Kind::Limit;
        }
        failure
    }

    fn check(&self) -> Result<(), Failure> {
        match self.matcher.get_error() {
            Some(words) => Err(self.failure(words)),
            None => Ok(()),
        }
    }

    /// Ends what another thread does here, and all that it would do later.
    pub fn stopper(&self) -> CancellationHandle {
        self.matcher.cancellation_handle().unwrap_or_default()
    }

    /// Nothing can follow.
    pub fn is_done(&self) -> bool {
        self.matcher.is_stopped()
    }

    /// Sets a bit for each token that can follow, 32 to a word. True if the text may end here.
    pub fn mask(&mut self, words: &mut [u32]) -> Result<bool, Failure> {
        self.check()?;
        words.fill(0);
        if self.matcher.is_stopped() {
            return Ok(true);
        }
        let mask = self.matcher.compute_mask().map_err(|error| self.failure(error))?;
        self.lexer_cost += self.matcher.last_step_stats().map_or(0, |stats| stats.lexer_cost);
        if self.lexer_cost > LEXER_COST_MAX {
            return Err(too_much("the text's states of the lexer take too much memory"));
        }
        let may_end = mask.is_allowed(self.end) && self.is_accepting()?;
        for (word, allowed) in words.iter_mut().zip(mask.as_slice()) {
            *word = *allowed;
        }
        let (last, bit) = (self.end as usize / 32, self.end % 32);
        if let Some(word) = words.get_mut(last) {
            *word &= !(1 << bit);
        }
        self.take_out_markers(words)?;
        Ok(may_end)
    }

    fn is_accepting(&mut self) -> Result<bool, Failure> {
        self.matcher.is_accepting().map_err(|error| self.failure(error))
    }

    /// A complement (`~/a/`) matches the byte that begins a marker, and a mask then has markers
    /// that no grammar names and that cannot be consumed.
    fn take_out_markers(&mut self, words: &mut [u32]) -> Result<(), Failure> {
        for marker in self.markers.iter() {
            let Some(word) = words.get_mut(*marker as usize / 32) else { continue };
            let bit = 1 << (marker % 32);
            if *word & bit == 0 {
                continue;
            }
            match self.matcher.validate_tokens(&[*marker]) {
                Ok(1) => {}
                Ok(_) => *word &= !bit,
                Err(error) => return Err(Failure::of_words(error)),
            }
        }
        Ok(())
    }

    /// The token comes next in the text. One that cannot is a Misfit and changes nothing.
    pub fn consume(&mut self, token: TokenId) -> Result<(), Failure> {
        self.check()?;
        let is_token = token < self.end;
        match if is_token { self.matcher.try_consume_tokens(&[token]) } else { Ok(0) } {
            Ok(1) => Ok(()),
            Ok(_) => {
                let message = format!("token {token} cannot follow here");
                Err(Failure::new(Kind::Misfit, message))
            }
            Err(error) => Err(self.failure(error)),
        }
    }

    /// The text loses its last tokens.
    pub fn rollback(&mut self, count: usize) -> Result<(), Failure> {
        self.check()?;
        self.matcher.rollback(count).map_err(|error| self.failure(error))
    }
}
