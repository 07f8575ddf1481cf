//! A trait becomes a [`Service`]: what the stubs need to know, checked.

use proc_macro2::Span;
use quote::quote;
use syn::ext::IdentExt;
use syn::{
    Attribute, FnArg, GenericArgument, Ident, ItemTrait, Path, PathArguments, ReceiverKind,
    ReturnType, Safety, Signature, TraitItem, TraitItemFn, Type, TypeParamBound, Visibility,
};

use crate::attr::{MethodArgs, ServiceArgs};
use crate::errors::Errors;

const SHAPE: &str = "`async fn name(&self, request: Request<Q>) -> Result<Response<R>, Status>`";
const RESULT: &str = "`Result<Response<R>, Status>`";

/// A trait as the stubs see it.
pub(crate) struct Service {
    pub(crate) vis: Visibility,
    pub(crate) ident: Ident,
    /// The name on the wire.
    pub(crate) wire: String,
    /// Where `rpc_core` is.
    pub(crate) core: Path,
    pub(crate) docs: Vec<Attribute>,
    /// What the items beside the trait inherit: `cfg` and `deprecated`.
    pub(crate) inherited: Vec<Attribute>,
    pub(crate) methods: Vec<Method>,
    /// An error that has been told. What names the trait without parameters would be more of them.
    pub(crate) generic: bool,
}

/// A unary method.
pub(crate) struct Method {
    pub(crate) ident: Ident,
    /// The name on the wire, without the service.
    pub(crate) wire: String,
    wire_span: Span,
    pub(crate) request: Type,
    pub(crate) response: Type,
    pub(crate) idempotency: Option<Ident>,
    pub(crate) docs: Vec<Attribute>,
    pub(crate) deprecated: Option<Attribute>,
}

impl Service {
    /// Reads the trait, and leaves in it what plain Rust understands: helper attributes go, missing
    /// supertraits come, `async fn` becomes a `Send` future. Methods with errors are left out.
    pub(crate) fn parse(args: ServiceArgs, item: &mut ItemTrait, errors: &mut Errors) -> Self {
        check_trait(item, errors);
        let mut methods = Vec::new();
        for item in &mut item.items {
            match item {
                TraitItem::Fn(function) => methods.extend(method(function, &args.core, errors)),
                other => errors.at(other, format!("a service has methods only: {SHAPE}")),
            }
        }
        check_wire_names(&mut methods, errors);
        add_supertraits(item, &args.core);
        Self {
            vis: item.vis.clone(),
            wire: args.name.unwrap_or_else(|| item.ident.unraw().to_string()),
            ident: item.ident.clone(),
            core: args.core,
            docs: attributes(&item.attrs, "doc"),
            inherited: [attributes(&item.attrs, "cfg"), attributes(&item.attrs, "deprecated")]
                .concat(),
            methods,
            generic: !item.generics.params.is_empty(),
        }
    }
}

fn check_trait(item: &ItemTrait, errors: &mut Errors) {
    if let Some(unsafety) = &item.unsafety {
        errors.at(unsafety, "a service trait cannot be unsafe");
    }
    if !item.generics.params.is_empty() {
        errors.at(
            &item.generics,
            "a service trait cannot be generic: its methods are named on the wire, with one type of \
             message each; put the generic part into the type that implements it",
        );
    }
    if let Some(clause) = &item.generics.where_clause {
        errors.at(clause, "a service trait takes no where clause; supertraits may be listed");
    }
}

