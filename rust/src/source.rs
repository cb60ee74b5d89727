//! Reads a template's tokens before it is parsed. The parser, the code generator and the destructor
//! of what they make call themselves once for each step of a chain (`a + b + c`, `a.b.c`, `elif`),
//! so their stack is bounded by refusing long ones here. And it rewrites what the engine does not
//! have, or would compute while it compiles.

use minijinja::machinery::{tokenize, Span, Token};
use minijinja::syntax::SyntaxConfig;

/// Chains of real templates have some forty steps. A step takes at most two kilobytes of stack in
/// the parser, the code generator and the destructor together.
const CHAIN_MAX: usize = 400;
/// Lists of constants in longer expressions are not computed ahead: each step would do it again.
const FOLDED_CHAIN_MAX: usize = 32;
/// A filter that returns its input, and so is no constant.
pub const SAME: &str = "moeflux_same";
const SAME_BEHIND: &str = "|moeflux_same)";

pub struct TooDeep {
    pub line: u64,
    pub message: String,
}

#[derive(Default)]
struct Tag<'a> {
    is_block: bool,
    tokens: Vec<(Token<'a>, Span)>,
}

struct Edit {
    at: usize,
    removed: usize,
    inserted: &'static str,
}

pub fn syntax() -> SyntaxConfig {
    let mut syntax = SyntaxConfig::builder();
    syntax.trim_blocks(true).lstrip_blocks(true);
    syntax.build().expect("the usual delimiters")
}

/// The source as the engine takes it. `{% generation %}`, which marks what the assistant wrote for
/// training, becomes a block with a scope of its own and no other effect.
pub fn prepare(source: &str) -> Result<String, TooDeep> {
    let mut edits: Vec<Edit> = Vec::new();
    let mut tag = Tag::default();
    let mut conditions: Vec<usize> = Vec::new();
    for token in tokenize(source, false, syntax()) {
        // The parser reports bytes that are not a token.
        let Ok((token, span)) = token else { break };
        match token {
            Token::VariableStart | Token::BlockStart => {
                tag.tokens.clear();
                tag.is_block = matches!(token, Token::BlockStart);
            }
            Token::VariableEnd | Token::BlockEnd => {
                tag.check_chains()?;
                tag.rename_generation(&mut edits);
                tag.hide_lists(&mut edits);
                tag.check_conditions(&mut conditions)?;
                tag.tokens.clear();
            }
            token => tag.tokens.push((token, span)),
        }
    }
    // A tag without an end is parsed up to there.
    tag.check_chains()?;
    edits.sort_by_key(|edit| edit.at);
    let mut out = String::with_capacity(source.len() + 32 * edits.len());
    let mut at = 0;
    for edit in &edits {
        out.push_str(&source[at..edit.at]);
        out.push_str(edit.inserted);
        at = edit.at + edit.removed;
    }
    out.push_str(&source[at..]);
    Ok(out)
}

/// Whether a token may put one more node above those before it.
fn deepens(token: &Token) -> bool {
    match token {
        Token::Ident(name) => {
            matches!(*name, "and" | "or" | "not" | "if" | "else" | "in" | "is")
        }
        Token::Plus | Token::Minus | Token::Mul | Token::Div | Token::FloorDiv | Token::Pow
        | Token::Mod | Token::Dot | Token::Tilde | Token::Pipe | Token::Eq | Token::Ne
        | Token::Lt | Token::Lte | Token::Gt | Token::Gte => true,
        _ => false,
    }
}

fn opens(token: &Token) -> bool {
    matches!(token, Token::BracketOpen | Token::ParenOpen | Token::BraceOpen)
}

fn closes(token: &Token) -> bool {
    matches!(token, Token::BracketClose | Token::ParenClose | Token::BraceClose)
}

