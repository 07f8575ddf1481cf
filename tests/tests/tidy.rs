//! The rules of this repository, applied to it. Each is described and tried on bad samples in
//! `rpc_tests::tidy`.

/// `tests/run` tells these from the other tests by the name of this module.
mod repository {
    use std::path::Path;
    use std::sync::LazyLock;

    use rpc_tests::tidy::{self, Finding, Tree};

    static TREE: LazyLock<Tree> = LazyLock::new(|| {
        let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
        Tree::of(root).expect("`git ls-files` lists the files of this repository")
    });

    #[track_caller]
    fn holds(rule: fn(&Tree) -> Vec<Finding>) {
        let findings: Vec<String> = rule(&TREE).iter().map(Finding::to_string).collect();
        assert!(findings.is_empty(), "\n{}\n", findings.join("\n"));
    }

    #[test]
    fn its_files_were_read() {
        assert!(TREE.rust().any(|(file, _)| file.path == "rpc-core/src/lib.rs"));
        assert!(TREE.rust().any(|(file, _)| file.path == "tests/tests/tidy.rs"));
        assert!(TREE.files().iter().any(|file| file.path == "tests/run"));
    }

    #[test]
    fn layers_import_only_what_they_may() {
        holds(tidy::layers_import_only_what_they_may);
    }

    #[test]
    fn sges_are_built_by_mem_alone() {
        holds(tidy::sges_are_built_by_mem_alone);
    }

    #[test]
    fn pure_layers_stay_pure() {
        holds(tidy::pure_layers_stay_pure);
    }

    #[test]
    fn unsafe_stays_where_it_may() {
        holds(tidy::unsafe_stays_where_it_may);
    }

    #[test]
    fn files_are_short() {
        holds(tidy::files_are_short);
    }

    #[test]
    fn functions_fit_a_screen() {
        holds(tidy::functions_fit_a_screen);
    }

    #[test]
    fn no_unfinished_work() {
        holds(tidy::no_unfinished_work);
    }

    #[test]
    fn sleeps_say_why() {
        holds(tidy::sleeps_say_why);
    }

    #[test]
    fn ignored_tests_say_why() {
        holds(tidy::ignored_tests_say_why);
    }

    #[test]
    fn no_machine_paths() {
        holds(tidy::no_machine_paths);
    }

    #[test]
    fn urls_are_public() {
        holds(tidy::urls_are_public);
    }

    #[test]
    fn dependencies_have_reasons() {
        holds(tidy::dependencies_have_reasons);
    }

    #[test]
    fn markdown_links_resolve() {
        holds(tidy::markdown_links_resolve);
    }
}
