//! A compiled template, and what goes wrong with one.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, Ordering};

use minijinja::machinery::{self, CodeGenerator, Instructions};
use minijinja::{AutoEscape, Environment, Error, ErrorKind};

use crate::environment::make_environment;
use crate::hooks::with_hooks;
use crate::json::value_of;
use crate::memory::live_bytes;
use crate::source::{prepare, syntax};
use crate::strftime::{strftime, Time};
use crate::watch::{Stop, Watch};

const NAME: &str = "template";
const SOURCE_BYTES_MAX: usize = 1 << 20;
/// A step of fuel pays for 64 bytes, so this and one step for each byte of the variables bound a
/// single value, too. Ten thousand messages take some two million.
const FUEL_BASE: u64 = 6_000_000;
const LOST_BYTES_MAX: i64 = 16 << 20;

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
            match cause.downcast_ref() {
                Some(Stop::Raised(text)) => {
                    return Failure { kind: Kind::Raised, message: text.clone(), line };
                }
                Some(Stop::OverLimit(text)) => {
                    return Failure { kind: Kind::Limit, message: text.clone(), line };
                }
                None => {}
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

#[repr(C)]
pub struct Limits {
    pub fuel: u64,
    pub output_bytes_max: u64,
    /// 0: no limit.
    pub milliseconds_max: u64,
}

pub struct Template {
    // Borrows from `source`, and is dropped before it.
    instructions: Instructions<'static>,
    _source: Box<str>,
    environment: Environment<'static>,
    /// Bytes that renderings have left behind: values that hold themselves are never freed.
    lost_bytes: AtomicI64,
}

impl Template {
    pub fn compile(source: &str) -> Result<Template, Failure> {
        if source.len() > SOURCE_BYTES_MAX {
            let message = format!("{} bytes, at most {SOURCE_BYTES_MAX}", source.len());
            return Err(Failure::new(Kind::Syntax, message));
        }
        // Jinja reads every line ending as its own.
        let source = source.replace("\r\n", "\n").replace('\r', "\n");
        let prepared = prepare(&source).map_err(|error| Failure {
            kind: Kind::Syntax,
            message: error.message,
            line: error.line,
        })?;
        let source = prepared.into_boxed_str();
        // SAFETY: the text lies on the heap, where it stays until `_source` is dropped.
        let text: &'static str = unsafe { &*std::ptr::from_ref::<str>(&source) };
        let tree = machinery::parse(text, NAME, syntax()).map_err(Failure::from_error)?;
        let mut generator = CodeGenerator::new(NAME, text);
        generator.compile_stmt(&tree);
        let (instructions, _) = generator.finish();
        Ok(Template {
            instructions: with_hooks(&instructions),
            _source: source,
            environment: make_environment(),
            lost_bytes: AtomicI64::new(0),
        })
    }

    pub fn render(&self, context: &str, limits: &Limits, now: &Time) -> Result<String, Failure> {
        if self.lost_bytes.load(Ordering::Relaxed) > LOST_BYTES_MAX {
            let message = "the template makes values that hold themselves".to_string();
            return Err(Failure::new(Kind::Limit, message));
        }
        let live_before = live_bytes();
        let rendered = self.evaluate(context, limits, now);
        let kept = match &rendered {
            Ok(text) => text.capacity(),
            Err(failure) => failure.message.capacity(),
        };
        self.lost_bytes.fetch_add(live_bytes() - live_before - kept as i64, Ordering::Relaxed);
        rendered
    }

    fn evaluate(&self, context: &str, limits: &Limits, now: &Time) -> Result<String, Failure> {
        let variables: serde_json::Value = serde_json::from_str(context)
            .map_err(|error| Failure::new(Kind::Bug, format!("context: {error}")))?;
        let mut environment = self.environment.clone();
        environment.set_fuel(Some(limits.fuel.min(FUEL_BASE + context.len() as u64)));
        let now = *now;
        environment.add_function("strftime_now", move |format: &str| strftime(format, &now));
        let root = value_of(variables);
        let watch = Watch::begin(limits.milliseconds_max, limits.output_bytes_max);
        let mut text = String::new();
        let blocks = BTreeMap::new();
        let evaluated = machinery::eval(
            &environment,
            &self.instructions,
            root,
            &blocks,
            &mut machinery::make_string_output(&mut text),
            AutoEscape::None,
        )
        .map(drop);
        drop(watch);
        evaluated.map_err(Failure::from_error)?;
        if text.len() as u64 > limits.output_bytes_max {
            let message = format!("the prompt is longer than {} bytes", limits.output_bytes_max);
            return Err(Failure::new(Kind::Limit, message));
        }
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time {
        year: 1970, month: 1, day: 1, hour: 0, minute: 0, second: 0, weekday: 4, day_of_year: 0,
    };

    fn render(source: &str) -> Result<String, Failure> {
        let limits =
            Limits { fuel: 20_000_000, output_bytes_max: 64 << 20, milliseconds_max: 1_000 };
        let context = r#"{"messages": [{"role": "user", "content": "hi"}], "n": 60}"#;
        Template::compile(source)?.render(context, &limits, &NOW)
    }

    fn said(source: &str) -> String {
        render(source).unwrap_or_else(|failure| failure.message)
    }

    /// Renders on a stack of half a mebibyte.
    fn said_on_a_small_stack(source: String) -> String {
        let builder = std::thread::Builder::new().stack_size(512 << 10);
        builder.spawn(move || said(&source)).expect("a thread").join().expect("no panic")
    }

    #[test]
    fn chains_up_to_the_limit_need_little_stack() {
        for (before, step, behind) in [
            ("1", "+1", ""), ("1", " and 1", ""), ("1", " or 1", ""), ("", "not ", "1"), ("1", "~1", ""),
            ("n", ".a", ""), ("n", "[0]", ""), ("n", "|d(1)", ""), ("n", " is odd", ""), ("1", "==1", ""),
            ("", "1 if n else ", "1"), ("1", " if n", ""), ("", "-", "1"), ("", "n if 0 else ", "n"),
            ("n", ".a()", ""), ("n", "()", ""), ("1", "*1", ""), ("1", "**1", ""), ("n", "[0:1]", ""),
        ] {
            for count in [50, 190, 390] {
                let source = format!("{{{{ {before}{}{behind} }}}}", step.repeat(count));
                let text = said_on_a_small_stack(source);
                assert!(!text.contains("steps") || count > 190 || step.len() > 5, "{step} {text}");
            }
            let source = format!("{{{{ {before}{}{behind} }}}}", step.repeat(25_000));
            let text = said_on_a_small_stack(source);
            assert!(text.contains("steps"), "{step}: {text}");
        }
    }

    #[test]
    fn nested_blocks_and_brackets_need_little_stack() {
        for (open, close) in [
            ("{% if n %}", "{% endif %}"), ("{% for i in [1] %}", "{% endfor %}"),
            ("{% set x %}", "{% endset %}"), ("{% with %}", "{% endwith %}"),
            ("{% macro f() %}", "{% endmacro %}"), ("{% filter upper %}", "{% endfilter %}"),
            ("{% call f() %}", "{% endcall %}"), ("{% generation %}", "{% endgeneration %}"),
            ("{% if 0 %}{% else %}", "{% endif %}"), ("{% if 0 %}{% elif 1 %}", "{% endif %}"),
        ] {
            for count in [60, 140, 5_000] {
                said_on_a_small_stack(format!("{}{}", open.repeat(count), close.repeat(count)));
                said_on_a_small_stack(open.repeat(count));
            }
        }
        for (open, close) in [("[", "]"), ("(", ")"), ("{1:", "}"), ("f(", ")"), ("x[", "]"), ("(1,", ")"),
            ("1|d(", ")"), ("1 is eq(", ")"), ("-(", ")"), ("not (", ")"), ("1 if (", ") else 2")] {
            for count in [40, 70, 390, 5_000] {
                let nested = format!("{{{{ {}1{} }}}}", open.repeat(count), close.repeat(count));
                said_on_a_small_stack(nested);
            }
        }
        for count in [390, 5_000] {
            let branches = format!("{{% if 0 %}}{}{{% endif %}}", "{% elif 0 %}".repeat(count));
            said_on_a_small_stack(branches);
        }
    }

    #[test]
    fn work_that_no_fuel_counts_is_stopped_and_named() {
        let grow = "{% set a = namespace(x=[1]) %}{% set b = namespace(x=[1]) %}{% for i in range(60) %}";
        let end = "{% endfor %}";
        let twice = "{% set a.x = [a.x, a.x] %}{% set b.x = [b.x, b.x] %}";
        for source in [
            format!("{grow}{twice}{end}{{{{ a.x == b.x }}}}"),
            format!("{grow}{twice}{end}{{{{ a.x in [b.x] }}}}"),
            format!("{grow}{twice}{end}{{{{ [a.x, b.x]|sort }}}}"),
            format!("{grow}{{% set a.x = a.x + a.x %}}{end}{{{{ a.x|length }}}}"),
            format!("{grow}{{% set a.x = a.x * 2 %}}{end}{{{{ a.x|length }}}}"),
            format!("{grow}{{% set a.x = {{'k': a.x, 'l': a.x}} %}}{end}{{{{ a.x }}}}"),
            format!("{grow}{{% set a.x = (a.x, a.x) %}}{end}{{{{ a.x|tojson }}}}"),
            format!("{grow}{{% set a.x = dict(k=a.x, l=a.x) %}}{end}{{{{ a.x ~ '' }}}}"),
            format!("{grow}{{% set a.x = a.x|batch(1)|list %}}{end}{{% for i in range(300) %}}{{% set a.x = a.x|batch(1)|list %}}{end}"),
            "{% set a = namespace(x='ab') %}{% for i in range(60) %}{% set a.x = a.x ~ a.x %}{% endfor %}".into(),
            "{% set a = namespace(x='ab') %}{% for i in range(60) %}{% set a.x = a.x + a.x %}{% endfor %}".into(),
            "{% set a = namespace(x='ab') %}{% for i in range(60) %}{% set a.x = a.x * 9 %}{% endfor %}".into(),
            "{% set a = namespace(x='ab') %}{% for i in range(60) %}{% set a.x = a.x|replace('a', a.x) %}{% endfor %}".into(),
            "{% set a = namespace(x='ab') %}{% for i in range(60) %}{% set a.x = a.x.replace('', a.x) %}{% endfor %}".into(),
            "{% set a = namespace(x='ab') %}{% for i in range(60) %}{% set a.x = a.x.join([a.x, a.x, a.x]) %}{% endfor %}".into(),
            "{% set a = namespace(x='ab') %}{% for i in range(60) %}{% set a.x = [a.x, a.x]|join(a.x) %}{% endfor %}".into(),
            "{% set a = namespace(x='ab') %}{% for i in range(60) %}{% set a.x = '%s%s'|format(a.x, a.x) %}{% endfor %}".into(),
            "{% set a = namespace(x='ab') %}{% for i in range(60) %}{% set a.x = '{0}{0}'.format(a.x) %}{% endfor %}".into(),
            "{% set a = namespace(x='ab') %}{% for i in range(60) %}{% set a.x %}{{ a.x }}{{ a.x }}{% endset %}{% endfor %}".into(),
            "{% macro f(x, n) %}{% if n %}{{ f([x, x], n - 1) }}{% else %}{{ x == [x] }}{{ [x]|string }}{% endif %}{% endmacro %}{{ f([1], 40) }}".into(),
            "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(45) }}".into(),
            "{{ [1] * 100000000 == [1] * 100000000 }}".into(),
            "{{ ([1] * 10000) * 10000 == [[1] * 10000] * 10000 }}".into(),
            "{{ (1,) * 30000000 }}".into(),
            "{{ 'x' * 100000000 }}".into(),
            "{{ '%900000000d'|format(1) }}".into(),
            "{{ 'x'.ljust(900000000) }}".into(),
            "{{ '{:900000000}'.format(1) }}".into(),
            "{{ '{:{}}'.format('x', 900000000) }}".into(),
            "{{ ('{0}' * 100000).format('x' * 1000000) }}".into(),
            "{{ ('{:99999}' * 100000).format(1) }}".into(),
            "{{ ('x' * 8000000).join(range(90000)) }}".into(),
            "{{ range(90000)|join('x' * 8000000) }}".into(),
            "{{ ('x' * 3000).replace('', 'y' * 8000000) }}".into(),
            "{{ ('%s' * 100000)|format(*[('x' * 1000000)] * 100000) }}".into(),
            "{{ '{:.900000000f}'.format(1.5) }}".into(),
            "{{ '%.900000000f'|format(1.5) }}".into(),
            "{{ [1]|slice(90000000)|list }}".into(),
            "{{ [[1]]|tojson(indent='x' * 8000000) }}".into(),
            "{{ [1]|batch(900000000, 'x')|list }}".into(),
            "{{ 'a\nb'|indent(900000000) }}".into(),
            "{% set s = 'ab' * 3000000 %}{% for i in range(90000) %}{% set c = s[i] == s %}{% for j in range(9) %}{% set d = s == s %}{% endfor %}{% endfor %}".into(),
            "{% set l = namespace(x=[]) %}{% for i in range(90000) %}{% for j in range(900) %}{% set l.x = l.x + [i] %}{% endfor %}{% endfor %}".into(),
            "{% for a in range(90000) %}{% for b in range(90000) %}{% endfor %}{% endfor %}".into(),
            "{% set s = range(90000)|list %}{% for i in range(90000) %}{% set t = s|sort|reverse|list %}{% endfor %}".into(),
            "{% set s = range(90000)|list %}{% for i in range(90000) %}{% set t = s|unique|list %}{% endfor %}".into(),
            "{% set s = range(90000)|list %}{% for i in s if i in s %}{% endfor %}".into(),
            "{{ ('[' * 5000000)|from_json }}".into(),
            "{% for i in range(90000) %}{% set x = ('[1],' * 10000)|list %}{% endfor %}".into(),
        ] {
            let began = std::time::Instant::now();
            let failure = render(&source).err();
            let failure = failure.unwrap_or_else(|| panic!("rendered: {source}"));
            assert!(failure.kind != Kind::Bug, "{source}: {}", failure.message);
            let seconds = began.elapsed().as_secs();
            assert!(seconds < 60, "{source}: {seconds} s");
        }
    }

    #[test]
    fn values_that_nest_without_end_are_refused_where_they_grow() {
        let begin = "{% set a = namespace(x=[1], y={}) %}{% for i in range(90000) %}{% for j in range(40) %}";
        for step in [
            "{% set a.x = [a.x] %}", "{% set a.x = (a.x,) %}", "{% set a.x = {'x': a.x} %}",
            "{% set a.x = dict(x=a.x) %}", "{% set a.x = namespace(x=a.x) %}", "{% set a.x = cycler(a.x) %}",
            "{% set a.x = joiner(a.x) %}", "{% set a.x = a.x|batch(1)|list %}", "{% set a.x = a.x|slice(1)|list %}",
            "{% set a.x = a.x|zip|list %}", "{% set a.y = a.y|chain({}) %}{% set a.x = [a.x] %}",
            "{% set b = namespace() %}{% set b.x = a.x %}{% set a.x = b %}", "{% set a.x = [loop] %}",
            "{% set a.x = loop %}", "{% set a.x = a %}", "{% set a.y = dict(x=a) %}", "{% set a.x = [[a.x]]|map('list')|list %}",
        ] {
            let text = said_on_a_small_stack(format!("{begin}{step}{{% endfor %}}{{% endfor %}}"));
            assert!(text.contains("nested deeper") || text.contains("within another"), "{step}: {text}");
        }
        for step in ["{% set a.x = a.x[0:] %}", "{% set a.x = a.x * 1 %}", "{% set a.x = a.x|reverse %}",
            "{% set a.x = a.x|chain([]) %}", "{% set a.x = [] + a.x + [] %}", "{% set a.x = (a.x + [])[0:] %}",
            "{% set a.y = a.y|chain({}) %}"] {
            let small = "{% set a = namespace(x=[1], y={}) %}{% for i in range(9000) %}";
            let text = said_on_a_small_stack(format!("{small}{step}{{% endfor %}}{{{{ a.x }}}}"));
            assert_eq!(text, "[1]", "{step}");
        }
    }

    #[test]
    fn hooks_change_nothing_that_a_template_says() {
        for (source, text) in [
            ("{{ [1, 2] + [3] }}{{ [1, 2, 3][1:] }}{{ [1] * 3 }}", "[1, 2, 3][2, 3][1, 1, 1]"),
            ("{{ (1, 2) + (3,) }}{{ (1,) * 2 }}{{ 'ab' * 2 }}{{ 3 * 4 }}", "(1, 2, 3)(1, 1)abab12"),
            ("{{ 1 < 2 < 3 }}{{ 3 > 2 > 2 }}{{ 1 in [1] }}{{ 'a' not in 'abc' }}", "TrueFalseTrueFalse"),
            ("{{ 'a' ~ 1 ~ [1] }}{{ {'a': [1]} == {'a': [1]} }}", "a1[1]True"),
            ("{% for x in [1, 2, 3] if x != 2 %}{{ loop.index }}{{ x }}{% else %}e{% endfor %}", "1123"),
            ("{% for x in [] %}{% else %}e{% endfor %}", "e"),
            ("{% for x in [1, [2, [3]]] recursive %}{{ loop(x) if x is sequence else x }}{% endfor %}", "123"),
            ("{% macro f(a, b=2, c=[]) %}{{ a }}{{ b }}{{ c }}{{ caller() if caller }}{% endmacro %}\
              {{ f(1) }}{{ f(1, c=[3]) }}{{ f(*[1, 4]) }}{{ f(**{'a': 7}) }}{% call f(5) %}x{% endcall %}",
             "12[]12[3]14[]72[]52[]x"),
            ("{% for i in range(9) %}{% if i == 2 %}{% continue %}{% endif %}{% if i > 4 %}{% break %}{% endif %}{{ i }}{% endfor %}", "0134"),
            ("{% set ns = namespace(a=1) %}{% set ns.a = ns.a + 1 %}{{ ns.a }}{{ 'b' if ns.a == 2 else 'c' }}", "2b"),
            ("{{ messages|map(attribute='role')|list }}{{ messages|selectattr('role', 'equalto', 'user')|list|length }}", "['user']1"),
            ("{{ ['b', 'a']|sort|join('-') }}{{ [1, 1]|unique|list }}{{ {'b': 1, 'a': 2}|dictsort }}", "a-b[1][('a', 2), ('b', 1)]"),
            ("{{ '-'.join(['a', 'b', 1]) }}{{ '{} {:>3}{a}'.format('x', 1, a=2) }}", "a-b-1x   12"),
            ("{% for k, v in {'a': [1]}.items() %}{{ k }}{{ v }}{% endfor %}{{ 'a,b'.split(',') }}", "a[1]['a', 'b']"),
            ("{{ 5 is divisibleby 5 }}{{ 1 is in [1] }}{{ [1] is eq [1] }}{{ n is defined }}", "TrueTrueTrueTrue"),
            ("{% set x %}a{{ 1 }}{% endset %}{{ x }}{% filter upper %}b{% endfilter %}{{ x if x and x != 'b' }}", "a1Ba1"),
            ("{{ '%s-%s'|format(1, 2) }}{{ 'x'|default('y', true) }}{{ none|default('y', boolean=true) }}", "1-2xy"),
            ("{{ 'a'|pprint }}{{ [1, 'b']|pprint }}{{ [1, 2, 3]|slice(2)|list }}", "'a'[1, 'b'][[1, 2], [3]]"),
            ("{% generation %}a{% endgeneration %}{{ [[1, 2], [3]][0][1] * 2 }}", "a4"),
        ] {
            assert_eq!(said(source), text, "{source}");
        }
        let failure = render("a\n{{ 1 }}\n{{ raise_exception('no') }}").err().expect("raised");
        assert_eq!((failure.kind, failure.line), (Kind::Raised, 3));
        let failure = render("a\n\n{% if [1] == [1] %}{{ n.x.y.z() }}{% endif %}").err().expect("undefined");
        assert_eq!((failure.kind, failure.line), (Kind::Render, 3));
    }

    #[test]
    fn a_template_that_loses_memory_is_not_rendered_again_and_again() {
        let source = "{% set a = namespace(s='x' * 3000000) %}{% set b = dict(x=a)|items|list %}\
                      {% set a.l = b %}";
        let limits =
            Limits { fuel: 20_000_000, output_bytes_max: 64 << 20, milliseconds_max: 5_000 };
        let template = Template::compile(source).ok().expect("compiles");
        let mut refused = 0;
        for _ in 0..30 {
            refused += usize::from(template.render("{}", &limits, &NOW).is_err());
        }
        assert!(refused > 15, "{refused}");
        let plain = Template::compile("{{ 'x' * 3000000 }}").ok().expect("compiles");
        for _ in 0..10 {
            assert!(plain.render("{}", &limits, &NOW).is_ok());
        }
    }
}
