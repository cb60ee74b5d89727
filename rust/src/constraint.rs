//! Which tokens may follow a text that is held to a JSON schema, a regular expression or a grammar:
//! llguidance with the limits and the strictness that a server needs.

use std::sync::mpsc;
use std::sync::Arc;
use std::time::Duration;

use llguidance::api::{GrammarInit, GrammarWithLexer, ParserLimits, StopReason, TopLevelGrammar};
use llguidance::earley::SlicedBiasComputer;
use llguidance::toktrie::{
    ApproximateTokEnv, InferenceCapabilities, TokEnv, TokRxInfo, TokTrie, TokenId,
};
use llguidance::{Logger, Matcher, ParserFactory};
use serde_json::Value;

use crate::constraint_failure::{Failure, Kind};
use crate::schema_check::prepare_schema;

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
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Language {
    Schema,
    Regex,
    Lark,
    /// A JSON list of {"name", and one of "schema", "regex" and "lark"}: the first begins, and names
    /// others as @name.
    Parts,
}

/// Levels of a schema take some KiB each.
const STACK_BYTES: usize = 64 << 20;

impl Tokens {
    /// A marker is only itself: no text spells it, and a grammar names it.
    pub fn make<'a>(words: impl Iterator<Item = (&'a [u8], bool)>) -> Result<Tokens, Failure> {
        const MARKER: u8 = TokTrie::SPECIAL_TOKEN_MARKER;
        let mut list: Vec<Vec<u8>> = Vec::new();
        for (bytes, is_marker) in words {
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
                .map_err(|error| Failure::of_words(&error.to_string()))?;
        factory.quiet();
        Ok(Tokens { factory: Arc::new(factory), end })
    }
}

fn parse(text: &str) -> Result<Value, Failure> {
    serde_json::from_str(text)
        .map_err(|error| Failure::new(Kind::Invalid, format!("not JSON: {error}")))
}

fn part_of(value: &Value) -> Result<GrammarWithLexer, Failure> {
    let text = |key: &str| value.get(key).and_then(Value::as_str);
    let name = text("name").unwrap_or_default().to_string();
    let mut grammar = if let Some(lark) = text("lark") {
        GrammarWithLexer::from_lark(lark.to_string())
    } else if let Some(regex) = text("regex") {
        GrammarWithLexer::from_regex(regex)
    } else if let Some(schema) = value.get("schema") {
        let prepared = prepare_schema(schema.clone())
            .map_err(|failure| Failure { grammar: name.clone(), ..failure })?;
        GrammarWithLexer::from_json_schema(prepared)
    } else {
        return Err(Failure::new(Kind::Bug, format!("grammar {name} is of no language")));
    };
    grammar.name = Some(name);
    Ok(grammar)
}

fn grammar_of(language: Language, text: &str) -> Result<TopLevelGrammar, Failure> {
    Ok(match language {
        Language::Schema => TopLevelGrammar::from_json_schema(prepare_schema(parse(text)?)?),
        Language::Regex => TopLevelGrammar::from_regex(text),
        Language::Lark => TopLevelGrammar::from_lark(text.to_string()),
        Language::Parts => {
            let parts = parse(text)?;
            let parts = parts.as_array().map(Vec::as_slice).unwrap_or_default();
            let grammars = parts.iter().map(part_of).collect::<Result<Vec<_>, _>>()?;
            TopLevelGrammar { grammars, max_tokens: None }
        }
    })
}

/// A compiled grammar, of which each text gets a copy.
pub struct Constraint {
    fresh: Matcher,
    end: TokenId,
}

impl Constraint {
    /// In a thread of its own, which has the stack that deep schemas need and is left alone when it
    /// takes too long: what it may still do is bounded by fuel.
    pub fn compile(
        tokens: &Tokens,
        language: Language,
        text: &str,
        limits: &Limits,
    ) -> Result<Constraint, Failure> {
        if text.len() as u64 > limits.text_bytes_max {
            let message = format!("{} bytes, at most {}", text.len(), limits.text_bytes_max);
            return Err(Failure::new(Kind::Limit, message));
        }
        let parser_limits = ParserLimits {
            max_lexer_states: limits.lexer_states_max as usize,
            step_lexer_fuel: limits.step_lexer_fuel,
            step_max_items: limits.step_items_max as usize,
            verbose_errors: false,
            ..ParserLimits::default()
        };
        let factory = Arc::clone(&tokens.factory);
        let text = text.to_string();
        let (sender, receiver) = mpsc::channel();
        let work = move || {
            // Nobody listens any more if it took too long.
            let _ = sender.send(compile_here(&factory, language, &text, parser_limits));
        };
        let compiler = std::thread::Builder::new()
            .stack_size(STACK_BYTES)
            .spawn(work)
            .map_err(|error| Failure::new(Kind::Limit, format!("no thread: {error}")))?;
        let patience = Duration::from_millis(limits.compile_milliseconds_max);
        let fresh = match receiver.recv_timeout(patience) {
            Ok(made) => {
                // It has nothing left to do but to let go of the vocabulary.
                let _ = compiler.join();
                made?
            }
            Err(mpsc::RecvTimeoutError::Timeout) => {
                let message =
                    format!("takes longer than {} ms to compile", limits.compile_milliseconds_max);
                return Err(Failure::new(Kind::Limit, message));
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                return Err(Failure::new(Kind::Bug, "the compiler panicked"));
            }
        };
        Ok(Constraint { fresh, end: tokens.end })
    }
}

