use super::{File, Finding, Tree};

/// Every link of a Markdown file to a place in this repository leads somewhere.
pub fn markdown_links_resolve(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.files().iter().filter(|file| file.path.ends_with(".md")) {
        for (line, target) in links(&file.text) {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let (path, heading) = target.split_once('#').unwrap_or((&target, ""));
            let Some(path) = resolve(&file.path, path) else {
                let text = format!("the link `{target}` leads out of the repository");
                findings.push(Finding::new(&file.path, line, text));
                continue;
            };
            if !tree.has(&path) {
                let text = format!("the link `{target}` leads to `{path}`, which is not there");
                findings.push(Finding::new(&file.path, line, text));
            } else if !heading.is_empty() && !has_heading(tree, &path, heading) {
                let text = format!("`{path}` has no heading `#{heading}`");
                findings.push(Finding::new(&file.path, line, text));
            }
        }
    }
    findings
}

/// The targets of `[text](target)` and `[text]: target`, with their lines, outside of code.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut links = Vec::new();
    for (line, text) in prose(text) {
        // What stands between backticks is code: every second part.
        for part in text.split('`').step_by(2) {
            for (at, _) in part.match_indices("](") {
                let target = part[at + 2..].split([')', ' ']).next().unwrap_or("");
                links.push((line, target.to_owned()));
            }
        }
        let definition = text.strip_prefix('[').and_then(|rest| rest.split_once("]: "));
        if let Some((_, target)) = definition {
            links.push((line, target.trim().to_owned()));
        }
    }
    links
}

/// The lines outside of fenced code, numbered from 1.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(line, text)| {
        let fence = text.trim_start().starts_with("```");
        fenced ^= fence;
        (!fenced && !fence).then_some((line + 1, text))
    })
}

/// The path that a link of `from` leads to; `None` if it leaves the repository.
fn resolve(from: &str, link: &str) -> Option<String> {
    if link.is_empty() {
        return Some(from.to_owned());
    }
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in link.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

fn has_heading(tree: &Tree, path: &str, anchor: &str) -> bool {
    let file: Option<&File> = tree.files().iter().find(|file| file.path == path);
    file.is_some_and(|file| {
        let headings = prose(&file.text).filter_map(|(_, line)| line.strip_prefix('#'));
        headings.map(|line| slug(line.trim_start_matches('#'))).any(|slug| slug == anchor)
    })
}

/// A heading as GitHub makes an anchor of it.
fn slug(heading: &str) -> String {
    let kept = heading.trim().chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::super::lines_found;
    use super::*;

    #[test]
    fn links_that_lead_nowhere_are_found() {
        let page = "[a](docs/a.md) [b](docs/b.md)\n[c](docs/a.md#two-words) [d](docs/a.md#three)\n\
                    [e](#top)\n[f](../x)\n[g](https://docs.rs) [h](docs)\n\n[i]: docs/i.md\n";
        let files = [("README.md", page), ("docs/a.md", "# Two `Words`\n[up](../README.md)\n")];
        assert_eq!(lines_found(markdown_links_resolve, &files), [1, 2, 3, 4, 7]);
    }

    #[test]
    fn what_looks_like_a_link_in_code_is_none() {
        let page = "```text\n[a](nowhere)\n# no heading\n```\n`[b](nowhere)` text `c`\n";
        assert_eq!(lines_found(markdown_links_resolve, &[("a.md", page)]), [0; 0]);
        let anchored = [("a.md", page), ("b.md", "[x](a.md#no-heading)")];
        assert_eq!(lines_found(markdown_links_resolve, &anchored), [1]);
    }
}
