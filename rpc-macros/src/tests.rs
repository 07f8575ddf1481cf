mod tokens;

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

/// The trait that `rpc-codegen` commits for the key-value service, and the arguments of its attribute.
fn key_value_service() -> (TokenStream, TokenStream) {
    let path = "../rpc-codegen/tests/snapshots/kv/kv.v1.rs";
    let generated = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap();
    let items = syn::parse_file(&generated).unwrap().items;
    let Some(Item::Trait(mut item)) = items.into_iter().find(|item| matches!(item, Item::Trait(_)))
    else {
        panic!("no trait in {path}")
    };
    let of_ours = |attr: &syn::Attribute| attr.path().segments.last().unwrap().ident == "service";
    let at = item.attrs.iter().position(of_ours).unwrap();
    let Meta::List(attr) = item.attrs.remove(at).meta else { panic!("no arguments") };
    (attr.tokens, quote::quote!(#item))
}

/// Compares an expansion with the committed one. `UPDATE=1 cargo test -p rpc-macros` writes it anew.
fn assert_as_committed(name: &str, attr: TokenStream, item: TokenStream) -> String {
    let expanded = prettyplease::unparse(&syn::parse2(expand(attr, item)).unwrap());
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots").join(format!("{name}.rs"));
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&path, &expanded).unwrap();
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == expanded,
        "{name}: run with UPDATE=1 and look at the difference; now it is:\n{expanded}"
    );
    expanded
}

#[test]
fn the_expansion_of_the_key_value_service_is_as_committed() {
    let (attr, item) = key_value_service();
    let expanded = assert_as_committed("kv", attr, item);
    let stubs = expanded.lines().count()
        - expanded.lines().position(|line| line.contains("Client")).unwrap();
    assert!(
        stubs <= 200,
        "the stubs of seven methods are to fit three screens; they have {stubs} lines"
    );
}

#[test]
fn small_expansions_are_as_committed() {
    for (name, attr, item) in [
        ("empty", "", "trait Nothing {}"),
        (
            "renamed",
            "name = \"echo.v1.Echo\", crate = ::my_rpc",
            "/// Answers.
            pub(crate) trait Service {
                /// The same bytes.
                #[method(name = \"Echo\", idempotency = Idempotent)]
                async fn echo_bytes(&self, request: Request<C>) -> Result<Response<T>, Status>;
            }",
        ),
        (
            "deprecated",
            "",
            "#[cfg(unix)]
            #[deprecated(note = \"Use Other.\")]
            pub trait Old: Send + Sync + 'static {
                #[deprecated]
                fn get(&self, r: Request<A>) -> impl Future<Output = Result<Response<B>, Status>> + Send;
                async fn put(&self, r: Request<A>) -> Result<Response<B>, Status> { body(r).await }
            }",
        ),
    ] {
        assert_as_committed(name, attr.parse().unwrap(), item.parse().unwrap());
    }
}

#[test]
fn a_client_is_documented_with_the_comments_and_the_names_on_the_wire() {
    let (attr, item) = key_value_service();
    let expanded = prettyplease::unparse(&syn::parse2(expand(attr, item)).unwrap());
    let (_, client) = expanded.split_once("impl<C: __rpc::Caller> KvClient<C>").unwrap();
    let (_, get) = client.split_once("}").unwrap();
    let (docs, _) = get.split_once("pub async fn get(").unwrap();
    let lines: Vec<&str> =
        docs.lines().map(str::trim).filter(|line| line.starts_with("///")).collect();
    assert!(lines[0].len() > "///".len() && lines[1] == "///", "{docs}");
    assert_eq!(lines.last(), Some(&"/// Calls `kv.v1.Kv/Get`."));
}

/// What a user's build waits for, beside rustc itself: much less than a blink.
#[test]
fn the_key_value_service_expands_in_less_than_a_tenth_of_a_second() {
    let (attr, item) = key_value_service();
    let times = (0..20).map(|_| {
        let began = std::time::Instant::now();
        expand(attr.clone(), item.clone());
        began.elapsed()
    });
    let best = times.min().unwrap();
    println!("| expanding the trait of kv | {} µs |", best.as_micros());
    assert!(best < std::time::Duration::from_millis(100), "it took {best:?}");
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
