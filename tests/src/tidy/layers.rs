use std::collections::BTreeMap;

use super::rust::is_word;
use super::{Finding, Rust, Tree};

const ROOT: &str = "rpc-core/src/";

/// The layers of `rpc-core`, each a folder or a file of that name, and the layers that its code may
/// name beside itself. What stands in no layer is vocabulary: any layer may use it, and it uses none.
const LAYERS: &[(&str, &[&str])] = &[
    ("sync", &[]),
    ("wire", &[]),
    ("protocol", &["wire"]),
    ("verbs", &["sync"]),
    ("mem", &["verbs", "sync"]),
    ("codec", &["mem", "sync"]),
    ("cm", &["wire", "verbs", "sync"]),
    ("engine", &["wire", "protocol", "verbs", "mem", "codec", "cm", "sync"]),
    // The one place that opens devices and hands them to engines.
    ("runtime", &["engine", "cm", "codec", "mem", "verbs", "sync"]),
    // Side by side: a server in this process gives a channel to itself.
    ("client", &["runtime", "server", "engine", "cm", "codec", "mem", "sync"]),
    ("server", &["runtime", "client", "engine", "cm", "codec", "mem", "sync"]),
    // Simulated nodes, and what is between them.
    ("sim", &["runtime", "engine", "cm", "verbs"]),
    // It asks devices what they can do, and connects to nobody.
    ("doctor", &["runtime", "cm", "verbs"]),
];

/// Files that gather names of every layer for users and for generated code.
const GATHERS: [&str; 2] = ["lib.rs", "private.rs"];

/// Layers of `rpc-core` name only the layers below them.
pub fn layers_import_only_what_they_may(tree: &Tree) -> Vec<Finding> {
    let exported = exported_by_layers(tree);
    let mut findings = Vec::new();
    for (file, rust) in tree.rust() {
        let Some(path) = file.path.strip_prefix(ROOT) else { continue };
        if GATHERS.contains(&path) {
            continue;
        }
        let own = match path.split_once('/') {
            Some((folder, _)) => folder,
            None => path.trim_end_matches(".rs"),
        };
        let layer = LAYERS.iter().find(|(name, _)| *name == own);
        if layer.is_none() && path.contains('/') {
            let text = format!(
                "the folder `{own}` is no layer; say in LAYERS of {} what it may use, and draw it in \
                 ARCHITECTURE.md",
                file!()
            );
            findings.push(Finding::new(&file.path, 1, text));
            continue;
        }
        let allowed = layer.map_or(&[] as &[&str], |(_, allowed)| allowed);
        for (at, name) in root_names(path, rust) {
            let target = exported.get(&name).map_or(name.as_str(), String::as_str);
            let is_layer = LAYERS.iter().any(|(layer, _)| *layer == target);
            if is_layer && target != own && !allowed.contains(&target) {
                let may = match (layer, allowed) {
                    (None, _) => "vocabulary uses no layer".to_owned(),
                    (_, []) => format!("`{own}` uses no other layer"),
                    _ => format!("`{own}` uses only: {}", allowed.join(", ")),
                };
                let text = format!(
                    "`{own}` names `crate::{name}` of the layer `{target}`, but {may}. Move the code to \
                     a layer that may, or pass the value in as a type of `{own}` or of the vocabulary"
                );
                findings.push(Finding::new(&file.path, rust.line_of(at), text));
            }
        }
    }
    findings
}

/// Outside `mem` and the devices, nobody builds an `Sge`: it would name memory that no slot owns.
pub fn sges_are_built_by_mem_alone(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, rust) in tree.rust() {
        let may = ["mem/", "verbs/"].iter().any(|folder| {
            file.path.strip_prefix(ROOT).is_some_and(|path| path.starts_with(folder))
        });
        if may {
            continue;
        }
        for at in rust.words("Sge") {
            let rest = rust.code()[at + 3..].trim_start();
            let built = rest.strip_prefix("::").map(str::trim_start);
            if built.is_some_and(|rest| rest.starts_with("new")) {
                findings.push(Finding::new(
                    &file.path,
                    rust.line_of(at),
                    "`Sge::new` is for `mem`, which builds it from a slot it owns. Ask the buffer for \
                     its Sge",
                ));
            }
        }
    }
    findings
}

