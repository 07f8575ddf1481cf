//! What is put beside the trait. It is thin on purpose: one table, and one call into rpc_core for
//! each method and end. All names are absolute, so a message may be called `Result` or `Send`.

use std::collections::HashSet;

use proc_macro2::{Literal, Span, TokenStream, TokenTree};
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::Ident;
use syn::ext::IdentExt;

use crate::parse::{Method, Service};

/// The names that the expansion chooses, none of which the user's types mention.
struct Names {
    client: Ident,
    server: Ident,
    /// Stands for `rpc_core::__private::v1` inside the block of implementations.
    rpc: Ident,
    caller: Ident,
    handler: Ident,
}

impl Names {
    fn new(service: &Service) -> Self {
        let mut taken = HashSet::from([service.ident.unraw().to_string()]);
        for method in &service.methods {
            collect_names(method.request.to_token_stream(), &mut taken);
            collect_names(method.response.to_token_stream(), &mut taken);
        }
        let free = |base: &str| {
            let mut name = base.to_owned();
            while taken.contains(&name) {
                name.push('_');
            }
            Ident::new(&name, Span::call_site())
        };
        let base = service.ident.unraw();
        Self {
            client: format_ident!("{base}Client", span = service.ident.span()),
            server: format_ident!("{base}Server", span = service.ident.span()),
            rpc: free("__rpc"),
            caller: free("C"),
            handler: free("T"),
        }
    }
}

