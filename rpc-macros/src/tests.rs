use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use proc_macro2::{LineColumn, TokenStream, TokenTree};
use syn::{File, Item, Meta};

use crate::expand::expand;

/// Expands a trait that is written as text, and gives what the user reads: `line:column: message`
/// for each error, where the first line of the text is 1.
fn errors(attr: &str, item: &str) -> Vec<String> {
    let output = expand(attr.parse().unwrap(), item.parse().unwrap());
    let mut found = Vec::new();
    collect(output, &mut found);
    found
}

fn collect(tokens: TokenStream, found: &mut Vec<String>) {
    let mut begins = None;
    for token in tokens {
        match token {
            TokenTree::Ident(ident) if ident == "compile_error" => begins = Some(ident.span()),
            TokenTree::Group(group) if begins.is_some() => {
                let LineColumn { line, column } = begins.take().unwrap().start();
                let message: syn::LitStr = syn::parse2(group.stream()).unwrap();
                found.push(format!("{line}:{column}: {}", message.value()));
            }
            TokenTree::Group(group) => collect(group.stream(), found),
            _ => {}
        }
    }
}

/// The one error of a trait with one method, without its place.
fn error_of(method: &str) -> String {
    let found = errors("", &format!("trait Kv {{ {method} }}"));
    let [only] = found.as_slice() else {
        panic!("one error expected for `{method}`, found {found:#?}");
    };
    only.splitn(3, ':').nth(2).unwrap().trim().to_owned()
}

#[test]
fn only_a_trait_can_be_a_service() {
    assert_eq!(errors("", "pub struct Kv;"), ["1:11: `#[service]` stands before a trait"]);
    assert_eq!(errors("", "fn kv() {}"), ["1:3: `#[service]` stands before a trait"]);
    // What is no Rust at all is handed on with the parser's words, and with the item.
    let output = expand(TokenStream::new(), "trait Kv ( )".parse().unwrap()).to_string();
    assert!(output.starts_with("trait Kv ()") && output.contains("compile_error"), "{output}");
}

#[test]
fn traits_of_other_shapes_are_refused_at_what_makes_them_so() {
    let found = errors("", "unsafe trait Kv<T> where T: Clone {\n  type A;\n  const N: u8;\n}");
    assert_eq!(found.len(), 5, "{found:#?}");
    assert!(found[0].starts_with("1:0: a service trait cannot be unsafe"), "{found:#?}");
    assert!(found[1].starts_with("1:15: a service trait cannot be generic: "), "{found:#?}");
    assert!(found[2].starts_with("1:19: a service trait takes no where clause"));
    assert!(found[3].starts_with("2:2: a service has methods only: `async fn name("));
    assert!(found[4].starts_with("3:2: a service has methods only"));
}

#[test]
fn all_errors_are_told_at_once_each_at_its_place() {
    let found = errors(
        "nam = \"a\"",
        "trait Kv {
            async fn new(&self, request: Request<A>) -> Result<Response<B>, Status>;
            async fn get(request: Request<A>) -> Result<Response<B>, Status>;
            async fn put(&self, request: A) -> Response<B>;
        }",
    );
    let places: Vec<_> = found.iter().map(|error| error.rsplit(": ").last().unwrap()).collect();
    assert_eq!(places, ["1:0", "2:21", "3:21", "4:41", "4:47"], "{found:#?}");
}

#[test]
fn arguments_of_a_method_are_self_and_one_request() {
    let rest = "-> Result<Response<B>, Status>;";
    let missing = "the first argument is missing: `&self`; a method is `async fn name(&self, \
                   request: Request<Q>) -> Result<Response<R>, Status>`";
    assert_eq!(error_of(&format!("async fn get(request: Request<A>) {rest}")), missing);
    for receiver in ["self", "&mut self", "mut self", "&'a self", "self: Arc<Self>"] {
        assert_eq!(
            error_of(&format!("async fn get({receiver}, request: Request<A>) {rest}")),
            "a method takes `&self`: calls run at the same time"
        );
    }
    assert_eq!(
        error_of(&format!("async fn get(&self) {rest}")),
        "the request is missing: a method takes `request: Request<Q>` after `&self`"
    );
    assert_eq!(
        error_of(&format!("async fn get(&self, a: Request<A>, b: Request<B>) {rest}")),
        "a method takes one request; put what else it needs into the message"
    );
    for ty in ["A", "Request", "Request<A, B>", "Request<'a>", "&Request<A>"] {
        assert_eq!(
            error_of(&format!("async fn get(&self, request: {ty}) {rest}")),
            "the request's type is `Request<Q>`, where `Q` is a message"
        );
    }
}