fn compile_here(
    factory: &ParserFactory,
    language: Language,
    text: &str,
    limits: ParserLimits,
) -> Result<Matcher, Failure> {
    let grammar = GrammarInit::Serialized(grammar_of(language, text)?);
    let logger = Logger::new(0, 0);
    let capabilities = InferenceCapabilities::default();
    let parser = factory.create_parser_from_init_ext(grammar, logger, capabilities, limits);
    let matcher = Matcher::new(parser);
    match matcher.get_error() {
        Some(words) => Err(Failure::of_words(&words)),
        None => Ok(matcher),
    }
}

/// How far one text has come.
pub struct Progress {
    matcher: Matcher,
    end: TokenId,
}

impl Progress {
    /// Caches are not shared with other texts: what a step costs, and so whether it stays within its
    /// limits, depends on nobody else.
    pub fn start(constraint: &Constraint) -> Progress {
        Progress { matcher: constraint.fresh.deep_clone(), end: constraint.end }
    }

    fn failure(&self, words: &str) -> Failure {
        let mut failure = Failure::of_words(words);
        let is_limit = matches!(
            self.matcher.stop_reason(),
            StopReason::LexerTooComplex | StopReason::ParserTooComplex
        );
        if is_limit {
            failure.kind = Kind::Limit;
        }
        failure
    }

