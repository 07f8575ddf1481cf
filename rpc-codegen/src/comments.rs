//! Comments of a `.proto` become Rust documentation, where a block of code is a test. Here each
//! block is marked as text, in the descriptors, so that messages get it too.

use prost_types::FileDescriptorSet;

/// Indentation that makes a block of code in Markdown.
const CODE_INDENT: usize = 4;

/// Cleans every comment of every file.
pub(crate) fn clean_all(set: &mut FileDescriptorSet) {
    let locations = set
        .file
        .iter_mut()
        .filter_map(|file| file.source_code_info.as_mut())
        .flat_map(|info| &mut info.location);
    for location in locations {
        let (leading, trailing) = (&mut location.leading_comments, &mut location.trailing_comments);
        for comment in [leading, trailing].into_iter().flatten() {
            *comment = clean(comment);
        }
    }
}

/// The comment, with code blocks that rustdoc would compile turned into plain text.
pub(crate) fn clean(comment: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    let mut state = State::Text { blank: true };
    for line in comment.lines() {
        // Block comments keep tabs and carriage returns; Markdown counts a tab as four spaces.
        let line = line.trim_end().replace('\t', "    ");
        state = state.next(&line, &mut lines);
    }
    match state {
        // A fence that is never closed runs to the end; close it so that nothing after it is lost.
        State::Fence(fence) => lines.push(format!(" {fence}")),
        State::Indented => lines.push(" ```".to_owned()),
        State::Text { .. } => {}
    }
    let mut text = lines.join("\n");
    text.push('\n');
    text
}

/// Where in a comment a line stands.
enum State {
    /// Not in code; `blank` if the line before was blank.
    Text { blank: bool },
    /// In a fenced block that this closes.
    Fence(String),
    /// In what was an indented block, and is now fenced.
    Indented,
}

impl State {
    fn next(self, line: &str, lines: &mut Vec<String>) -> Self {
        match self {
            Self::Fence(fence) => {
                lines.push(line.to_owned());
                let closes = line.trim_start_matches([' ', '>']);
                let is_fence =
                    closes.len() >= fence.len() && closes.chars().all(|c| fence.starts_with(c));
                if is_fence { Self::Text { blank: false } } else { Self::Fence(fence) }
            }
            Self::Indented if line.is_empty() || is_indented(line) => {
                lines.push(line.to_owned());
                Self::Indented
            }
            Self::Indented => {
                lines.push(" ```".to_owned());
                Self::text(line, lines)
            }
            Self::Text { blank: true } if is_indented(line) => {
                lines.push(" ```text".to_owned());
                lines.push(line.to_owned());
                Self::Indented
            }
            Self::Text { .. } => Self::text(line, lines),
        }
    }

    fn text(line: &str, lines: &mut Vec<String>) -> Self {
        let (markers, rest) = split_markers(line);
        let Some(fence) = fence_of(rest) else {
            // Five spaces after a list's marker begin a block of code inside the item.
            let code_in_item = !markers.trim().is_empty() && markers.ends_with("     ");
            lines.push(if code_in_item {
                format!("{} {}", markers.trim_end(), escape_tags(rest))
            } else {
                format!("{markers}{}", escape_tags(rest))
            });
            return Self::Text { blank: line.is_empty() };
        };
        let info = &rest[fence.len()..];
        lines.push(if is_rust(info) { format!("{markers}{fence}text") } else { line.to_owned() });
        Self::Fence(fence.to_owned())
    }
}

/// The first space is the one after `//`.
fn is_indented(line: &str) -> bool {
    let spaces = line.len() - line.trim_start_matches(' ').len();
    spaces >= CODE_INDENT && spaces < line.len()
}

/// Splits spaces, quotation marks and list markers from what they stand before.
fn split_markers(line: &str) -> (&str, &str) {
    let mut rest = line;
    loop {
        let before = rest;
        rest = rest.trim_start_matches([' ', '>']);
        let digits = rest.trim_start_matches(|c: char| c.is_ascii_digit());
        let numbered = digits.len() < rest.len();
        let after = if numbered {
            digits.strip_prefix(['.', ')'])
        } else {
            rest.strip_prefix(['-', '*', '+'])
        };
        if let Some(after) = after.filter(|after| after.starts_with(' ')) {
            rest = after;
        }
        if rest.len() == before.len() {
            return line.split_at(line.len() - rest.len());
        }
    }
}

/// `Option<T>` is a tag to Markdown, which does not show it and complains that nothing closes it. Links in
/// angle brackets and what stands in backquotes stay.
fn escape_tags(line: &str) -> String {
    let mut escaped = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(at) = rest.find(['`', '<']) {
        let (before, from) = rest.split_at(at);
        escaped.push_str(before);
        let marks = from.len() - from.trim_start_matches('`').len();
        let taken = if marks > 0 {
            // The span of code, or the backquotes alone if nothing ends it.
            from[marks..].find(&from[..marks]).map_or(marks, |length| length + 2 * marks)
        } else {
            let begins =
                from[1..].starts_with(|c: char| c.is_ascii_alphabetic() || "/!?".contains(c));
            if begins && !before.ends_with('\\') && !is_link(from) {
                escaped.push('\\');
            }
            1
        };
        escaped.push_str(&from[..taken]);
        rest = &from[taken..];
    }
    escaped.push_str(rest);
    escaped
}