#[test]
fn a_method_returns_a_result_of_response_and_status() {
    let get = "fn get(&self, request: Request<A>)";
    assert!(error_of(&format!("async {get};")).starts_with("the method returns nothing; it is "));
    for output in ["Response<B>", "Result<Response<B>>", "Option<Response<B>>", "()"] {
        assert_eq!(
            error_of(&format!("async {get} -> {output};")),
            "a method returns `Result<Response<R>, Status>`"
        );
    }
    assert_eq!(
        error_of(&format!("async {get} -> Result<Response<B>, Error>;")),
        "the error of a method is `Status`: it returns `Result<Response<R>, Status>`"
    );
    assert_eq!(
        error_of(&format!("async {get} -> Result<B, Status>;")),
        "a method answers with `Response<R>`: it returns `Result<Response<R>, Status>`"
    );
    for output in ["Result<Response<B>, Status>", "impl Send", "impl Future + Send", "BoxFuture<B>"]
    {
        assert_eq!(
            error_of(&format!("{get} -> {output};")),
            "a method is `async`, or returns `impl Future<Output = Result<Response<R>, Status>> + Send`"
        );
    }
    assert_eq!(
        error_of(&format!("{get} -> impl Future<Output = Result<Response<B>, Status>>;")),
        "the future of a method is `Send`, so that any core can run it: add `+ Send`"
    );
}

#[test]
fn streaming_methods_are_an_error_that_says_so() {
    let not_yet =
        "streaming methods are not supported yet; a method has one request and one response";
    for (request, response) in [("Streaming<A>", "B"), ("A", "rpc_core::Streaming<B>")] {
        assert_eq!(
            error_of(&format!(
                "async fn get(&self, r: Request<{request}>) -> Result<Response<{response}>, Status>;"
            )),
            not_yet
        );
    }
}

#[test]
fn methods_are_plain_functions_without_cfg() {
    let rest = "(&self, request: Request<A>) -> Result<Response<B>, Status>;";
    assert!(
        error_of(&format!("async unsafe fn get{rest}"))
            .starts_with("a method cannot be safe or unsafe")
    );
    assert!(
        error_of(&format!("async extern \"C\" fn get{rest}"))
            .starts_with("a method cannot have an ABI")
    );
    assert!(error_of(&format!("const async fn get{rest}")).starts_with("a method cannot be const"));
    assert!(error_of(&format!("async fn get<T>{rest}")).starts_with("a method cannot be generic"));
    assert!(
        error_of(&format!("#[cfg(unix)] async fn get{rest}"))
            .starts_with("a method cannot depend on `cfg`")
    );
}

#[test]
fn unknown_and_malformed_arguments_name_what_is_accepted() {
    for (attr, message) in [
        (
            "magic = 1",
            "1:0: unknown argument `magic`; accepted are `name = \"package.Service\"` and `crate = path`",
        ),
        ("name = Kv", "1:0: `name` takes a string, as in `name = \"Get\"`"),
        ("name", "1:0: `name` has no value; write `name = …`"),
        ("name = \"a\", name = \"b\"", "1:12: `name` is given twice; leave one"),
        (
            "crate = 7",
            "1:0: `crate` takes the path of the rpc_core crate, as in `crate = ::my_rpc`",
        ),
    ] {
        assert_eq!(errors(attr, "trait Kv {}"), [message]);
    }
    for name in ["", "kv.", ".kv", "kv..v1", "kv/v1", "1kv", "kv v1"] {
        let found = errors(&format!("name = {name:?}"), "trait Kv {}");
        assert!(found[0].starts_with("1:7: a name on the wire is of letters"), "{found:#?}");
    }
    let method = "async fn get(&self, request: Request<A>) -> Result<Response<B>, Status>;";
    for (attr, message) in [
        (
            "#[method]",
            "`#[method]` takes arguments: `#[method(name = \"Method\", idempotency = NoSideEffects)]`",
        ),
        (
            "#[method(idempotency = Often)]",
            "`idempotency` is one of `NoSideEffects`, `Idempotent` and `Unknown`",
        ),
        (
            "#[method(idempotency = )]",
            "`idempotency` is one of `NoSideEffects`, `Idempotent` and `Unknown`",
        ),
        (
            "#[method(wire = \"Get\")]",
            "unknown argument `wire`; accepted are `name = \"Method\"` and `idempotency = NoSideEffects`",
        ),
        ("#[method(name = \"A\")] #[method(name = \"B\")]", "`name` is given twice; leave one"),
    ] {
        assert_eq!(error_of(&format!("{attr} {method}")), message);
    }
}

