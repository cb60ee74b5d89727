//! `{% generation %}` marks what the assistant wrote, for training; here it is a block with a scope
//! of its own and no other effect.

/// The source with each `generation` and `endgeneration` tag replaced by one of `with`. Comments,
/// raw blocks and strings in other tags keep what they say.
pub fn replace_generation_tags(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    let mut raw = false;
    while let Some(begin) = rest.find('{') {
        let (before, at) = rest.split_at(begin);
        out.push_str(before);
        let end = match (at.as_bytes().get(1), raw) {
            (Some(b'#'), false) => at[2..].find("#}").map_or(at.len(), |end| end + 4),
            (Some(b'%'), _) => tag_end(at, "%}", raw),
            (Some(b'{'), false) => tag_end(at, "}}", false),
            _ => 1,
        };
        let (tag, after) = at.split_at(end);
        rest = after;
        let word = tag_word(tag);
        raw = match word {
            "raw" => true,
            "endraw" => false,
            _ => raw,
        };
        match word {
            "generation" if !raw => out.push_str(&tag.replacen("generation", "with", 1)),
            "endgeneration" if !raw => out.push_str(&tag.replacen("endgeneration", "endwith", 1)),
            _ => out.push_str(tag),
        }
    }
    out.push_str(rest);
    out
}

/// The one word of a block tag; empty for all else.
fn tag_word(tag: &str) -> &str {
    let Some(inner) = tag.strip_prefix("{%").and_then(|t| t.strip_suffix("%}")) else {
        return "";
    };
    let inner = inner.strip_prefix(['-', '+']).unwrap_or(inner);
    inner.strip_suffix(['-', '+']).unwrap_or(inner).trim()
}

/// Where the tag at the beginning of `text` ends, past its closer; strings are skipped.
fn tag_end(text: &str, closer: &str, raw: bool) -> usize {
    let bytes = text.as_bytes();
    let mut at = 2;
    while at < bytes.len() {
        if text.as_bytes()[at..].starts_with(closer.as_bytes()) {
            return at + closer.len();
        }
        if !raw && (bytes[at] == b'"' || bytes[at] == b'\'') {
            let quote = bytes[at];
            at += 1;
            while at < bytes.len() && bytes[at] != quote {
                at += if bytes[at] == b'\\' { 2 } else { 1 };
            }
        }
        at += 1;
    }
    // An odd end is the parser's to report.
    text.len().min(1)
}

#[cfg(test)]
mod tests {
    use super::replace_generation_tags;

    #[test]
    fn tags_become_with() {
        assert_eq!(
            replace_generation_tags("a{%- generation -%}b{% endgeneration%}c"),
            "a{%- with -%}b{% endwith%}c"
        );
    }

    #[test]
    fn comments_strings_and_raw_stay() {
        for source in [
            "{# {% generation %} #}",
            "{{ '{% generation %}' }}",
            "{% raw %}{% generation %}{% endraw %}",
            "{% set generation = 1 %}{",
            "{% unclosed",
        ] {
            assert_eq!(replace_generation_tags(source), source);
        }
    }
}
