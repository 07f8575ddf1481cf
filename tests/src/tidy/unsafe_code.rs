use super::{Finding, Tree};

/// Where `unsafe` may stand: a file, or a folder with a slash at its end. Each with its reason.
const MAY: &[(&str, &str)] = &[
    ("rpc-core/src/mem/mapping.rs", "maps memory, and gives pages back to the system"),
    ("rpc-core/src/mem/range.rs", "names arenas to devices"),
    ("rpc-core/src/mem/eager.rs", "views of slots that nothing is posted on"),
    ("rpc-core/src/mem/payload.rs", "views of blocks by their one writer or their readers"),
    ("rpc-core/src/codec/rope.rs", "`bytes::BufMut` is an unsafe trait"),
    ("rpc-core/src/verbs/types.rs", "`Region` is a promise of whoever makes it"),
    ("rpc-core/src/verbs/soft/dma.rs", "the software device's only copies"),
    ("rpc-core/src/verbs/ibv/", "calls into libibverbs"),
];

/// Lines of code that may stand between an unsafe block and its comment: the head of the statement.
const LINES_BETWEEN_MAX: usize = 2;

/// `unsafe` stands only in the files that exist for it, and each says why it is sound.
pub fn unsafe_stays_where_it_may(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, rust) in tree.rust() {
        let may = MAY.iter().any(|(place, _)| {
            file.path == *place || (place.ends_with('/') && file.path.starts_with(place))
        });
        let lines: Vec<&str> = file.text.lines().collect();
        for at in rust.words("unsafe") {
            let line = rust.line_of(at);
            if !may {
                let text = "`unsafe` outside the files for it; put the operation behind a safe type \
                            of `mem` or of the device, or add the file with its reason to MAY in the \
                            check";
                findings.push(Finding::new(&file.path, line, text));
                continue;
            }
            let rest = rust.code()[at + "unsafe".len()..].trim_start();
            let needs = if rest.starts_with('{') || rest.starts_with("impl") {
                "SAFETY:"
            } else if rest.starts_with("fn") || rest.starts_with("trait") {
                "# Safety"
            } else {
                continue;
            };
            if !says_above(&lines, line, needs) {
                let text =
                    format!("`unsafe` without `{needs}`: name the invariant, and who keeps it");
                findings.push(Finding::new(&file.path, line, text));
            }
        }
    }
    findings
}

/// Whether the comment above line `line` (from 1), or the line itself, holds `text`.
fn says_above(lines: &[&str], line: usize, text: &str) -> bool {
    let own = line - 1;
    if lines.get(own).is_some_and(|own| own.contains(text)) {
        return true;
    }
    let mut code_lines = 0;
    let mut in_comment = false;
    for above in lines[..own.min(lines.len())].iter().rev() {
        let above = above.trim_start();
        if above.starts_with("//") {
            in_comment = true;
            if above.contains(text) {
                return true;
            }
        } else if in_comment || code_lines == LINES_BETWEEN_MAX {
            return false;
        } else if !above.starts_with("#[") {
            code_lines += 1;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::super::lines_found;
    use super::*;

    #[test]
    fn unsafe_outside_its_files_is_found_even_with_a_reason() {
        let bad = [
            ("rpc-core/src/engine/a.rs", "\n// SAFETY: none\nunsafe { x() }"),
            ("rpc-core/src/mem/pool.rs", "unsafe fn f() {}"),
            ("examples/kv/src/main.rs", "unsafe impl Send for X {}"),
            ("rpc-core/src/verbs/soft/dma.rs.rs", "unsafe {}"),
        ];
        assert_eq!(lines_found(unsafe_stays_where_it_may, &bad), [3, 1, 1, 1]);
    }

    #[test]
    fn unsafe_without_its_comment_is_found() {
        let bad = [(
            "rpc-core/src/mem/range.rs",
            "let a = 1;\nunsafe { x() }\n// SAFETY: of another\nlet b;\nlet c;\nlet d;\nunsafe { y() }\n\
             /// Text.\nunsafe fn f() {}\n",
        )];
        assert_eq!(lines_found(unsafe_stays_where_it_may, &bad), [2, 7, 9]);
    }

    #[test]
    fn unsafe_with_its_comment_in_its_file_is_fine() {
        let good = [
            (
                "rpc-core/src/mem/range.rs",
                "// SAFETY: the slot is ours,\n// and stays so.\nlet x =\n    unsafe { x() };\n\
                 /// # Safety\n/// The caller owns it.\n#[inline]\npub unsafe fn f() {}\n\
                 // SAFETY: no thread affinity.\n#[allow(unsafe_code)]\nunsafe impl Send for X {}\n\
                 type F = unsafe extern \"C\" fn();",
            ),
            ("rpc-core/src/wire/mod.rs", "#![forbid(unsafe_code)] // unsafe"),
        ];
        assert_eq!(lines_found(unsafe_stays_where_it_may, &good), [0; 0]);
    }
}