/// Names that lib.rs takes out of a layer: the name and its layer.
fn exported_by_layers(tree: &Tree) -> BTreeMap<String, String> {
    let mut exported = BTreeMap::new();
    for (_, rust) in tree.rust().filter(|(file, _)| file.path == format!("{ROOT}lib.rs")) {
        for at in rust.words("use") {
            let code = &rust.code()[at + 3..];
            let Some(statement) = code.split(';').next() else { continue };
            let path = statement.trim().trim_start_matches("crate::").trim_start_matches("self::");
            let Some((layer, names)) = path.split_once("::") else { continue };
            if LAYERS.iter().any(|(name, _)| *name == layer) {
                for leaf in leaves(names) {
                    exported.insert(leaf, layer.to_owned());
                }
            }
        }
    }
    exported
}

/// The names that a use tree brings in: `a::{B, c::D as E}` brings B and E.
fn leaves(tree: &str) -> Vec<String> {
    let parts = tree.split(['{', '}', ',']);
    let last = |part: &str| {
        let name: String = part.rsplit(|c: char| !is_word(c)).next().unwrap_or("").to_owned();
        (!name.is_empty()).then_some(name)
    };
    parts.filter_map(|part| last(part.trim())).collect()
}

/// Every name of the crate's root that the code names, through `crate::` or enough `super::`.
fn root_names(path: &str, rust: &Rust) -> Vec<(usize, String)> {
    let code = rust.code();
    let mut names = Vec::new();
    for at in rust.words("crate") {
        let rest = &code[at + 5..];
        // `$crate::` and a path that goes on from another crate are none of ours.
        if let Some(rest) = rest.trim_start().strip_prefix("::") {
            names.extend(first_segments(rest).into_iter().map(|name| (at, name)));
        }
    }
    let modules = rust.inline_modules();
    let is_folder_root = path.ends_with("/mod.rs");
    let of_file = path.split('/').count() - usize::from(is_folder_root);
    for at in rust.words("super") {
        if code[..at].trim_end().ends_with("::") {
            continue; // Not the first of its chain.
        }
        let mut rest = &code[at..];
        let mut ups = 0;
        while let Some(after) = rest.strip_prefix("super") {
            let Some(after) = after.trim_start().strip_prefix("::") else { break };
            ups += 1;
            rest = after.trim_start();
        }
        let depth = of_file + modules.iter().filter(|body| body.contains(&at)).count();
        if ups == depth {
            names.extend(first_segments(rest).into_iter().map(|name| (at, name)));
        }
    }
    names
}

/// The first segment of a path, or those of each path in a group: `{a::B, c}` begins with a and c.
fn first_segments(rest: &str) -> Vec<String> {
    let rest = rest.trim_start();
    let word = |text: &str| text.trim_start().chars().take_while(|c| is_word(*c)).collect();
    let Some(group) = rest.strip_prefix('{') else { return vec![word(rest)] };
    let mut depth = 0;
    let mut segments = vec![word(group)];
    for (at, byte) in group.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' if depth == 0 => break,
            b'}' => depth -= 1,
            b',' if depth == 0 => segments.push(word(&group[at + 1..])),
            _ => {}
        }
    }
    segments.retain(|segment| !segment.is_empty());
    segments
}

#[cfg(test)]
mod tests {
    use super::super::lines_found;
    use super::*;

    fn layers(files: &[(&str, &str)]) -> Vec<usize> {
        lines_found(layers_import_only_what_they_may, files)
    }

