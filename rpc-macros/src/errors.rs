use proc_macro2::{Span, TokenStream};
use quote::ToTokens;

/// Collects what is wrong, so that one build tells all of it.
#[derive(Default)]
pub(crate) struct Errors {
    all: Option<syn::Error>,
}

impl Errors {
    /// Adds a sentence about some tokens.
    pub(crate) fn at(&mut self, tokens: impl ToTokens, message: impl std::fmt::Display) {
        self.push(syn::Error::new_spanned(tokens, message));
    }

    /// Adds a sentence about a place.
    pub(crate) fn at_span(&mut self, span: Span, message: impl std::fmt::Display) {
        self.push(syn::Error::new(span, message));
    }

    /// Adds an error that something else made.
    pub(crate) fn push(&mut self, error: syn::Error) {
        match &mut self.all {
            Some(all) => all.combine(error),
            None => self.all = Some(error),
        }
    }

    /// One `compile_error!` for each sentence.
    pub(crate) fn into_tokens(self) -> TokenStream {
        self.all.map_or_else(TokenStream::new, |all| all.into_compile_error())
    }
}