/// True of `<https://example.com>` and the like.
fn is_link(text: &str) -> bool {
    let inside = text[1..].split_once('>').map_or("", |(inside, _)| inside);
    (inside.contains(':') || inside.contains('@')) && !inside.contains([' ', '<'])
}

/// Three or more of one of the two characters that fence a block.
fn fence_of(line: &str) -> Option<&str> {
    ['`', '~'].into_iter().find_map(|mark| {
        let length = line.len() - line.trim_start_matches(mark).len();
        // A line like ```` ```code``` ```` is a span of code, not a fence.
        let span = mark == '`' && line.get(length..)?.contains('`');
        (length >= 3 && !span).then(|| &line[..length])
    })
}

/// True if rustdoc takes a block with these words for Rust: no words, or one of its own.
fn is_rust(info: &str) -> bool {
    let mut words = info
        .split([' ', ',', '\t', '{', '}'])
        .filter(|word| !word.is_empty())
        .map(str::to_ascii_lowercase)
        .peekable();
    words.peek().is_none()
        || words.any(|word| {
            const OWN: [&str; 8] = [
                "rust",
                "should_panic",
                "no_run",
                "compile_fail",
                "test_harness",
                "custom",
                "standalone_crate",
                "rs",
            ];
            OWN.contains(&word.as_str())
                || word.starts_with("ignore")
                || word.starts_with("edition")
                || word.starts_with('.')
                || (word.starts_with('e') && word[1..].chars().all(|c| c.is_ascii_digit()))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fences_that_rustdoc_would_compile_become_text() {
        for info in
            ["", "rust", " rust", "rust,no_run", "ignore", "edition2021", "json,rust", "E0308"]
        {
            let cleaned = clean(&format!(" Like so:\n ```{info}\n let x = 1;\n ```\n After.\n"));
            assert_eq!(cleaned, " Like so:\n ```text\n let x = 1;\n ```\n After.\n", "{info:?}");
        }
    }

    #[test]
    fn fences_of_other_languages_stay() {
        let comment = " ```json\n {}\n ```\n ~~~proto\n message A {}\n ~~~\n";
        assert_eq!(clean(comment), comment);
    }

    #[test]
    fn a_fence_inside_a_longer_fence_is_content() {
        let comment = " ````json\n ```\n ````\n";
        assert_eq!(clean(comment), comment);
    }

    #[test]
    fn fences_in_lists_and_quotations_are_found() {
        assert_eq!(clean(" - ```\n   x\n   ```\n"), " - ```text\n   x\n   ```\n");
        assert_eq!(clean(" > ```rust\n > x\n > ```\n"), " > ```text\n > x\n > ```\n");
        assert_eq!(clean(" 1. ~~~\n    x\n    ~~~\n"), " 1. ~~~text\n    x\n    ~~~\n");
    }

    #[test]
    fn an_open_fence_is_closed() {
        assert_eq!(clean(" ```\n x\n"), " ```text\n x\n ```\n");
    }

    #[test]
    fn indented_code_is_fenced_as_text() {
        assert_eq!(
            clean(" Like so:\n\n     a = 1\n\n     b = 2\n After.\n"),
            " Like so:\n\n ```text\n     a = 1\n\n     b = 2\n ```\n After.\n"
        );
        assert_eq!(clean("\tcode\n"), " ```text\n    code\n ```\n");
        assert_eq!(clean(" -      code\n"), " - code\n");
    }

    #[test]
    fn a_wrapped_line_of_a_paragraph_is_no_code() {
        let comment = " Words that go on\n     and on.\n";
        assert_eq!(clean(comment), comment);
    }

    #[test]
    fn tags_are_shown_and_not_obeyed() {
        assert_eq!(clean(" An Option<T>, </b>.\n"), " An Option\\<T>, \\</b>.\n");
        assert_eq!(clean(" - a <b>\n"), " - a \\<b>\n");
        for comment in [
            " `Option<T>` and ``a`<b>``\n",
            " <https://example.com/a> <a@b.c>\n",
            " a < b <= 3 <\n",
            " \\<T>\n",
            " ```text\n a<b>\n ```\n",
        ] {
            assert_eq!(clean(comment), comment);
        }
        assert_eq!(clean(" ` <b>\n"), " ` \\<b>\n");
    }

    #[test]
    fn inline_code_and_odd_text_stay() {
        for comment in [" ```a``` and b\n", " `x` [link] */ é 😀\n", " ``\n", " 1.5 * 2\n", "\n"]
        {
            assert_eq!(clean(comment), comment);
        }
    }
}