    #[test]
    fn a_layer_may_name_itself_what_is_below_it_and_the_vocabulary() {
        let good = [
            ("rpc-core/src/protocol/calls.rs", "use crate::wire::Frame;\nuse crate::{Time, Code};"),
            (
                "rpc-core/src/protocol/leases.rs",
                "use super::calls::A;\nuse crate::protocol::calls;",
            ),
            ("rpc-core/src/mem/pool.rs", "use crate::verbs::{Device, soft::X};"),
            ("rpc-core/src/engine/turn.rs", "use crate::{wire, protocol::{a, b}, verbs, mem};"),
            ("rpc-core/src/engine.rs", "use crate::cm;"),
            ("rpc-core/src/runtime/host.rs", "use crate::verbs::soft::SoftDevice;"),
            ("rpc-core/src/server/a.rs", "use crate::{client, runtime, engine};"),
            ("rpc-core/src/lib.rs", "pub use client::Channel; use crate::verbs;"),
            ("rpc-core/src/time.rs", "use crate::Code; // crate::verbs"),
            ("examples/kv/src/main.rs", "use crate::verbs;"),
        ];
        assert_eq!(layers(&good), [0; 0]);
    }

    #[test]
    fn each_forbidden_direction_is_found_on_its_line() {
        let bad = [
            ("rpc-core/src/protocol/a.rs", "\nuse crate::verbs::Qp;"),
            ("rpc-core/src/verbs/soft/a.rs", "\n\nuse crate::wire::X;"),
            ("rpc-core/src/verbs/b.rs", "\n\n\nfn f() { crate::protocol::g() }"),
            ("rpc-core/src/mem/a.rs", "\n\n\n\nuse crate::{Time, engine::{X, Y}};"),
            ("rpc-core/src/client/a.rs", "\n\n\n\n\nuse crate::verbs;"),
            ("rpc-core/src/wire/a.rs", "\n\n\n\n\n\nuse crate::protocol;"),
            ("rpc-core/src/engine/a.rs", "\n\n\n\n\n\n\nuse crate::server::X;"),
            ("rpc-core/src/cm.rs", "\n\n\n\n\n\n\n\nuse crate::mem::X;"),
            ("rpc-core/src/time.rs", "\n\n\n\n\n\n\n\n\nuse crate::mem::X;"),
            ("rpc-core/src/server/a.rs", "\n\n\n\n\n\n\n\n\n\nuse crate::wire::X;"),
            ("rpc-core/src/engine/b.rs", "\n\n\n\n\n\n\n\n\n\n\nuse crate::runtime::X;"),
        ];
        assert_eq!(layers(&bad), [2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
    }

    #[test]
    fn a_path_up_to_the_root_counts_like_crate() {
        let bad = [
            ("rpc-core/src/wire/mod.rs", "use super::verbs::X;"),
            ("rpc-core/src/wire/a.rs", "\nuse super::super::{verbs::X, Time};"),
            ("rpc-core/src/wire/b.rs", "\n\nmod tests { use super::super::super::verbs; }"),
        ];
        assert_eq!(layers(&bad), [1, 2, 3]);
        let good = [
            ("rpc-core/src/verbs/soft/a.rs", "use super::super::wire;"),
            ("rpc-core/src/wire/b.rs", "mod tests { use super::super::verbs; }"),
        ];
        assert_eq!(layers(&good), [0; 0]);
    }

    #[test]
    fn a_name_that_the_root_takes_from_a_layer_counts_as_that_layer() {
        let lib = "pub use client::{Builder as B, Channel};\npub use time::Time;";
        let bad =
            ("rpc-core/src/wire/a.rs", "use crate::Channel;\nuse crate::Time;\nuse crate::B;");
        assert_eq!(layers(&[("rpc-core/src/lib.rs", lib), bad]), [1, 3]);
    }

    #[test]
    fn an_unknown_folder_must_be_entered_in_the_table() {
        assert_eq!(layers(&[("rpc-core/src/newer/a.rs", "")]), [1]);
    }

    #[test]
    fn sge_new_outside_mem_and_verbs_is_found() {
        let files = [
            ("rpc-core/src/mem/a.rs", "Sge::new(1, 2, k)"),
            ("rpc-core/src/verbs/soft/a.rs", "Sge::new(1, 2, k)"),
            ("rpc-core/src/engine/a.rs", "let a: Sge = b;\nSge::new(1, 2, k)"),
            ("rpc-core/src/codec/a.rs", "// Sge::new\n\nSge :: new (1)"),
        ];
        assert_eq!(lines_found(sges_are_built_by_mem_alone, &files), [2, 3]);
    }
}
