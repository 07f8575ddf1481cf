use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::{Item, ItemTrait};

use crate::attr::ServiceArgs;
use crate::errors::Errors;
use crate::parse::Service;
use crate::stubs;

/// `#[service(attr)] item`: the trait, its stubs, and a `compile_error!` for each thing wrong.
///
/// The trait comes out even if there are errors, and so do the stubs of the methods that have none:
/// then the compiler's further messages are about the user's code and not about missing names.
pub(crate) fn expand(attr: TokenStream, item: TokenStream) -> TokenStream {
    let mut errors = Errors::default();
    let args = ServiceArgs::parse(attr, &mut errors);
    let mut output = match syn::parse2::<ItemTrait>(item.clone()) {
        Ok(mut item) => {
            let service = Service::parse(args, &mut item, &mut errors);
            let stubs = stubs::stubs(&service);
            quote!(#item #stubs)
        }
        Err(error) => {
            match syn::parse2::<Item>(item.clone()) {
                Ok(other) => errors.at(head(&other), "`#[service]` stands before a trait"),
                Err(_) => errors.push(error),
            }
            item
        }
    };
    output.extend(errors.into_tokens());
    output
}

/// What to underline of something that is not a trait: its name if it has one.
fn head(item: &Item) -> TokenStream {
    match item {
        Item::Struct(item) => item.ident.to_token_stream(),
        Item::Enum(item) => item.ident.to_token_stream(),
        Item::Fn(item) => item.sig.ident.to_token_stream(),
        Item::Mod(item) => item.ident.to_token_stream(),
        Item::Impl(item) => item.impl_token.to_token_stream(),
        other => other.to_token_stream(),
    }
}
