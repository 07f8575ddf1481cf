use super::{Finding, Tree};

/// Lines of a file: what one reader keeps in mind.
const FILE_LINES_MAX: usize = 600;
/// Lines of a file of tests, which is read one test at a time.
const TEST_FILE_LINES_MAX: usize = 1000;
/// Lines of a function: one screen.
const FUNCTION_LINES_MAX: usize = 70;

/// Functions that may be longer, by file and name, each with its reason.
const LONG_FUNCTIONS: &[(&str, &str, &str)] = &[];

/// Files hold one noun each and stay short.
pub fn files_are_short(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, _) in tree.rust() {
        let lines_max = if file.is_tests() { TEST_FILE_LINES_MAX } else { FILE_LINES_MAX };
        let lines = file.text.lines().count();
        if lines > lines_max {
            let text = format!(
                "{lines} lines, the limit is {lines_max}; a file holds one noun: move a part that has \
                 a name of its own, or the tests, to a file beside it"
            );
            findings.push(Finding::new(&file.path, lines, text));
        }
    }
    findings
}

/// Functions fit a screen.
pub fn functions_fit_a_screen(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, rust) in tree.rust() {
        for function in rust.functions() {
            let may = LONG_FUNCTIONS
                .iter()
                .any(|(path, name, _)| *path == file.path && *name == function.name);
            if function.lines > FUNCTION_LINES_MAX && !may {
                let text = format!(
                    "`{}` has {} lines, the limit is {FUNCTION_LINES_MAX}; give a step of it a name \
                     and make it a function",
                    function.name, function.lines
                );
                findings.push(Finding::new(&file.path, function.line, text));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::lines_found;
    use super::*;

    #[test]
    fn a_file_one_line_too_long_is_found_and_tests_may_be_longer() {
        let (fits, long) = ("x\n".repeat(600), "x\n".repeat(601));
        let (tests_fit, tests_long) = ("x\n".repeat(1000), "x\n".repeat(1001));
        let files = [
            ("a/src/a.rs", fits.as_str()),
            ("a/src/b.rs", &long),
            ("a/tests/c.rs", &tests_fit),
            ("a/tests/d.rs", &tests_long),
            ("README.md", &tests_long),
        ];
        assert_eq!(lines_found(files_are_short, &files), [601, 1001]);
    }

    #[test]
    fn a_function_one_line_too_long_is_found_where_it_begins() {
        let fits = format!("fn fits() {{\n{}}}\n", "x;\n".repeat(68));
        let long = format!("\nfn long() {{\n{}}}\n", "x;\n".repeat(69));
        let found = lines_found(functions_fit_a_screen, &[("a.rs", &fits), ("b.rs", &long)]);
        assert_eq!(found, [2]);
    }
}