    fn check(&self) -> Result<(), Failure> {
        match self.matcher.get_error() {
            Some(words) => Err(self.failure(&words)),
            None => Ok(()),
        }
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
        let mask = match self.matcher.compute_mask() {
            Ok(mask) => mask,
            Err(error) => return Err(self.failure(&error.to_string())),
        };
        let may_end = mask.is_allowed(self.end);
        for (word, allowed) in words.iter_mut().zip(mask.as_slice()) {
            *word = *allowed;
        }
        let (last, bit) = (self.end as usize / 32, self.end % 32);
        if let Some(word) = words.get_mut(last) {
            *word &= !(1 << bit);
        }
        Ok(may_end)
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
            Err(error) => Err(self.failure(&error.to_string())),
        }
    }

    /// The text loses its last tokens.
    pub fn rollback(&mut self, count: usize) -> Result<(), Failure> {
        self.check()?;
        self.matcher.rollback(count).map_err(|error| self.failure(&error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        text_bytes_max: 1 << 20,
        compile_milliseconds_max: 20_000,
        lexer_states_max: 50_000,
        step_lexer_fuel: 200_000,
        step_items_max: 50_000,
    };
    const CALL: TokenId = 256;

    /// A token for each byte, and two markers.
    fn tokens() -> Tokens {
        let bytes: Vec<[u8; 1]> = (0..=255).map(|byte| [byte]).collect();
        let words = bytes.iter().map(|word| (&word[..], false));
        let markers = [&b"<call>"[..], b"</call>"].map(|word| (word, true));
        Tokens::make(words.chain(markers)).expect("a vocabulary")
    }

    fn start(language: Language, text: &str) -> Progress {
        Progress::start(&Constraint::compile(&tokens(), language, text, &LIMITS).expect("a grammar"))
    }

    fn refusal(language: Language, text: &str) -> Failure {
        match Constraint::compile(&tokens(), language, text, &LIMITS) {
            Ok(_) => panic!("{text} was taken"),
            Err(failure) => failure,
        }
    }

    /// How many bytes of the text can stand, and whether it may end there.
    fn read(progress: &mut Progress, text: &str) -> (usize, bool) {
        let mut words = [0; 9];
        for (at, byte) in text.bytes().enumerate() {
            let may_end = progress.mask(&mut words).expect("a mask");
            let allowed = words[byte as usize / 32] >> (byte % 32) & 1 == 1;
            assert_eq!(allowed, progress.consume(TokenId::from(byte)).is_ok());
            if !allowed {
                return (at, may_end);
            }
        }
        (text.len(), progress.mask(&mut words).expect("a mask"))
    }

    #[test]
    fn documents_of_a_schema_pass_and_others_do_not() {
        let schema = r##"{"type": "object", "properties": {"n": {"$ref": "#/$defs/n"}},
            "required": ["n"], "additionalProperties": false, "$defs": {"n": {"type": "integer"}}}"##;
        for (text, passes) in [
            (r#"{"n":12}"#, true),
            ("{\n  \"n\": -3\n}", true),
            (r#"{"n":1.5}"#, false),
            (r#"{"m":1}"#, false),
            ("{}", false),
        ] {
            let read = read(&mut start(Language::Schema, schema), text);
            assert_eq!(read == (text.len(), true), passes, "{text}: {read:?}");
        }
    }

    #[test]
    fn what_cannot_be_held_to_is_refused_with_its_place() {
        for (schema, pointer, kind) in [
            (r#"{"properties": {"a/b": {"not": {}}}}"#, "/properties/a~1b/not", Kind::Unsupported),
            (r#"{"items": [{}, {"uniqueItems": true}]}"#, "/items/1/uniqueItems", Kind::Unsupported),
            (r#"{"type": "string", "format": "iri"}"#, "/format", Kind::Unsupported),
            (r#"{"type": "text"}"#, "/type", Kind::Invalid),
            (r##"{"$ref": "#/$defs/x"}"##, "/$ref", Kind::Invalid),
            (r#"{"$ref": "http://example.com/x"}"#, "/$ref", Kind::Unsupported),
            (r#"{"const": 9007199254740993}"#, "/const", Kind::Unsupported),
        ] {
            let failure = refusal(Language::Schema, schema);
            assert_eq!(failure.pointer, pointer, "{schema}: {failure:?}");
            assert_eq!(failure.kind, kind, "{schema}: {failure:?}");
        }
        assert_eq!(refusal(Language::Schema, "{").kind, Kind::Invalid);
    }

    #[test]
    fn a_schema_cannot_loosen_its_own_reading() {
        let schema = r#"{"oneOf": [{"type": "integer"}, {"minimum": 2}],
            "x-guidance": {"coerce_one_of": true, "lenient": true}}"#;
        assert_eq!(refusal(Language::Schema, schema).kind, Kind::Unsupported);
    }

    #[test]
    fn white_space_ends() {
        let text = format!("[{}1]", " ".repeat(41));
        let read = read(&mut start(Language::Schema, r#"{"type": "array"}"#), &text);
        assert_eq!(read.0, 41);
    }

    #[test]
    fn a_marker_is_no_text_and_is_named_by_its_id() {
        let grammar = format!("start: /(?s:.*)/ <[{CALL}]> \"a\"");
        let mut progress = start(Language::Lark, &grammar);
        assert_eq!(read(&mut progress, "x<call>y"), (8, false));
        let mut words = [0; 9];
        progress.mask(&mut words).expect("a mask");
        assert_eq!(words[8], 1, "of the markers the named one, and no end");
        progress.consume(CALL).expect("the marker");
        assert_eq!(read(&mut progress, "ab"), (1, true));
        assert!(progress.is_done());
    }

    #[test]
    fn several_grammars_are_one() {
        let parts = r#"[{"name": "all", "lark": "start: @number \",\" @word \"!\""},
            {"name": "number", "schema": {"type": "integer"}}, {"name": "word", "regex": "[a-c]+"}]"#;
        assert_eq!(read(&mut start(Language::Parts, parts), "12,abc!"), (7, true));
        assert_eq!(read(&mut start(Language::Parts, parts), "12,abd!"), (5, false));
        let bad = r#"[{"name": "all", "lark": "start: @n"}, {"name": "n", "schema": {"if": {}}}]"#;
        let failure = refusal(Language::Parts, bad);
        assert_eq!((failure.grammar.as_str(), failure.pointer.as_str()), ("n", "/if"));
    }

    #[test]
    fn a_text_goes_back() {
        let mut progress = start(Language::Regex, "[0-9]{2}");
        assert_eq!(read(&mut progress, "12"), (2, true));
        assert!(progress.is_done());
        progress.rollback(1).expect("one token less");
        assert!(!progress.is_done());
        assert_eq!(read(&mut progress, "a"), (0, false));
        assert_eq!(read(&mut progress, "7"), (1, true));
    }

    #[test]
    fn grammars_have_limits() {
        let long = format!("\"{}\"", "a".repeat(1 << 20));
        assert_eq!(refusal(Language::Schema, &long).kind, Kind::Limit);
        let deep = format!("{}{{}}{}", r#"{"items":"#.repeat(130), "}".repeat(130));
        assert_eq!(refusal(Language::Schema, &deep).kind, Kind::Invalid);
        assert_eq!(refusal(Language::Lark, "start: nothing").kind, Kind::Invalid);
        assert_eq!(refusal(Language::Regex, "(").kind, Kind::Invalid);
    }
}
