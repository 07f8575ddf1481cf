//! What a user reads when a `.proto` cannot be compiled: every problem at once, each with its place
//! and with what to do.

#![allow(clippy::unwrap_used)]

use std::path::Path;

use rpc_codegen::Builder;

/// The problems, with the folder of this machine taken out of the paths.
fn problems(builder: Builder, protos: &[&str]) -> Vec<String> {
    let includes = Path::new(env!("CARGO_MANIFEST_DIR")).join("../proto");
    let error =
        builder.out_dir(env!("CARGO_TARGET_TMPDIR")).compile(protos, &[&includes]).unwrap_err();
    let prefix = format!("{}/", includes.display());
    error.problems().map(|problem| problem.replace(&prefix, "")).collect()
}

#[test]
fn streaming_methods_are_named_with_their_places() {
    let not_yet = "and streaming methods are not supported yet; accepted are methods with one \
                   request and one response, without `stream`";
    assert_eq!(
        problems(Builder::new(), &["fixtures/bad/streaming.proto"]),
        [
            format!(
                "fixtures/bad/streaming.proto:7:31: bad.v1.Streams.Watch: the method streams responses, {not_yet}"
            ),
            format!(
                "fixtures/bad/streaming.proto:8:12: bad.v1.Streams.Load: the method streams requests, {not_yet}"
            ),
            format!(
                "fixtures/bad/streaming.proto:9:12: bad.v1.Streams.Talk: the method streams both ways, {not_yet}"
            ),
        ]
    );
}

#[test]
fn names_that_collide_are_named_with_both_places_and_a_way_out() {
    let fix = "give the service another name with `Builder::rename_service(\".bad.v1.Kv\", \"KvService\")`";
    let fix_second = fix.replace(".bad.v1.Kv", ".bad.v1.Kv_");
    let clash = "fixtures/bad/clash.proto";
    assert_eq!(
        problems(Builder::new(), &[clash]),
        [
            format!(
                "{clash}:14:6: enum bad.v1.kv_client: it is `KvClient` in Rust, and so is message bad.v1.KvClient ({clash}:12:9); rename one of them"
            ),
            format!(
                "{clash}:5:9: bad.v1.Kv: its trait is `Kv` in Rust, and so is message bad.v1.KV ({clash}:11:9); {fix}"
            ),
            format!(
                "{clash}:5:9: bad.v1.Kv: its client is `KvClient` in Rust, and so is message bad.v1.KvClient ({clash}:12:9); {fix}"
            ),
            format!(
                "{clash}:5:9: bad.v1.Kv: its server is `KvServer` in Rust, and so is enum bad.v1.KvServer ({clash}:13:6); {fix}"
            ),
            format!(
                "{clash}:9:9: bad.v1.Kv_: its trait is `Kv` in Rust, and so is message bad.v1.KV ({clash}:11:9); {fix_second}"
            ),
            format!(
                "{clash}:9:9: bad.v1.Kv_: its client is `KvClient` in Rust, and so is message bad.v1.KvClient ({clash}:12:9); {fix_second}"
            ),
            format!(
                "{clash}:9:9: bad.v1.Kv_: its server is `KvServer` in Rust, and so is enum bad.v1.KvServer ({clash}:13:6); {fix_second}"
            ),
        ]
    );
}

#[test]
fn methods_of_one_name_and_the_reserved_name_are_named() {
    let file = "fixtures/bad/methods.proto";
    assert_eq!(
        problems(Builder::new(), &[file]),
        [
            format!(
                "{file}:6:7: bad.v1.Methods.New: it is `new` in Rust, and that makes the client; give it another name with `Builder::rename_method(\".bad.v1.Methods.New\", \"create\")`"
            ),
            format!(
                "{file}:8:7: bad.v1.Methods.getFoo: it is `get_foo` in Rust, and so is GetFoo ({file}:7:7); give it another name with `Builder::rename_method(\".bad.v1.Methods.getFoo\", \"get_foo_2\")`"
            ),
        ]
    );
}

#[test]
fn what_the_errors_propose_works() {
    let includes = Path::new(env!("CARGO_MANIFEST_DIR")).join("../proto");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("renamed");
    std::fs::create_dir_all(&folder).unwrap();
    Builder::new()
        .rename_method(".bad.v1.Methods.New", "create")
        .rename_method(".bad.v1.Methods.getFoo", "get_foo_2")
        .out_dir(&folder)
        .compile(&["fixtures/bad/methods.proto"], &[includes])
        .unwrap();
    let text = std::fs::read_to_string(folder.join("bad.v1.rs")).unwrap();
    assert!(text.contains("#[method(name = \"New\")]\n    async fn create("), "{text}");
    assert!(text.contains("#[method(name = \"getFoo\")]\n    async fn get_foo_2("), "{text}");
}

#[test]
fn several_files_report_all_their_problems_in_one_go() {
    let found = problems(
        Builder::new().core_path("rpc"),
        &["fixtures/bad/syntax.proto", "fixtures/bad/missing.proto", "fixtures/bad/methods.proto"],
    );
    assert_eq!(found.len(), 5, "{found:#?}");
    assert!(found[0].starts_with("file 'fixtures/bad/missing.proto' is not in any include path: there is no such file here, nor below"), "{}", found[0]);
    assert_eq!(found[1], "fixtures/bad/syntax.proto:6:3: name 'Missing' is not defined");
    assert!(found[2].starts_with("fixtures/bad/methods.proto:6:7: "));
    assert!(found[4].starts_with("Builder::core_path(\"rpc\"): "));
}

