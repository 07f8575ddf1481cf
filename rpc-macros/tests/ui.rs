//! What rustc says where `#[service]` stands before something else than a service, and what compiles.
//! `TRYBUILD=overwrite cargo test -p rpc-macros --test ui` writes the expected texts anew.

#[test]
fn services_compile_and_others_are_told_what_is_wrong() {
    let cases = trybuild::TestCases::new();
    cases.pass("tests/ui/pass/*.rs");
    cases.compile_fail("tests/ui/fail/*.rs");
}
