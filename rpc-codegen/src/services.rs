//! Writing the trait of a service.

use std::cell::RefCell;
use std::rc::Rc;

use proc_macro2::{Ident, Span, TokenStream};
use prost_build::{Comments, Method, Service, ServiceGenerator};
use prost_types::method_options::IdempotencyLevel;
use quote::quote;
use syn::{Path, Type};

use crate::check::{RustNames, full_name};
use crate::errors::Problems;
use crate::names::default_wire_name;

/// Called by `prost-build` for each service, behind the messages of its file.
pub(crate) struct Traits {
    pub(crate) names: RustNames,
    /// Where `rpc_core` is.
    pub(crate) core: Path,
    /// True if `core` is not where `#[service]` looks by itself.
    pub(crate) core_moved: bool,
    pub(crate) default_stubs: bool,
    pub(crate) problems: Rc<RefCell<Problems>>,
}

impl ServiceGenerator for Traits {
    fn generate(&mut self, service: Service, buf: &mut String) {
        buf.push_str(&self.service(&service).to_string());
        buf.push('\n');
    }
}

impl Traits {
    fn service(&self, service: &Service) -> TokenStream {
        let Self { core, .. } = self;
        let full = full_name(&service.package, &service.proto_name);
        let wire = &full[1..];
        let docs = docs(&service.comments, &format!(" The service `{wire}`."));
        let deprecated = deprecated(service.options.deprecated());
        let ident = self.ident(&full, &service.name);
        let moved = self.core_moved.then(|| quote!(, crate = #core));
        let methods = service.methods.iter().map(|method| self.method(method, &full));
        // Clippy has views on what such methods take, and a service has no say in it.
        let odd = |name: &str| name.starts_with("from_") || name.starts_with("into_");
        let odd = (service.methods.iter().any(|method| odd(&method.name)))
            .then(|| quote!(#[allow(clippy::wrong_self_convention)]));
        quote! {
            #docs
            #deprecated
            #odd
            #[#core::service(name = #wire #moved)]
            pub trait #ident: ::core::marker::Send + ::core::marker::Sync + 'static {
                #(#methods)*
            }
        }
    }

    fn method(&self, method: &Method, service: &str) -> TokenStream {
        let Self { core, .. } = self;
        let full = format!("{service}.{}", method.proto_name);
        let path = format!("{}/{}", &service[1..], method.proto_name);
        let docs = docs(&method.comments, &format!(" The method `{path}`."));
        let deprecated = deprecated(method.options.deprecated());
        let ident = self.ident(&full, &method.name);
        let attribute = attribute(method, &ident);
        let request = self.message(&method.input_type, &full);
        let response = self.message(&method.output_type, &full);
        let (argument, body) = if self.default_stubs {
            let message = format!("{path} is not implemented by this server");
            let body = quote! {
                { ::core::result::Result::Err(#core::Status::unimplemented(#message)) }
            };
            (quote!(_request), body)
        } else {
            (quote!(request), quote!(;))
        };
        quote! {
            #docs
            #deprecated
            #attribute
            async fn #ident(&self, #argument: #core::Request<#request>)
                -> ::core::result::Result<#core::Response<#response>, #core::Status> #body
        }
    }

    /// The checked name; `fallback` for what was not checked, as its errors are being told.
    fn ident(&self, full: &str, fallback: &str) -> Ident {
        let name = self.names.get(full).unwrap_or(fallback);
        syn::parse_str(name).unwrap_or_else(|_| Ident::new("_invalid", Span::call_site()))
    }

    fn message(&self, path: &str, method: &str) -> Type {
        syn::parse_str(path).unwrap_or_else(|_| {
            self.problems.borrow_mut().push(format!(
                "{}: its message is `{path}` in Rust, which is no type; look at `Builder::extern_path`",
                &method[1..]
            ));
            syn::parse_quote!(())
        })
    }
}

/// What `#[service]` cannot know from the trait.
fn attribute(method: &Method, ident: &Ident) -> Option<TokenStream> {
    let name = (default_wire_name(&ident.to_string()) != method.proto_name)
        .then_some(&method.proto_name)
        .map(|name| quote!(name = #name));
    let idempotency = match method.options.idempotency_level() {
        IdempotencyLevel::IdempotencyUnknown => None,
        IdempotencyLevel::NoSideEffects => Some(quote!(idempotency = NoSideEffects)),
        IdempotencyLevel::Idempotent => Some(quote!(idempotency = Idempotent)),
    };
    let arguments: Vec<_> = name.into_iter().chain(idempotency).collect();
    (!arguments.is_empty()).then(|| quote!(#[method(#(#arguments),*)]))
}

/// The comment as documentation, or `otherwise`.
fn docs(comments: &Comments, otherwise: &str) -> TokenStream {
    let mut text = String::new();
    comments.append_with_indent(0, &mut text);
    // Detached comments come out as `//` and are about nothing in particular.
    let mut lines: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("///")).collect();
    if lines.iter().all(|line| line.trim().is_empty()) {
        lines = vec![otherwise];
    }
    quote!(#(#[doc = #lines])*)
}

fn deprecated(yes: bool) -> Option<TokenStream> {
    yes.then(|| quote!(#[deprecated]))
}