#[test]
fn an_include_folder_that_is_not_there_is_named() {
    let found = Builder::new()
        .out_dir(env!("CARGO_TARGET_TMPDIR"))
        .compile(&["fixtures/bad/methods.proto"], &["../prto"])
        .unwrap_err()
        .to_string();
    assert!(found.contains("the include folder ../prto does not exist"), "{found}");
}

#[test]
fn renames_that_hit_nothing_or_are_no_names_are_told() {
    let builder = Builder::new()
        .rename_service(".kv.v1.Kx", "Other")
        .rename_service("kv.v1.Kv", "Other")
        .rename_method(".kv.v1.Kv.Get", "type");
    assert_eq!(
        problems(builder, &["kv/v1/kv.proto"]),
        [
            "Builder::rename_service(\".kv.v1.Kx\", \"Other\"): no service has this name",
            "Builder::rename_service(\"kv.v1.Kv\", \"Other\"): no service has this name; full names begin with a dot",
            "Builder::rename_method(\".kv.v1.Kv.Get\", \"type\"): `type` cannot be a name in Rust; a keyword is written `r#keyword`",
        ]
    );
}

#[test]
fn an_attribute_that_is_no_rust_is_told_and_not_a_panic() {
    let found = problems(Builder::new().type_attribute(".", "#[derive("), &["kv/v1/kv.proto"]);
    assert_eq!(found.len(), 1);
    assert!(found[0].starts_with("package kv.v1: what was generated is no Rust: "), "{}", found[0]);
}

#[test]
fn the_debug_text_is_for_people_as_unwrap_prints_it() {
    let includes = Path::new(env!("CARGO_MANIFEST_DIR")).join("../proto");
    let error = Builder::new()
        .out_dir(env!("CARGO_TARGET_TMPDIR"))
        .compile(&["fixtures/bad/methods.proto"], &[includes])
        .unwrap_err();
    assert_eq!(format!("{error:?}"), format!("\n{error}\n"));
    assert_eq!(error.to_string().lines().count(), 2);
}

#[test]
fn a_nested_type_that_is_taken_from_elsewhere_collides_with_nothing() {
    let builder = Builder::new()
        .extern_path(".bad.inside.Outer.foo_bar", "::elsewhere::FooBar")
        .extern_path(".bad.inside.Outer.Foo_Bar", "::elsewhere::Colour");
    let left = problems(builder, &["fixtures/bad/inside.proto"]);
    assert!(left.iter().all(|problem| !problem.contains("`FooBar`")), "{left:#?}");
    assert!(left.iter().any(|problem| problem.contains("`third`")), "{left:#?}");
}

#[test]
fn names_inside_messages_and_enums_that_collide_are_named_with_both_places() {
    let file = "fixtures/bad/inside.proto";
    let clash = |place: &str, what: &str, rust: &str, first: &str, first_place: &str| {
        format!(
            "{file}:{place}: {what}: it is `{rust}` in Rust, and so is {first} ({file}:{first_place}); rename one of them"
        )
    };
    let message = "message bad.inside.Outer.FooBar";
    let oneof = "oneof bad.inside.Outer.kind";
    assert_eq!(
        problems(Builder::new(), &[file]),
        [
            clash("8:11", "message bad.inside.Outer.foo_bar", "FooBar", message, "6:11"),
            clash("7:8", "enum bad.inside.Outer.Foo_Bar", "FooBar", message, "6:11"),
            clash(
                "12:18",
                "field bad.inside.Outer.third",
                "third",
                "field bad.inside.Outer.Third",
                "11:18"
            ),
            clash("10:9", "oneof bad.inside.Outer.Kind", "kind", oneof, "9:9"),
            clash("10:9", "oneof bad.inside.Outer.Kind", "Kind", oneof, "9:9"),
            clash(
                "10:61",
                "field bad.inside.Outer.First_one",
                "FirstOne",
                "field bad.inside.Outer.FIRST_ONE",
                "10:40"
            ),
            clash(
                "19:3",
                "value bad.inside.Color.RED",
                "Red",
                "value bad.inside.Color.COLOR_RED",
                "18:3"
            ),
        ]
    );
}

#[test]
fn every_name_that_is_missing_in_a_file_is_told_at_once() {
    let file = "fixtures/bad/many.proto";
    assert_eq!(
        problems(Builder::new(), &[file]),
        [("6:3", "Missing"), ("8:3", "Absent"), ("12:11", "Nope"), ("13:29", "Gone")]
            .map(|(place, name)| format!("{file}:{place}: name '{name}' is not defined"))
    );
}

#[test]
fn what_is_not_supported_or_not_there_says_what_to_write() {
    let includes = Path::new(env!("CARGO_MANIFEST_DIR")).join("../proto");
    for (file, place, advice) in [
        (
            "edition",
            "1:1",
            "editions are not supported yet: write `syntax = \"proto3\";`".to_owned(),
        ),
        ("nosyntax", "4:3", "a file without a `syntax` line is proto2".to_owned()),
        (
            "imports",
            "5:1",
            format!(
                "import 'fixtures/bad/nowhere.proto' not found below {}; give its folder to `compile`",
                includes.display()
            ),
        ),
    ] {
        let file = format!("fixtures/bad/{file}.proto");
        let found = problems(Builder::new(), &[&file]);
        assert_eq!(found.len(), 1, "{found:#?}");
        assert!(found[0].starts_with(&format!("{file}:{place}: ")), "{}", found[0]);
        assert!(found[0].contains(&advice), "{}", found[0]);
    }
}
