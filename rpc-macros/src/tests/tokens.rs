//! Whatever tokens a user writes, the macro ends, and says something that rustc can show.

use proc_macro2::{Group, TokenStream, TokenTree};
use proptest::prelude::*;

use crate::expand::expand;

const ITEM: &str = "#[cfg(unix)] #[deprecated] /// Docs
    pub trait Kv: Send { #[method(name = \"A\", idempotency = Unknown)] /** Docs. */
    async fn get(&self, request: Request<A>) -> Result<Response<B>, Status> { todo!() }
    fn put(&self, r: Request<a::B<C>>) -> impl Future<Output = Result<Response<(B)>, Status>> + Send; }";
const ATTR: &str = "name = \"kv.v1.Kv\", crate = ::rpc_core,";

/// What is put where it does not belong.
const WORDS: &str = "trait fn async unsafe const impl dyn where for self Self 'a 'static r#type _ new crate
    name method service 0 1.5e9 \"\" \"k\\n\" b\"x\" 'c' , ; : :: -> => = == & && * + < > << >> ! ? # $ | .. ..= @ ^ %
    () [] {} (A) [A] {A} <> Request<A> Result<Response<B>, Status> Streaming<A> #[method] #[method()]
    #[method(name)] #[method(name = \"\")] #[method(idempotency = Idempotent)] #![allow(x)] pub(crate) extern \"C\"
    macro!{} Future Output = Send + ?Sized";

/// Where something is changed, how, and with which of the words.
type Change = (usize, u8, usize);

fn parse(text: &str) -> TokenStream {
    text.parse().unwrap()
}

/// Makes one change somewhere in the stream, in a group if the place falls on one.
fn change(tokens: TokenStream, (place, how, word): Change, words: &[TokenTree]) -> TokenStream {
    let mut tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let new = words[word % words.len()].clone();
    if tokens.is_empty() {
        return TokenStream::from(new);
    }
    let (at, deeper) = (place % tokens.len(), place / tokens.len());
    if let TokenTree::Group(group) = &tokens[at]
        && how % 8 != 0
    {
        let inner = change(group.stream(), (deeper, how, word), words);
        tokens[at] = Group::new(group.delimiter(), inner).into();
        return tokens.into_iter().collect();
    }
    match how % 5 {
        0 => drop(tokens.remove(at)),
        1 => tokens.insert(at, new),
        2 => tokens[at] = new,
        3 => tokens.insert(at, tokens[at].clone()),
        _ => tokens.truncate(at),
    }
    tokens.into_iter().collect()
}

/// Each error begins a `compile_error!`, and what is not an error is Rust.
fn assert_sound(attr: TokenStream, item: TokenStream) {
    let is_item = syn::parse2::<syn::Item>(item.clone()).is_ok();
    let output = expand(attr, item);
    if is_item {
        let text = output.to_string();
        syn::parse2::<syn::File>(output).unwrap_or_else(|error| panic!("{error}: {text}"));
    } else {
        assert!(output.to_string().contains("compile_error"), "no Rust, and no word about it");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn changed_tokens_give_an_error_or_stubs_and_never_a_panic(
        in_item in proptest::collection::vec(any::<Change>(), 0..5),
        in_attr in proptest::collection::vec(any::<Change>(), 0..3),
    ) {
        let words: Vec<TokenTree> = parse(WORDS).into_iter().collect();
        let apply = |text: &str, changes: &[Change]| {
            changes.iter().fold(parse(text), |tokens, made| change(tokens, *made, &words))
        };
        assert_sound(apply(ATTR, &in_attr), apply(ITEM, &in_item));
    }
}

/// Every way of cutting a good trait short, and of leaving one token out of it.
#[test]
fn cut_tokens_give_an_error_and_never_a_panic() {
    for item in cuts(parse(ITEM)) {
        expand(parse(ATTR), item);
    }
    for attr in cuts(parse(ATTR)) {
        assert_sound(attr, parse(ITEM));
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
                with[at] = Group::new(group.delimiter(), inner).into();
                all.push(with.into_iter().collect());
            }
        }
    }
    all
}
