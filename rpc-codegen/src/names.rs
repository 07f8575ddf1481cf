//! How protobuf names become Rust names: the rules of `prost-build`, so that what is checked here
//! is what will be written.

use heck::{ToSnakeCase, ToUpperCamelCase};

/// The name of a trait, message or enum.
pub(crate) fn type_name(proto: &str) -> String {
    usable(proto.to_upper_camel_case())
}

/// The name of a method or module.
pub(crate) fn snake_name(proto: &str) -> String {
    usable(proto.to_snake_case())
}

/// The name of a value of an enum: without the enum's own name in front, where a name remains.
pub(crate) fn variant_name(enumeration: &str, value: &str) -> String {
    let value = type_name(value);
    match value.strip_prefix(&type_name(enumeration)) {
        Some(rest) if rest.starts_with(char::is_uppercase) => usable(rest.to_owned()),
        _ => value,
    }
}

/// The path of the module that a package's types are in.
pub(crate) fn module_path(package: &str) -> Vec<String> {
    package.split('.').filter(|part| !part.is_empty()).map(snake_name).collect()
}

/// The name on the wire that `#[service]` gives a function of this name when the trait states none.
/// The same rule is in `rpc-macros`; a trait states the name wherever the two would differ.
pub(crate) fn default_wire_name(rust: &str) -> String {
    let mut camel = String::with_capacity(rust.len());
    for word in rust.trim_start_matches("r#").split('_') {
        let mut letters = word.chars();
        camel.extend(letters.next().map(|first| first.to_ascii_uppercase()));
        camel.extend(letters);
    }
    camel
}

/// True of what can stand in Rust as a name, keywords only as `r#keyword`.
pub(crate) fn is_rust_name(name: &str) -> bool {
    // `gen` is a keyword since edition 2024, which the parser leaves open.
    !matches!(name, "_" | "gen") && syn::parse_str::<syn::Ident>(name).is_ok()
}

fn usable(name: String) -> String {
    if is_rust_name(&name) {
        return name;
    }
    // These cannot even be raw.
    if matches!(name.as_str(), "_" | "self" | "Self" | "super" | "crate" | "extern") {
        return format!("{name}_");
    }
    if name.starts_with(|first: char| first.is_numeric()) {
        return format!("_{name}");
    }
    format!("r#{name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_rules_of_prost_build() {
        assert_eq!(type_name("HTTPKVStore"), "HttpkvStore");
        assert_eq!(type_name("kv_store"), "KvStore");
        assert_eq!(type_name("KV"), "Kv");
        assert_eq!(type_name("Self"), "Self_");
        for (proto, rust) in [
            ("GetFoo", "get_foo"),
            ("getFoo", "get_foo"),
            ("Type", "r#type"),
            ("Do", "r#do"),
            ("Async", "r#async"),
            ("Gen", "r#gen"),
            ("Try", "r#try"),
            ("Self", "self_"),
            ("Super", "super_"),
            ("Crate", "crate_"),
            ("Extern", "extern_"),
            ("Union", "union"),
            ("HTTPGet", "http_get"),
        ] {
            assert_eq!(snake_name(proto), rust, "{proto}");
        }
    }

    #[test]
    fn values_of_enums_leave_out_the_name_of_the_enum() {
        for (value, rust) in [
            ("COLOR_RED", "Red"),
            ("RED", "Red"),
            ("COLOR_2D", "Color2d"),
            ("COLOR", "Color"),
            ("COLORED", "Colored"),
            ("COLOR_SELF", "Self_"),
        ] {
            assert_eq!(variant_name("Color", value), rust, "{value}");
        }
    }

    #[test]
    fn packages_become_module_paths() {
        assert_eq!(module_path("kv.v1"), ["kv", "v1"]);
        assert_eq!(module_path("db.type.V1"), ["db", "r#type", "v1"]);
        assert!(module_path("").is_empty());
    }

    #[test]
    fn a_wire_name_is_implied_only_where_the_round_trip_is_exact() {
        for proto in ["Get", "GetFoo", "Type", "Self", "Extern"] {
            assert_eq!(default_wire_name(&snake_name(proto)), proto);
        }
        for proto in ["getFoo", "HTTPGet", "get_foo", "Get2Foo_"] {
            assert_ne!(default_wire_name(&snake_name(proto)), proto);
        }
    }
}
