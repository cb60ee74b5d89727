//! Grammars as they are meant, and as an enemy would write them.

use llguidance::toktrie::TokenId;

use crate::constraint::*;
use crate::constraint_failure::{Failure, Kind};

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
fn keywords_that_are_not_enforced_are_refused_with_their_place() {
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
    assert_eq!(words[8], 1, "the named one of the markers, and no end");
    progress.consume(CALL).expect("the marker");
    assert_eq!(read(&mut progress, "ab"), (1, true));
    assert!(progress.is_done());
}

#[test]
fn a_complement_allows_no_marker() {
    let mut progress = start(Language::Lark, "start: T\nT: ~/a+/\n");
    let mut words = [0; 9];
    assert!(progress.mask(&mut words).expect("a mask"));
    assert_eq!(words[8] & 3, 0);
    assert_eq!(progress.consume(CALL).expect_err("a marker").kind, Kind::Misfit);
    assert_eq!(read(&mut progress, "ab"), (2, true));
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

fn compile(language: Language, text: &str) -> Result<Constraint, Failure> {
    Constraint::compile(&tokens(), language, text, &LIMITS)
}

/// A schema whose n definitions refer to the next, and its end.
fn chain(count: usize, link: impl Fn(String) -> String, end: &str) -> String {
    let links = (0..count).map(|i| format!("\"{i}\": {},", link(format!("#/$defs/{}", i + 1))));
    let defs: String = links.collect();
    format!("{{\"$ref\": \"#/$defs/0\", \"$defs\": {{{defs} \"{count}\": {end}}}}}")
}

#[test]
fn chains_of_references_overrun_no_stack() {
    let plain = |target| format!("{{\"$ref\": \"{target}\"}}");
    for count in [100, 1000, 3900, 20_000] {
        for text in [
            chain(count, plain, r#"{"type": "null"}"#),
            chain(count, |target| format!("{{\"allOf\": [{{\"$ref\": \"{target}\"}}]}}"), "{}"),
            chain(count, |target| format!("{{\"anyOf\": [{{\"$ref\": \"{target}\"}}]}}"), "{}"),
            chain(count, |target| format!("{{\"items\": {{\"$ref\": \"{target}\"}}}}"), "{}"),
            chain(
                count,
                |t| format!("{{\"allOf\": [{{\"$ref\": \"{t}\"}}, {{\"minItems\": 1}}]}}"),
                "{}",
            ),
            chain(count, |t| format!("{{\"properties\": {{\"a\": {{\"$ref\": \"{t}\"}}}}}}"), "{}"),
        ] {
            match compile(Language::Schema, &text) {
                Ok(_) => assert!(count < 20_000),
                Err(failure) => assert_eq!(failure.kind, Kind::Limit, "{failure:?}"),
            }
        }
    }
    assert!(compile(Language::Schema, &chain(100, plain, r#"{"type": "null"}"#)).is_ok());
}

// In the order of the text each link is found from few; llguidance reads properties first.
#[test]
fn the_order_of_keywords_makes_no_chain_shorter() {
    let defs: String =
        (0..6000).map(|i| format!("\"{i}\": {{\"$ref\": \"#/$defs/{}\"}},", i + 1)).collect();
    let names = (0..6000).rev().map(|i| format!("{{\"$ref\": \"#/$defs/{i}\"}}"));
    let text = format!(
        "{{\"additionalProperties\": {{\"anyOf\": [{}]}}, \
         \"properties\": {{\"x\": {{\"$ref\": \"#/$defs/0\"}}}}, \
         \"$defs\": {{{defs} \"6000\": {{}}}}}}",
        names.collect::<Vec<_>>().join(",")
    );
    let failure = refusal(Language::Schema, &text);
    assert_eq!(failure.kind, Kind::Limit);
    assert!(failure.message.contains("deep"), "{failure:?}");
}

#[test]
fn rules_terminals_and_parentheses_overrun_no_stack() {
    for count in [900, 5000, 18_000] {
        let rules: String = (0..count).map(|i| format!("r{i}: \"a\" r{}\n", i + 1)).collect();
        let terminals: String = (0..count).map(|i| format!("T{i}: \"a\" T{}\n", i + 1)).collect();
        for text in [
            format!("start: r0\n{rules}r{count}: \"a\"\n"),
            format!("start: T0\n{terminals}T{count}: \"a\"\n"),
            format!(
                "start: a::0\na::_: \"x\" a::incr(_) | \"y\" %if {}true{}\n",
                "not(".repeat(count),
                ")".repeat(count)
            ),
        ] {
            match compile(Language::Lark, &text) {
                Ok(constraint) => {
                    let mut progress = Progress::start(&constraint);
                    assert!(progress.mask(&mut [0; 9]).is_ok());
                }
                Err(failure) => assert_eq!(failure.kind, Kind::Limit, "{failure:?}"),
            }
        }
        for text in [
            format!("start: {}\"a\"", "(".repeat(count)),
            format!("start: {}\"a\"", "~".repeat(count)),
        ] {
            assert!(compile(Language::Lark, &text).is_err());
        }
        assert!(compile(Language::Regex, &"(".repeat(count)).is_err());
        assert!(compile(Language::Regex, &format!("{}a{}", "(".repeat(count), ")".repeat(count)))
            .is_err());
        assert!(compile(Language::Schema, &"[".repeat(count)).is_err());
        let parts =
            format!("[{{\"name\": \"a\", \"schema\": {}{}}}]", "{\"items\":".repeat(count), "1");
        assert!(compile(Language::Parts, &parts).is_err());
    }
}

/// Each was seconds to hours of work, or gibibytes, that went on behind its refusal.
#[test]
fn grammars_that_would_not_end_are_refused_by_their_cost() {
    let join = |sep: &str, count: usize, one: &dyn Fn(usize) -> String| {
        (1..=count).map(one).collect::<Vec<_>>().join(sep)
    };
    let and = join(" & ", 39, &|i| format!("/.*[a-z]{{{i}}}.*/"));
    let nested = join("\n", 40, &|i| format!("T{}: T{i} T{i}", i - 1));
    let patterns = join(",", 39, &|i| format!("{{\"pattern\": \"[a-z]{{{i}}}\"}}"));
    let lengths = join(",", 5000, &|i| format!("{{\"minLength\": {i}}}"));
    let options = |k: usize| {
        join(",", 12, &|i| format!("{{\"properties\": {{\"a{k}_{i}\": {{\"const\": {i}}}}}}}"))
    };
    let choices = join(",", 6, &|k| format!("{{\"anyOf\": [{}]}}", options(k)));
    let keys = join(",", 300, &|i| format!("\"x{i}.*y\": {{}}"));
    let primes = join(",", 9, &|i| {
        format!("{{\"multipleOf\": {}}}", [2, 3, 5, 7, 11, 13, 17, 19, 23][i - 1])
    });
    let exclusive = join(",", 4000, &|i| format!("{{\"const\": {i}}}"));
    let optional = join(",", 3000, &|i| format!("\"p{i}\": {{}}"));
    for (language, text) in [
        (Language::Lark, format!("start: A\nA: {and}")),
        (Language::Lark, format!("start: A\nA: (\"x\" B)+\nB: {and}")),
        (Language::Lark, format!("start: T0\n{nested}\nT40: \"a\"")),
        (Language::Schema, format!("{{\"type\": \"string\", \"allOf\": [{patterns}]}}")),
        (Language::Schema, format!("{{\"properties\": {{\"a\": {{\"allOf\": [{patterns}]}}}}}}")),
        (Language::Lark, format!("start: %json {{\"type\": \"string\", \"allOf\": [{patterns}]}}")),
        (
            Language::Schema,
            format!("{{\"pattern\": \"{}\", \"anyOf\": [{lengths}]}}", "a".repeat(60_000)),
        ),
        (Language::Schema, format!("{{\"allOf\": [{choices}]}}")),
        (Language::Schema, format!("{{\"patternProperties\": {{{keys}}}}}")),
        (Language::Schema, r#"{"type": "integer", "multipleOf": 999983}"#.to_string()),
        (Language::Schema, r#"{"type": "integer", "multipleOf": 2147483647}"#.to_string()),
        (Language::Schema, format!("{{\"type\": \"integer\", \"allOf\": [{primes}]}}")),
        (Language::Schema, format!("{{\"oneOf\": [{exclusive}]}}")),
        (Language::Schema, format!("{{\"properties\": {{{optional}}}}}")),
        (Language::Regex, r"\pL".repeat(3000)),
        (Language::Regex, "a".repeat(100_000)),
        (
            Language::Lark,
            format!("start: %regex {{\"substring_chars\": \"{}\"}}", "ab".repeat(40_000)),
        ),
    ] {
        let failure = refusal(language, &text);
        let head: String = text.chars().take(60).collect();
        assert_eq!(failure.kind, Kind::Limit, "{head}: {failure:?}");
    }
}

#[test]
fn usual_grammars_stay_within_the_limits() {
    let properties: Vec<String> =
        (0..400).map(|i| format!("\"property{i}\": {{\"type\": \"string\"}}")).collect();
    let properties = properties.join(",");
    let cards: Vec<String> = (0..500).map(|i| format!("\"card {i}\"")).collect();
    for text in [
        format!("{{\"properties\": {{{properties}}}, \"additionalProperties\": false}}"),
        format!("{{\"enum\": [{}]}}", cards.join(",")),
        format!(
            "{{\"allOf\": [{{\"$ref\": \"#/$defs/a\"}}, {{\"required\": [\"b\"], \"properties\": \
             {{\"b\": {{\"anyOf\": [{{\"type\": \"string\"}}, {{\"type\": \"null\"}}]}}}}}}], \
             \"$defs\": {{\"a\": {{\"type\": \"object\", \"properties\": {{{properties}}}}}}}}}"
        ),
        r##"{"type": "object", "properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"},
            "n": {"type": "number", "multipleOf": 0.01},
            "id": {"type": "string", "format": "email", "maxLength": 40}}}"##
            .to_string(),
        r#"{"type": "string", "pattern": "^[A-Z][a-z]+$", "minLength": 3, "maxLength": 20}"#
            .to_string(),
        r#"{"type": "integer", "multipleOf": 1000, "minimum": 0}"#.to_string(),
    ] {
        let made = compile(Language::Schema, &text);
        assert!(made.is_ok(), "{}: {:?}", &text[..60], made.err());
    }
}

#[test]
fn a_text_that_becomes_too_complex_is_over_a_limit() {
    let grammar =
        "start: A\nA: ~/(?s:.*)a(?s:.){200}/ & ~/(?s:.*)b(?s:.){200}/ & /(?s:.*)c(?s:.){100}/";
    let mut progress = start(Language::Lark, grammar);
    let mut words = [0; 9];
    let failure = (0..200).find_map(|i| {
        let failed = progress.mask(&mut words).err();
        failed.or_else(|| progress.consume(TokenId::from(b"abc"[i % 3])).err())
    });
    assert_eq!(failure.expect("the end").kind, Kind::Limit);
    let rows = "start: e\ne: e e e e e e e e e e e e e e e e e e e e | \"a\" |";
    let mut progress = start(Language::Lark, rows);
    let failure = (0..200).find_map(|_| progress.consume(TokenId::from(b'a')).err());
    assert_eq!(failure.expect("the end").kind, Kind::Limit);
}

#[test]
fn a_text_that_is_stopped_is_over() {
    let mut progress = start(Language::Regex, "[ab]*");
    progress.stopper().cancel();
    assert_eq!(progress.mask(&mut [0; 9]).expect_err("the stop").kind, Kind::Limit);
    let mut other = start(Language::Regex, "[ab]*");
    assert!(other.mask(&mut [0; 9]).is_ok());
}

/// Place and message, as a client reads them behind its field's name.
#[test]
fn refusals_of_schemas_say_what_was_found_and_what_is_supported() {
    const ENDLESS: &str =
        "no document is valid: each has to be, or contain, another of this schema";
    const ONE_OF: &str =
        "the alternatives of a oneOf are not known to exclude each other, expected \
        other types, constants or required properties in each, or anyOf";
    const COUNT: &str = "expected a whole number from 0";
    const LOOK: &str =
        "regular expression: look-around, including look-ahead and look-behind, is not \
        supported";
    const STRING: &str =
        "no string is valid: none has the pattern and the format or lengths beside it";
    for (schema, expected) in [
        // References that no document ends.
        (r##"{"$ref": "#"}"##, format!("#: {ENDLESS}")),
        (r##"{"anyOf": [{"$ref": "#"}]}"##, format!("#: {ENDLESS}")),
        (r##"{"allOf": [{"$ref": "#"}, {"type": "string"}]}"##, format!("#: {ENDLESS}")),
        (
            r##"{"properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"$ref": "#/$defs/b"},
            "b": {"$ref": "#/$defs/a"}}}"##,
            format!("#/$defs/a: {ENDLESS}"),
        ),
        (
            r##"{"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}"##,
            format!("#: {ENDLESS}"),
        ),
        (
            r##"{"type": ["array"], "items": {"$ref": "#"}, "minItems": 1}"##,
            format!("#: {ENDLESS}"),
        ),
        (
            r##"{"type": "object", "properties": {"a": {"$ref": "#", "type": "object"}}}"##,
            "#: a $ref that leads back to itself is supported without keywords beside it alone"
                .to_string(),
        ),
        // Alternatives.
        (r#"{"oneOf": [{"type": "integer"}, {"minimum": 2}]}"#, format!("#: {ONE_OF}")),
        (r#"{"anyOf": []}"#, "#/anyOf: [], expected schemas".to_string()),
        (r#"{"oneOf": []}"#, "#/oneOf: [], expected schemas".to_string()),
        (r#"{"anyOf": {}}"#, "#/anyOf: {}, expected a list".to_string()),
        (r#"{"anyOf": [false, false]}"#, "#/anyOf/0: no value is valid: schema is false".to_string()),
        (r#"{"enum": []}"#, "#: no value is valid: an enum is empty".to_string()),
        (r#"{"enum": 5}"#, "#/enum: 5, expected a list of values".to_string()),
        (
            r#"{"type": "string", "enum": [1]}"#,
            "#: no value is valid: incompatible types".to_string(),
        ),
        // Kinds of values.
        (r#"{"type": "string", "minLength": -1}"#, format!("#/minLength: -1, {COUNT}")),
        (r#"{"maxItems": "5"}"#, format!("#/maxItems: \"5\", {COUNT}")),
        (r#"{"type": "object", "minProperties": 1.5}"#, format!("#/minProperties: 1.5, {COUNT}")),
        (
            r#"{"type": "integer", "minimum": "5"}"#,
            "#/minimum: \"5\", expected a number".to_string(),
        ),
        (
            r#"{"type": "integer", "multipleOf": 0}"#,
            "#/multipleOf: 0, expected a number above 0".to_string(),
        ),
        (r#"{"required": [1]}"#, "#/required: [1], expected a list of names".to_string()),
        (r#"{"items": 5}"#, "#/items: 5, expected an object or a boolean".to_string()),
        (r#"{"type": []}"#, "#/type: [], expected types".to_string()),
        (
            r#"{"type": "text"}"#,
            "#/type: \"text\" is not a type, expected null, boolean, integer, \
            number, string, array, object"
                .to_string(),
        ),
        // Strings.
        (
            r#"{"properties": {"b": {"pattern": "(?<!x)y"}}}"#,
            format!("#/properties/b/pattern: {LOOK}"),
        ),
        (r#"{"pattern": 5}"#, "#/pattern: 5, expected a string".to_string()),
        (r#"{"pattern": "(a"}"#, "#/pattern: regular expression: unclosed group".to_string()),
        (
            r#"{"patternProperties": {"(": {}}}"#,
            "#/patternProperties: regular expression: unclosed group".to_string(),
        ),
        (
            r#"{"pattern": "\\bfoo"}"#,
            "#: regular expression: \\b, \\B and other conditions on what \
            is beside a place are not supported"
                .to_string(),
        ),
        (r#"{"type": "string", "pattern": "^a$", "minLength": 5}"#, format!("#: {STRING}")),
        (
            r#"{"type": "string", "format": 5}"#,
            "#/format: the format 5 is not supported, expected \
            date-time, time, date, duration, email, hostname, ipv4, ipv6, uuid, uri"
                .to_string(),
        ),
        (
            r#"{"type": "string", "minLength": 5, "maxLength": 2}"#,
            "#: no value is valid: minLength (5) is greater than maxLength (2)".to_string(),
        ),
        // References and names.
        (
            r##"{"$ref": "#/$defs/x"}"##,
            "#/$ref: \"#/$defs/x\", expected a place in the schema".to_string(),
        ),
        (
            r#"{"$ref": "x.json"}"#,
            "#/$ref: \"x.json\", expected # or #/ and plain names".to_string(),
        ),
        (
            r#"{"type": "object", "properties": {}, "additionalProperties": false,
            "required": ["b"]}"#,
            "#: no value is valid: required property 'b' is unsatisfiable".to_string(),
        ),
    ] {
        let failure = refusal(Language::Schema, schema);
        assert_eq!(format!("#{}: {}", failure.pointer, failure.message), expected, "{schema}");
        assert_ne!(failure.kind, Kind::Bug);
    }
}

#[test]
fn refusals_by_the_compiler_name_the_innermost_place() {
    let one_of = r#"{"oneOf": [{"type": "integer"}, {"minimum": 2}]}"#;
    let boundary = r#"{"type": "string", "pattern": "a\\bc"}"#;
    let nothing = r#"{"allOf": [{"type": "string", "minLength": 3}, {"maxLength": 2}]}"#;
    for inner in [one_of, boundary, nothing] {
        for (schema, pointer) in [
            (inner.to_string(), ""),
            (
                format!(
                    r#"{{"type": "object", "properties": {{"a": {{"type": "null"}},
                    "b/c": {{"type": "array", "items": {inner}, "minItems": 1}}}},
                    "required": ["a", "b/c"]}}"#
                ),
                "/properties/b~1c/items",
            ),
            (
                format!(
                    r##"{{"anyOf": [{{"type": "object", "properties":
                    {{"x": {{"$ref": "#/$defs/d"}}}}, "required": ["x"]}}], "$defs": {{"d": {inner}}}}}"##
                ),
                "/$defs/d",
            ),
        ] {
            let failure = refusal(Language::Schema, &schema);
            assert_eq!(failure.pointer, pointer, "{schema}: {failure:?}");
        }
    }
    let parts = format!(
        r#"[{{"name": "all", "lark": "start: @m @n"}}, {{"name": "m", "schema": {{}}}},
        {{"name": "n", "schema": {{"items": {one_of}}}}}]"#
    );
    let failure = refusal(Language::Parts, &parts);
    assert_eq!((failure.grammar.as_str(), failure.pointer.as_str()), ("n", "/items"));
}

#[test]
fn schemas_with_a_way_out_and_keywords_of_other_types_are_taken() {
    for schema in [
        r##"{"anyOf": [{"$ref": "#"}, {"type": "string"}]}"##,
        r##"{"type": "object", "properties": {"a": {"$ref": "#"}}}"##,
        r##"{"properties": {"a": {"$ref": "#"}}, "required": ["a"]}"##,
        r##"{"type": "array", "items": {"$ref": "#"}}"##,
        r#"{"type": "string", "required": true, "minItems": "x", "minimum": null}"#,
        r#"{"type": "integer", "pattern": "(", "patternProperties": {"(": {}}}"#,
        r#"{"minimum": 1, "exclusiveMinimum": true}"#,
    ] {
        start(Language::Schema, schema);
    }
}

#[test]
fn a_text_that_cannot_end_names_no_part_of_the_library() {
    let mut progress = start(Language::Schema, r##"{"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}"##);
    let failure = progress.mask(&mut [0; 9]).expect_err("nothing can follow");
    let said = "nothing can follow and the text is not complete: no text of this form ends here";
    assert_eq!(failure.message, said);
}

#[test]
fn refusals_of_expressions_show_no_grammar_that_nobody_wrote() {
    for (text, message) in [
        ("(", "regular expression: unclosed group"),
        (
            "a{5,2}",
            "regular expression: invalid repetition count range, the start must be <= the end",
        ),
        (r"(a)\1", "regular expression: backreferences are not supported"),
    ] {
        assert_eq!(refusal(Language::Regex, text).message, message);
    }
}
