use std::ops::Range;

/// Rust text with its comments and literals told apart from its code.
#[derive(Clone, Debug)]
pub struct Rust {
    /// The text with every byte of comments, and of what stands inside quotes, made a space. Lengths,
    /// positions and lines are those of the text.
    code: String,
    line_starts: Vec<usize>,
}

/// A function with a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// The line of `fn`, from 1.
    pub line: usize,
    /// Lines from `fn` to the closing brace.
    pub lines: usize,
}

impl Rust {
    /// Reads Rust text.
    pub fn new(text: &str) -> Self {
        let line_starts = std::iter::once(0)
            .chain(
                text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at + 1),
            )
            .collect();
        Self { code: blank(text), line_starts }
    }

    /// The code, with comments and literals blank.
    pub fn code(&self) -> &str {
        &self.code
    }

    /// The line of a position, from 1.
    pub fn line_of(&self, at: usize) -> usize {
        self.line_starts.partition_point(|start| *start <= at)
    }

    /// Where `word` stands in the code with no letter, digit or underscore beside it.
    pub fn words<'a>(&'a self, word: &'a str) -> impl Iterator<Item = usize> + 'a {
        self.code.match_indices(word).map(|(at, _)| at).filter(move |&at| {
            let before = self.code[..at].chars().next_back();
            let after = self.code[at + word.len()..].chars().next();
            !before.is_some_and(is_word) && !after.is_some_and(is_word)
        })
    }

    /// The position after the brace that closes the one at `open`; the end of the text if none does.
    pub fn closed(&self, open: usize) -> usize {
        let mut depth = 0usize;
        for (at, byte) in self.code.bytes().enumerate().skip(open) {
            match byte {
                b'{' => depth += 1,
                b'}' if depth <= 1 => return at + 1,
                b'}' => depth -= 1,
                _ => {}
            }
        }
        self.code.len()
    }

    /// Every function with a body.
    pub fn functions(&self) -> Vec<Function> {
        let mut functions = Vec::new();
        for at in self.words("fn") {
            let name: String =
                self.code[at + 2..].trim_start().chars().take_while(|c| is_word(*c)).collect();
            if name.is_empty() {
                continue; // A function pointer's type, or a macro's variable.
            }
            if let Some(open) = self.body(at) {
                let line = self.line_of(at);
                let last = self.line_of(self.closed(open) - 1);
                functions.push(Function { name, line, lines: last - line + 1 });
            }
        }
        functions
    }

    /// The brace that opens the body of the item at `at`; `None` if a semicolon ends it first.
    fn body(&self, at: usize) -> Option<usize> {
        let mut nested = 0i32;
        for (at, byte) in self.code.bytes().enumerate().skip(at) {
            match byte {
                b'(' | b'[' => nested += 1,
                b')' | b']' => nested -= 1,
                b'{' if nested == 0 => return Some(at),
                b';' if nested == 0 => return None,
                _ => {}
            }
        }
        None
    }

    /// The bodies of inline modules, `mod name { … }`, outer before inner.
    pub fn inline_modules(&self) -> Vec<Range<usize>> {
        let opens = self.words("mod").filter_map(|at| self.body(at));
        opens.map(|open| open..self.closed(open)).collect()
    }
}

/// Whether a character can be part of a word of Rust.
pub(super) fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// `text` with comments, and what stands inside quotes, made spaces.
fn blank(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut code = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = match bytes[at] {
            b'/' if bytes.get(at + 1) == Some(&b'/') => line_end(bytes, at),
            b'/' if bytes.get(at + 1) == Some(&b'*') => block_comment_end(bytes, at),
            b'"' => string_end(bytes, at),
            b'r' => raw_string_end(bytes, at).unwrap_or(at),
            b'\'' => char_end(text, at).unwrap_or(at),
            _ => at,
        };
        if end == at {
            at += 1;
            continue;
        }
        let keeps_ends = bytes[at] != b'/';
        for (here, byte) in code.iter_mut().enumerate().take(end).skip(at) {
            let quote = keeps_ends && (here == at || here == end - 1) && byte.is_ascii();
            if !quote && *byte != b'\n' {
                *byte = b' ';
            }
        }
        at = end;
    }
    // Whole comments and literals were made ASCII, so nothing was cut within a character.
    String::from_utf8(code).unwrap_or_default()
}

fn line_end(bytes: &[u8], at: usize) -> usize {
    bytes[at..].iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |len| at + len)
}