fn add_supertraits(item: &mut ItemTrait, core: &Path) {
    let named = |name: &str| {
        item.supertraits.iter().any(
            |bound| matches!(bound, TypeParamBound::Trait(bound) if last_is(&bound.path, name)),
        )
    };
    let (send, sync) = (named("Send"), named("Sync"));
    let forever = item
        .supertraits
        .iter()
        .any(|bound| matches!(bound, TypeParamBound::Lifetime(l) if l.ident == "static"));
    let mut add = |bound: TypeParamBound| item.supertraits.push(bound);
    if !send {
        add(syn::parse_quote!(#core::__private::v1::Send));
    }
    if !sync {
        add(syn::parse_quote!(#core::__private::v1::Sync));
    }
    if !forever {
        add(syn::parse_quote!('static));
    }
    item.colon_token.get_or_insert_with(Default::default);
}

fn check_wire_names(methods: &mut Vec<Method>, errors: &mut Errors) {
    let mut unique: Vec<Method> = Vec::new();
    for method in methods.drain(..) {
        if let Some(first) = unique.iter().find(|first| first.wire == method.wire) {
            let message = format!(
                "two methods are called `{}` on the wire; give one of them another `#[method(name = \"…\")]`",
                method.wire
            );
            errors.at_span(method.wire_span, message);
            errors.at_span(first.wire_span, "the other is here");
        } else {
            unique.push(method);
        }
    }
    *methods = unique;
}

/// One method; `None` if the stubs cannot have it.
fn method(function: &mut TraitItemFn, core: &Path, errors: &mut Errors) -> Option<Method> {
    let args = MethodArgs::take(&mut function.attrs, errors);
    if let Some(cfg) = function.attrs.iter().find(|attr| attr.path().is_ident("cfg")) {
        errors.at(
            cfg,
            "a method cannot depend on `cfg`: both ends must agree on what a service has; \
             put `cfg` on the whole trait, or leave the method out",
        );
    }
    let ident = function.sig.ident.clone();
    let reserved = ident == "new";
    if reserved {
        errors.at(
            &ident,
            "`new` makes the client, so no method can have that name; name it otherwise and keep the \
             name on the wire by `#[method(name = \"New\")]`",
        );
    }
    let request = inputs(&function.sig, errors);
    check_qualifiers(&function.sig, errors);
    let response = output(&function.sig, errors);
    if function.sig.asyncness.is_some() {
        make_send_future(function, core);
    }
    let (Some(request), Some(response), false) = (request, response, reserved) else {
        return None;
    };
    let (wire, wire_span) =
        args.name.unwrap_or_else(|| (upper_camel(&ident.unraw().to_string()), ident.span()));
    Some(Method {
        docs: attributes(&function.attrs, "doc"),
        deprecated: attributes(&function.attrs, "deprecated").pop(),
        idempotency: args.idempotency,
        ident,
        wire,
        wire_span,
        request,
        response,
    })
}

/// `async fn f(…) -> T` becomes `fn f(…) -> impl Future<Output = T> + Send`.
fn make_send_future(function: &mut TraitItemFn, core: &Path) {
    function.sig.asyncness = None;
    let output = match &function.sig.output {
        ReturnType::Default => quote!(()),
        ReturnType::Type(_, ty) => quote!(#ty),
    };
    function.sig.output = syn::parse_quote! {
        -> impl #core::__private::v1::Future<Output = #output> + #core::__private::v1::Send
    };
    if let Some(body) = &function.default {
        function.default = Some(syn::parse_quote!({ async move #body }));
    }
}

fn check_qualifiers(sig: &Signature, errors: &mut Errors) {
    if let Some(constness) = &sig.constness {
        errors.at(constness, format!("a method cannot be const; it is {SHAPE}"));
    }
    if !matches!(sig.safety, Safety::Default) {
        errors.at(&sig.safety, format!("a method cannot be safe or unsafe; it is {SHAPE}"));
    }
    if let Some(abi) = &sig.abi {
        errors.at(abi, format!("a method cannot have an ABI; it is {SHAPE}"));
    }
    if !sig.generics.params.is_empty() {
        errors.at(&sig.generics, format!("a method cannot be generic; it is {SHAPE}"));
    }
    if let Some(clause) = &sig.generics.where_clause {
        errors.at(clause, format!("a method takes no where clause; it is {SHAPE}"));
    }
}

/// The request's message type.
fn inputs(sig: &Signature, errors: &mut Errors) -> Option<Type> {
    let mut inputs = sig.inputs.iter().peekable();
    let mut ok = true;
    match inputs.peek() {
        Some(FnArg::Receiver(receiver)) => {
            if !matches!(receiver.kind, ReceiverKind::Reference(_, None, None)) {
                errors.at(receiver, "a method takes `&self`: calls run at the same time");
                ok = false;
            }
            inputs.next();
        }
        _ => {
            errors.at(
                &sig.ident,
                format!("the first argument is missing: `&self`; a method is {SHAPE}"),
            );
            ok = false;
        }
    }
    let Some(FnArg::Typed(argument)) = inputs.next() else {
        errors.at(
            &sig.ident,
            "the request is missing: a method takes `request: Request<Q>` after `&self`",
        );
        return None;
    };
    if let Some(extra) = inputs.next() {
        errors.at(extra, "a method takes one request; put what else it needs into the message");
        ok = false;
    }
    let Some(&[message]) = arguments_of(&argument.ty, "Request").as_deref() else {
        errors.at(&argument.ty, "the request's type is `Request<Q>`, where `Q` is a message");
        return None;
    };
    let streaming = is_streaming(message, errors);
    (ok && !streaming).then(|| message.clone())
}

/// The response's message type.
fn output(sig: &Signature, errors: &mut Errors) -> Option<Type> {
    let ReturnType::Type(_, ty) = &sig.output else {
        errors.at(&sig.ident, format!("the method returns nothing; it is {SHAPE}"));
        return None;
    };
    let result = if sig.asyncness.is_some() { ty } else { future_output(ty, errors)? };
    let Some(&[response, status]) = arguments_of(result, "Result").as_deref() else {
        errors.at(result, format!("a method returns {RESULT}"));
        return None;
    };
    if arguments_of(status, "Status").is_none() {
        errors.at(status, format!("the error of a method is `Status`: it returns {RESULT}"));
        return None;
    }
    let Some(&[message]) = arguments_of(response, "Response").as_deref() else {
        errors.at(response, format!("a method answers with `Response<R>`: it returns {RESULT}"));
        return None;
    };
    (!is_streaming(message, errors)).then(|| message.clone())
}

/// `T` of `impl Future<Output = T> + Send`.
fn future_output<'a>(ty: &'a Type, errors: &mut Errors) -> Option<&'a Type> {
    const FUTURE: &str = "a method is `async`, or returns `impl Future<Output = Result<Response<R>, Status>> + Send`";
    let Type::ImplTrait(future) = ty else {
        errors.at(ty, FUTURE);
        return None;
    };
    let paths = || {
        future.bounds.iter().filter_map(|bound| match bound {
            TypeParamBound::Trait(bound) => Some(&bound.path),
            _ => None,
        })
    };
    let output = paths().filter(|path| last_is(path, "Future")).find_map(future_argument);
    if output.is_none() {
        errors.at(ty, FUTURE);
    } else if !paths().any(|path| last_is(path, "Send")) {
        errors
            .at(ty, "the future of a method is `Send`, so that any core can run it: add `+ Send`");
        return None;
    }
    output
}

fn future_argument(path: &Path) -> Option<&Type> {
    let PathArguments::AngleBracketed(list) = &path.segments.last()?.arguments else {
        return None;
    };
    list.args.iter().find_map(|argument| match argument {
        GenericArgument::AssocType(assoc) if assoc.ident == "Output" => Some(&assoc.ty),
        _ => None,
    })
}

fn is_streaming(message: &Type, errors: &mut Errors) -> bool {
    let streaming = arguments_of(message, "Streaming").is_some();
    if streaming {
        errors.at(
            message,
            "streaming methods are not supported yet; a method has one request and one response",
        );
    }
    streaming
}

/// The types between the angle brackets, if the last name of the path is `name`.
fn arguments_of<'a>(ty: &'a Type, name: &str) -> Option<Vec<&'a Type>> {
    let path = match ty {
        Type::Group(group) => return arguments_of(&group.elem, name),
        Type::Paren(paren) => return arguments_of(&paren.elem, name),
        Type::Path(ty) if last_is(&ty.path, name) => &ty.path,
        _ => return None,
    };
    let PathArguments::AngleBracketed(list) = &path.segments.last()?.arguments else {
        return Some(Vec::new());
    };
    let types = list.args.iter().map(|argument| match argument {
        GenericArgument::Type(ty) => Some(ty),
        _ => None,
    });
    types.collect()
}

fn attributes(attrs: &[Attribute], name: &str) -> Vec<Attribute> {
    attrs.iter().filter(|attr| attr.path().is_ident(name)).cloned().collect()
}

fn last_is(path: &Path, name: &str) -> bool {
    path.segments.last().is_some_and(|segment| segment.ident.unraw() == name)
}

/// `get_range` → `GetRange`. An underscore at the end is no part of the name: `self_` is `Self`.
///
/// `rpc-codegen` leaves `name = …` out where this gives the name that the proto has.
pub(crate) fn upper_camel(snake: &str) -> String {
    let mut camel = String::with_capacity(snake.len());
    for word in snake.split('_') {
        let mut letters = word.chars();
        camel.extend(letters.next().map(|first| first.to_ascii_uppercase()));
        camel.extend(letters);
    }
    camel
}
