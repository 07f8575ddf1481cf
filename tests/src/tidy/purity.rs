use super::{Finding, Tree};

/// The layers that are pure, and the file at whose top `unsafe` is forbidden for all of each.
const PURE: [&str; 2] = ["rpc-core/src/wire/", "rpc-core/src/protocol/"];

/// What a pure layer may not name, and what it does instead.
const IMPURE: &[(&str, &str)] = &[
    ("Instant", "take `now: crate::Time` as an argument"),
    ("SystemTime", "take `now: crate::Time` as an argument"),
    ("TcpStream", "sockets are for `cm` and the devices"),
    ("TcpListener", "sockets are for `cm` and the devices"),
    ("UdpSocket", "sockets are for `cm` and the devices"),
    ("ToSocketAddrs", "names are resolved by `cm`"),
    ("std::thread", "threads are for `engine`"),
    ("std::fs", "files are for programs"),
    ("std::io", "take bytes and return bytes"),
    ("std::env", "take the value as an argument"),
    ("std::process", "processes are for programs"),
    ("rand", "take a seed as an argument"),
    ("getrandom", "take a seed as an argument"),
    ("rustix", "system calls are for `engine`, `mem` and the devices"),
    ("polling", "waiting is for `engine`"),
    ("world", "take `now: crate::Time`, or a seed, as an argument"),
    ("tokio", "nothing here waits"),
];

/// `wire` and `protocol` have no clock, no I/O, no threads and no randomness of their own.
pub fn pure_layers_stay_pure(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, rust) in tree.rust() {
        let Some(layer) = PURE.iter().find(|layer| file.path.starts_with(**layer)) else {
            continue;
        };
        for (name, instead) in IMPURE {
            for at in rust.words(name) {
                let text = format!("a pure layer names `{name}`; {instead}");
                findings.push(Finding::new(&file.path, rust.line_of(at), text));
            }
        }
        let is_top = file.path.strip_prefix(layer) == Some("mod.rs");
        let has_code = !rust.code().trim().is_empty();
        if is_top && has_code && !rust.code().contains("#![forbid(unsafe_code)]") {
            let text = "a pure layer begins with `#![forbid(unsafe_code)]`";
            findings.push(Finding::new(&file.path, 1, text));
        }
    }
    findings.sort_by(|a, b| (&a.path, a.line).cmp(&(&b.path, b.line)));
    findings
}

#[cfg(test)]
mod tests {
    use super::super::lines_found;
    use super::*;

    #[test]
    fn clocks_sockets_threads_files_and_randomness_are_found() {
        let bad = [(
            "rpc-core/src/protocol/a.rs",
            "use std::time::{Duration, Instant};\nstd::thread::yield_now();\nuse std::fs;\n\
             rand::random();\nuse std::net::{TcpStream, IpAddr};",
        )];
        assert_eq!(lines_found(pure_layers_stay_pure, &bad), [1, 2, 3, 4, 5]);
    }

    #[test]
    fn spans_addresses_and_what_comments_say_are_no_impurity() {
        let good = [
            ("rpc-core/src/wire/a.rs", "use std::time::Duration;\nuse std::net::SocketAddr;"),
            ("rpc-core/src/wire/b.rs", "// no Instant here\nlet operand = \"tokio\";"),
            ("rpc-core/src/engine/a.rs", "use std::time::Instant;"),
        ];
        assert_eq!(lines_found(pure_layers_stay_pure, &good), [0; 0]);
    }

    #[test]
    fn a_pure_layer_that_does_not_forbid_unsafe_is_found() {
        let top = "rpc-core/src/wire/mod.rs";
        assert_eq!(
            lines_found(pure_layers_stay_pure, &[(top, "mod a; // #![forbid(unsafe_code)]")]),
            [1]
        );
        assert_eq!(lines_found(pure_layers_stay_pure, &[(top, "#![forbid(unsafe_code)]")]), [0; 0]);
    }
}