impl Tag<'_> {
    /// The longest way down from a tag to its deepest node is at most the sum over open brackets.
    fn check_chains(&self) -> Result<(), TooDeep> {
        let mut steps = vec![0usize];
        let mut sum = 0;
        for (token, span) in &self.tokens {
            if opens(token) {
                // The part before the bracket may be called or indexed.
                *steps.last_mut().expect("one") += 1;
                steps.push(0);
                sum += 1;
            } else if closes(token) {
                if steps.len() > 1 {
                    sum -= steps.pop().expect("two");
                }
            } else if matches!(token, Token::Comma) {
                // Siblings. A call's arguments are no part of the chain that the call is in.
                sum -= std::mem::take(steps.last_mut().expect("one"));
            } else if deepens(token) {
                *steps.last_mut().expect("one") += 1;
                sum += 1;
            }
            if sum > CHAIN_MAX {
                return Err(TooDeep {
                    line: span.start_line.into(),
                    message: format!("an expression has more than {CHAIN_MAX} steps"),
                });
            }
        }
        Ok(())
    }

    /// Each `elif` is an `if` within the `else` of the one before.
    fn check_conditions(&self, conditions: &mut Vec<usize>) -> Result<(), TooDeep> {
        let Some((Token::Ident(word), span)) = self.tokens.first() else { return Ok(()) };
        match *word {
            "if" => conditions.push(1),
            "elif" => {
                if let Some(last) = conditions.last_mut() {
                    *last += 1;
                }
            }
            "endif" => {
                conditions.pop();
            }
            _ => return Ok(()),
        }
        if conditions.iter().sum::<usize>() > CHAIN_MAX {
            return Err(TooDeep {
                line: span.start_line.into(),
                message: format!("more than {CHAIN_MAX} conditions within each other's else"),
            });
        }
        Ok(())
    }

    fn rename_generation(&self, edits: &mut Vec<Edit>) {
        let [(Token::Ident(word), span)] = &self.tokens[..] else { return };
        let inserted = match *word {
            "generation" => "with",
            "endgeneration" => "endwith",
            _ => return,
        };
        edits.push(Edit { at: span.start_offset as usize, removed: word.len(), inserted });
    }

    /// Constants are computed while a template is compiled, where neither fuel nor a clock counts:
    /// `[1] * 100000000 == [1] * 100000000`.
    fn hide_lists(&self, edits: &mut Vec<Edit>) {
        let steps = self.tokens.iter().filter(|(token, _)| deepens(token)).count();
        let multiplies = self.tokens.iter().any(|(token, _)| matches!(token, Token::Mul));
        if !multiplies && steps <= FOLDED_CHAIN_MAX {
            return;
        }
        let mut open = Vec::new();
        let mut is_operand = false;
        for (index, (token, span)) in self.tokens.iter().enumerate() {
            if opens(token) {
                let is_list = matches!(token, Token::BracketOpen) && !is_operand;
                open.push(is_list.then_some(span.start_offset as usize));
            } else if closes(token) {
                if let Some(Some(begin)) = open.pop() {
                    edits.push(Edit { at: begin, removed: 0, inserted: "(" });
                    let end = span.end_offset as usize;
                    edits.push(Edit { at: end, removed: 0, inserted: SAME_BEHIND });
                }
            }
            is_operand = match token {
                Token::Ident(_) => !deepens(token) && !(self.is_block && index == 0),
                Token::Str(_) | Token::String(_) => true,
                token => closes(token),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::prepare;

    fn prepared(source: &str) -> String {
        prepare(source).unwrap_or_else(|error| error.message)
    }

    #[test]
    fn generation_tags_become_with() {
        assert_eq!(
            prepared("a{%- generation -%}b{% endgeneration%}c"),
            "a{%- with -%}b{% endwith%}c"
        );
        for source in [
            "{# {% generation %} #}",
            "{{ '{% generation %}' }}",
            "{% raw %}{% generation %}{% endraw %}",
            "{% set generation = 1 %}{",
            "{% unclosed",
        ] {
            assert_eq!(prepared(source), source);
        }
    }

    #[test]
    fn lists_beside_products_are_no_constants() {
        assert_eq!(prepared("{{ [1] * 9 }}"), "{{ ([1]|moeflux_same) * 9 }}");
        assert_eq!(prepared("{{ 9 * x[0] }}"), "{{ 9 * x[0] }}");
        assert_eq!(prepared("{% elif [1] * 9 %}"), "{% elif ([1]|moeflux_same) * 9 %}");
        assert_eq!(prepared("{{ f([[1], 2][0]) * 2 }}"),
                   "{{ f(([([1]|moeflux_same), 2]|moeflux_same)[0]) * 2 }}");
        assert_eq!(prepared("{{ [1] + [2] }}"), "{{ [1] + [2] }}");
    }

    #[test]
    fn long_chains_are_told_and_wide_lists_are_not() {
        for chain in ["1+", "not ", "x.", "x|", "-", "(", "[", "{1:", "x if ", "x(", "x[", "a~"] {
            assert!(prepared(&format!("{{{{ {} }}}}", chain.repeat(500))).contains("steps"));
            assert!(prepared(&format!("{{% set x = {}", chain.repeat(500))).contains("steps"));
        }
        let conditions = format!("{{% if a %}}{}", "{% elif b %}".repeat(500));
        assert!(prepared(&conditions).contains("conditions"));
        for wide in ["1,", "{'a': 1},", "x.a + 1,", "f(a, b|c),"] {
            let source = format!("{{{{ f([{}]) }}}}", wide.repeat(5000));
            assert!(prepared(&source).len() >= source.len());
        }
    }
}
