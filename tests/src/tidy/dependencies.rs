use super::{Finding, Tree};

/// Crates that need no reason where they are declared: what they do is known to every reader.
const WELL_KNOWN: &[&str] = &[
    "clap",
    "proc-macro2",
    "proptest",
    "quote",
    "serde",
    "serde_json",
    "sha2",
    "slab",
    "syn",
    "thiserror",
    "tracing",
];

/// Every dependency is declared once, in the workspace, with its reason.
pub fn dependencies_have_reasons(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let manifests = tree
        .files()
        .iter()
        .filter(|file| file.path == "Cargo.toml" || file.path.ends_with("/Cargo.toml"));
    for file in manifests {
        let mut section = String::new();
        let mut above = "";
        for (line, text) in file.text.lines().enumerate() {
            let text = text.trim();
            if let Some(name) = text.strip_prefix('[') {
                section = name.trim_end_matches(']').trim_matches('[').to_owned();
            }
            let declared = text.split_once('=').filter(|_| !text.starts_with('#'));
            if let Some((key, value)) = declared.filter(|_| section.ends_with("dependencies")) {
                let said = text.contains('#') || above.starts_with('#');
                if let Some(message) = judge(&section, key.trim(), value, said) {
                    findings.push(Finding::new(&file.path, line + 1, message));
                }
            }
            above = text;
        }
    }
    findings
}

fn judge(section: &str, key: &str, value: &str, said: bool) -> Option<String> {
    let name = key.split('.').next().unwrap_or(key).trim_matches('"');
    if section == "workspace.dependencies" {
        let of_ours = value.contains("path =");
        let fine = said || of_ours || WELL_KNOWN.contains(&name);
        return (!fine).then(|| {
            format!("`{name}` has no reason; say in a comment on its line what it is here for")
        });
    }
    let inherited = key.ends_with(".workspace") || value.contains("workspace = true");
    (!inherited && !said).then(|| {
        format!(
            "`{name}` is not taken from the workspace; declare it in the root Cargo.toml with its \
             reason and write `{name}.workspace = true`, or say in a comment why not"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::super::lines_found;
    use super::*;

    #[test]
    fn a_dependency_without_a_reason_is_found() {
        let root = "[workspace.dependencies]\nours = { path = \"ours\" }\nslab = \"0.4\"\n\
                    odd = \"1\"\neven = \"1\" # the loop\n# a table\nround = \"1\"\n\n[profile.dev]\nx = 1";
        assert_eq!(lines_found(dependencies_have_reasons, &[("Cargo.toml", root)]), [4]);
    }

    #[test]
    fn a_member_that_declares_a_version_of_its_own_is_found() {
        let member = "[package]\nname = \"a\"\n[dependencies]\na.workspace = true\n\
                      b = { workspace = true, features = [\"x\"] }\nc = \"1\"\n\
                      [target.'cfg(loom)'.dev-dependencies]\nd = \"2\"\ne = \"2\" # only here";
        assert_eq!(lines_found(dependencies_have_reasons, &[("a/Cargo.toml", member)]), [6, 8]);
    }
}