fn block_comment_end(bytes: &[u8], mut at: usize) -> usize {
    let mut depth = 0;
    while at < bytes.len() {
        match &bytes[at..bytes.len().min(at + 2)] {
            b"/*" => {
                depth += 1;
                at += 2;
            }
            b"*/" => {
                depth -= 1;
                at += 2;
                if depth == 0 {
                    return at;
                }
            }
            _ => at += 1,
        }
    }
    at
}

fn string_end(bytes: &[u8], at: usize) -> usize {
    let mut at = at + 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// The end of the raw string that `r` begins, if one does: not `r#name`, not the end of a word.
fn raw_string_end(bytes: &[u8], at: usize) -> Option<usize> {
    let prefixed = at > 0 && matches!(bytes[at - 1], b'b' | b'c');
    let before = at.checked_sub(1 + usize::from(prefixed)).map(|before| bytes[before] as char);
    if before.is_some_and(is_word) {
        return None;
    }
    let hashes = bytes[at + 1..].iter().take_while(|byte| **byte == b'#').count();
    let open = at + 1 + hashes;
    if bytes.get(open) != Some(&b'"') {
        return None;
    }
    let close: Vec<u8> = std::iter::once(b'"').chain(std::iter::repeat_n(b'#', hashes)).collect();
    let len = bytes[open + 1..].windows(close.len()).position(|window| window == close);
    Some(len.map_or(bytes.len(), |len| open + 1 + len + close.len()))
}

/// The end of the character literal at `at`; `None` for a lifetime or a label.
fn char_end(text: &str, at: usize) -> Option<usize> {
    let mut chars = text[at + 1..].char_indices();
    let (_, first) = chars.next()?;
    if first == '\\' {
        chars.next()?;
        return chars.find(|(_, c)| *c == '\'').map(|(len, _)| at + 1 + len + 1);
    }
    let (len, second) = chars.next()?;
    (second == '\'').then_some(at + 1 + len + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_blank_and_code_is_kept() {
        let text = concat!(
            "let a = \"fn x() {\"; // fn y() {\n",
            "/* mod z { /* nested { */ */ let c = '{'; let d = '\\''; let e: &'a str = r#\"} \" }\"#;\n",
            "let f = br\"{\"; let r#type = b'}'; let g = \"\\\"{\";\n",
        );
        let rust = Rust::new(text);
        assert_eq!(rust.code().len(), text.len());
        assert!(!rust.code().contains(['{', '}']), "{}", rust.code());
        for kept in ["let a = ", "let c = ", "&'a str", "let f = br", "r#type", "let g = "] {
            assert!(rust.code().contains(kept), "{kept} in {}", rust.code());
        }
        assert_eq!(rust.code().matches('\n').count(), 3);
    }

    #[test]
    fn text_beyond_ascii_keeps_its_positions() {
        let rust = Rust::new("// µs → é\nlet µ = 'é'; // ü\nfn f() {}\n");
        assert_eq!(rust.functions(), [Function { name: "f".into(), line: 3, lines: 1 }]);
    }

    #[test]
    fn functions_are_measured_from_fn_to_the_closing_brace() {
        let rust = Rust::new(concat!(
            "impl X {\n    fn a(x: [u8; 4]) -> u8\n    where\n        u8: Copy,\n    {\n",
            "        if true { 1 } else { 2 }\n    }\n}\n",
            "trait T { fn declared(&self) -> u8; fn b() {} }\n",
            "type F = fn(u8) -> u8;\n",
        ));
        let found: Vec<_> =
            rust.functions().into_iter().map(|f| (f.name, f.line, f.lines)).collect();
        assert_eq!(found, [("a".into(), 2, 6), ("b".into(), 9, 1)]);
    }

    #[test]
    fn words_stand_alone() {
        let rust = Rust::new("unsafe_code; unsafe { } // unsafe\nr#unsafe; not_unsafe; x.unsafe");
        assert_eq!(rust.words("unsafe").collect::<Vec<_>>().len(), 3);
    }

    #[test]
    fn inline_modules_are_found_with_what_they_hold() {
        let rust = Rust::new("mod a;\nmod b {\n mod c { x }\n}\ny");
        let modules = rust.inline_modules();
        assert_eq!(modules.len(), 2);
        assert!(modules[0].contains(&modules[1].start));
        assert!(!modules[0].contains(&rust.code().find('y').unwrap()));
    }

    #[test]
    fn what_never_closes_ends_with_the_text() {
        for text in ["/* x", "\"x", "r#\"x", "fn f() {", "'", "'\\", "\"\\"] {
            let rust = Rust::new(text);
            assert_eq!(rust.code().len(), text.len(), "{text}");
            let _ = rust.functions();
        }
    }
}