fn collect_names(tokens: TokenStream, names: &mut HashSet<String>) {
    for token in tokens {
        match token {
            TokenTree::Ident(ident) => {
                names.insert(ident.unraw().to_string());
            }
            TokenTree::Group(group) => collect_names(group.stream(), names),
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
}

/// The client, the server and what they implement.
pub(crate) fn stubs(service: &Service) -> TokenStream {
    let names = Names::new(service);
    let structs = structs(service, &names);
    let table = table(service, &names);
    let client = client(service, &names);
    let server = server(service, &names);
    let dispatch = (!service.generic).then(|| dispatch(service, &names));
    let Service { core, .. } = service;
    let cfgs = service.inherited.iter().filter(|attr| attr.path().is_ident("cfg"));
    let rpc = &names.rpc;
    quote! {
        #structs

        #(#cfgs)*
        #[allow(deprecated, dead_code, unused_qualifications, clippy::wrong_self_convention)]
        const _: () = {
            use #core::__private::v1 as #rpc;
            #table
            #client
            #server
            #dispatch
        };
    }
}

fn structs(service: &Service, names: &Names) -> TokenStream {
    let Service { vis, ident, wire, core, docs, inherited, .. } = service;
    let Names { client, server, caller, handler, .. } = names;
    let client_doc = format!(" Calls the service `{wire}`.");
    let server_doc = format!(" Serves `{wire}` by an implementation of [`{}`].", ident.unraw());
    let more = (!docs.is_empty()).then(|| quote!(#[doc = ""] #(#docs)*));
    quote! {
        #[doc = #client_doc]
        #more
        #(#inherited)*
        #[allow(dead_code)]
        #vis struct #client<#caller = #core::__private::v1::Channel> {
            caller: #caller,
        }

        #[doc = #server_doc]
        #(#inherited)*
        #[allow(dead_code)]
        #vis struct #server<#handler> {
            handler: #core::__private::v1::Arc<#handler>,
        }
    }
}

fn table(service: &Service, Names { rpc, .. }: &Names) -> TokenStream {
    let entries = service.methods.iter().map(|method| {
        let path = format!("{}/{}", service.wire, method.wire);
        let idempotency = method
            .idempotency
            .as_ref()
            .map(|variant| quote!(.with_idempotency(#rpc::Idempotency::#variant)));
        quote!(#rpc::MethodDescriptor::new(#path, #rpc::MethodKind::Unary) #idempotency)
    });
    quote! {
        static METHODS: &[#rpc::MethodDescriptor] = &[#(#entries),*];
    }
}

fn client(service: &Service, names: &Names) -> TokenStream {
    let Service { vis, ident, .. } = service;
    let Names { client, rpc, caller, .. } = names;
    let calls = service
        .methods
        .iter()
        .enumerate()
        .map(|(index, method)| client_method(service, method, index, names));
    let name = format!("{}Client", ident.unraw());
    quote! {
        impl<#caller: #rpc::Caller> #client<#caller> {
            /// A client that makes its calls on `caller`: a channel, or one in layers.
            #vis fn new(caller: #caller) -> Self {
                Self { caller }
            }
            #(#calls)*
        }

        impl<#caller: #rpc::Clone> #rpc::Clone for #client<#caller> {
            fn clone(&self) -> Self {
                Self { caller: #rpc::Clone::clone(&self.caller) }
            }
        }

        impl<#caller> #rpc::fmt::Debug for #client<#caller> {
            fn fmt(&self, f: &mut #rpc::fmt::Formatter<'_>) -> #rpc::fmt::Result {
                f.write_str(#name)
            }
        }
    }
}

fn client_method(
    service: &Service,
    method: &Method,
    index: usize,
    Names { rpc, .. }: &Names,
) -> TokenStream {
    let vis = &service.vis;
    let Method { ident, wire, request, response, docs, deprecated, .. } = method;
    let wire_doc = format!(" Calls `{}/{wire}`.", service.wire);
    let gap = (!docs.is_empty()).then(|| quote!(#[doc = ""]));
    // Errors about the messages, as a type that is none, point at the method.
    let span = Span::call_site().located_at(ident.span());
    let index = Literal::usize_unsuffixed(index);
    quote_spanned! {span=>
        #(#docs)*
        #gap
        #[doc = #wire_doc]
        #deprecated
        #vis async fn #ident(
            &self,
            request: impl #rpc::IntoRequest<#request>,
        ) -> #rpc::Result<#rpc::Response<#response>, #rpc::Status> {
            self.caller.unary(&METHODS[#index], request.into_request()).await
        }
    }
}

fn server(service: &Service, names: &Names) -> TokenStream {
    let Service { vis, ident, .. } = service;
    let Names { server, rpc, handler, .. } = names;
    let name = format!("{}Server", ident.unraw());
    quote! {
        impl<#handler> #server<#handler> {
            /// Serves by `handler`.
            #vis fn new(handler: #handler) -> Self {
                Self::from_arc(#rpc::Arc::new(handler))
            }

            /// Serves by a handler that is shared with others.
            #vis fn from_arc(handler: #rpc::Arc<#handler>) -> Self {
                Self { handler }
            }
        }

        impl<#handler> #rpc::Clone for #server<#handler> {
            fn clone(&self) -> Self {
                Self { handler: #rpc::Clone::clone(&self.handler) }
            }
        }

        impl<#handler> #rpc::fmt::Debug for #server<#handler> {
            fn fmt(&self, f: &mut #rpc::fmt::Formatter<'_>) -> #rpc::fmt::Result {
                f.write_str(#name)
            }
        }
    }
}

fn dispatch(service: &Service, names: &Names) -> TokenStream {
    let Service { ident, wire, methods, .. } = service;
    let Names { server, rpc, handler, .. } = names;
    let arms = methods.iter().enumerate().map(|(index, method)| {
        let name = &method.ident;
        let span = Span::call_site().located_at(name.span());
        let index = Literal::usize_unsuffixed(index);
        quote_spanned! {span=>
            #index => call.unary(move |request| async move {
                <#handler as #ident>::#name(&handler, request).await
            }),
        }
    });
    // With no methods there is nothing to match, and nobody to hand the call to.
    let body = if methods.is_empty() {
        quote! {
            let _ = method;
            call.unimplemented()
        }
    } else {
        quote! {
            let handler = #rpc::Clone::clone(&self.handler);
            match method {
                #(#arms)*
                _ => call.unimplemented(),
            }
        }
    };
    quote! {
        impl<#handler: #ident> #rpc::Service for #server<#handler> {
            fn name(&self) -> &'static str {
                #wire
            }

            fn methods(&self) -> &'static [#rpc::MethodDescriptor] {
                METHODS
            }

            fn call(&self, method: usize, call: #rpc::Call) -> #rpc::Handler {
                #body
            }
        }
    }
}