#[test]
fn two_methods_of_one_wire_name_are_both_shown() {
    let rest = "(&self, request: Request<A>) -> Result<Response<B>, Status>;";
    let found = errors(
        "",
        &format!(
            "trait Kv {{\n async fn get{rest}\n #[method(name = \"Get\")]\n async fn read{rest}\n}}"
        ),
    );
    assert_eq!(
        found,
        [
            "3:17: two methods are called `Get` on the wire; give one of them another `#[method(name = \"…\")]`",
            "2:10: the other is here",
        ]
    );
}

#[test]
fn the_trait_and_the_good_methods_come_out_of_a_bad_trait() {
    let item = "pub trait Kv {
        /// Good.
        #[method(idempotency = Idempotent)]
        async fn get(&self, request: Request<A>) -> Result<Response<B>, Status>;
        #[method(magic = 1)]
        async fn bad(&self);
    }";
    let output = expand(TokenStream::new(), item.parse().unwrap());
    let file: File = syn::parse2(output).unwrap();
    let Some(Item::Trait(item)) = file.items.first() else { panic!("the trait is gone") };
    assert_eq!(item.items.len(), 2);
    let text = prettyplease::unparse(&file);
    assert!(!text.contains("#[method"), "helper attributes mean nothing to rustc:\n{text}");
    assert!(text.contains("pub struct KvClient") && text.contains("\"Kv/Get\""), "{text}");
    assert!(!text.contains("Kv/Bad"), "{text}");
}

#[test]
fn any_tokens_give_an_error_and_never_a_panic() {
    // Every way of cutting a good trait short, and of leaving one token out of it.
    let item: TokenStream =
        "#[cfg(unix)] pub trait Kv: Send { #[method(name = \"A\", idempotency = Unknown)] \
        async fn get(&self, request: Request<A>) -> Result<Response<B>, Status> { todo!() } }"
            .parse()
            .unwrap();
    let attr: TokenStream = "name = \"kv.v1.Kv\", crate = ::rpc_core,".parse().unwrap();
    for attr in cuts(attr.clone()).into_iter().chain([attr]) {
        for item in cuts(item.clone()) {
            expand(attr.clone(), item);
        }
    }
}

/// The stream with each of its tokens left out in turn, at any depth, and each of its beginnings.
fn cuts(tokens: TokenStream) -> Vec<TokenStream> {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut all = Vec::new();
    for at in 0..tokens.len() {
        all.push(tokens[..at].iter().cloned().collect());
        all.push(
            tokens.iter().enumerate().filter(|(i, _)| *i != at).map(|(_, t)| t.clone()).collect(),
        );
        if let TokenTree::Group(group) = &tokens[at] {
            for inner in cuts(group.stream()) {
                let mut with = tokens.clone();
                with[at] = proc_macro2::Group::new(group.delimiter(), inner).into();
                all.push(with.into_iter().collect());
            }
        }
    }
    all
}

/// The trait that `rpc-codegen` commits for the key-value service, expanded, is as committed too.
/// `UPDATE=1 cargo test -p rpc-macros` writes it anew.
#[test]
fn the_expansion_of_the_key_value_service_is_as_committed() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let generated =
        fs::read_to_string(here.join("../rpc-codegen/tests/snapshots/kv/kv.v1.rs")).unwrap();
    let mut service = None;
    for item in syn::parse_file(&generated).unwrap().items {
        if let Item::Trait(mut item) = item {
            let at = item
                .attrs
                .iter()
                .position(|attr| attr.path().segments.last().unwrap().ident == "service");
            let Meta::List(attr) = item.attrs.remove(at.unwrap()).meta else {
                panic!("no arguments")
            };
            service = Some(expand(attr.tokens, quote::quote!(#item)));
        }
    }
    let expanded = prettyplease::unparse(&syn::parse2(service.unwrap()).unwrap());

    let path = here.join("tests/snapshots/kv.rs");
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&path, &expanded).unwrap();
    }
    let committed = fs::read_to_string(&path).unwrap();
    assert!(
        committed == expanded,
        "run with UPDATE=1 and look at the difference; now it is:\n{expanded}"
    );
    let stubs = expanded.lines().count()
        - expanded.lines().position(|line| line.contains("Client")).unwrap();
    assert!(
        stubs <= 200,
        "the stubs of seven methods are to fit three screens; they have {stubs} lines"
    );
}

#[test]
fn wire_names_of_functions_are_upper_camel_case() {
    let mut text = String::new();
    for name in ["get", "get_range", "r#type", "self_", "http2_get", "a__b"] {
        let ident: syn::Ident = syn::parse_str(name).unwrap();
        let wire = crate::parse::upper_camel(&syn::ext::IdentExt::unraw(&ident).to_string());
        writeln!(text, "{name} {wire}").unwrap();
    }
    assert_eq!(
        text,
        "get Get\nget_range GetRange\nr#type Type\nself_ Self\nhttp2_get Http2Get\na__b AB\n"
    );
}
