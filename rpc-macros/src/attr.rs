//! The arguments of `#[service(…)]` and `#[method(…)]`.

use proc_macro2::{Span, TokenStream};
use syn::ext::IdentExt;
use syn::parse::{ParseStream, Parser};
use syn::{Attribute, Ident, LitStr, Meta, Path, Token};

use crate::errors::Errors;

/// What `#[service(…)]` says.
pub(crate) struct ServiceArgs {
    /// The name on the wire, if one is given.
    pub(crate) name: Option<String>,
    /// Where `rpc_core` is.
    pub(crate) core: Path,
}

/// What `#[method(…)]` says.
#[derive(Default)]
pub(crate) struct MethodArgs {
    /// The name on the wire and its place, if one is given.
    pub(crate) name: Option<(String, Span)>,
    /// A variant of `Idempotency`.
    pub(crate) idempotency: Option<Ident>,
}

/// One `key = value`; the value is not yet read.
struct Argument {
    key: Ident,
    value: TokenStream,
}

impl ServiceArgs {
    pub(crate) fn parse(tokens: TokenStream, errors: &mut Errors) -> Self {
        let mut args = Self { name: None, core: syn::parse_quote!(::rpc_core) };
        let mut seen = Vec::new();
        for Argument { key, value } in arguments(tokens, errors) {
            if !first_time(&key, &mut seen, errors) {
                continue;
            }
            match key.unraw().to_string().as_str() {
                "name" => {
                    if let Some((name, _)) = name_value(&key, value, is_service_name, errors) {
                        args.name = Some(name);
                    }
                }
                "crate" => match Path::parse_mod_style.parse2(value) {
                    Ok(path) => args.core = path,
                    Err(_) => errors.at(
                        &key,
                        "`crate` takes the path of the rpc_core crate, as in `crate = ::my_rpc`",
                    ),
                },
                other => errors.at(
                    &key,
                    format!(
                        "unknown argument `{other}`; accepted are `name = \"package.Service\"` and `crate = path`"
                    ),
                ),
            }
        }
        args
    }
}

impl MethodArgs {
    /// Takes the `#[method(…)]` attributes out of `attrs` and reads them.
    pub(crate) fn take(attrs: &mut Vec<Attribute>, errors: &mut Errors) -> Self {
        let mut args = Self::default();
        let mut seen = Vec::new();
        for attr in attrs.extract_if(.., |attr| attr.path().is_ident("method")) {
            let Meta::List(list) = attr.meta else {
                errors.at(
                    attr,
                    "`#[method]` takes arguments: `#[method(name = \"Method\", idempotency = NoSideEffects)]`",
                );
                continue;
            };
            for argument in arguments(list.tokens, errors) {
                if first_time(&argument.key, &mut seen, errors) {
                    args.set(argument, errors);
                }
            }
        }
        args
    }

    fn set(&mut self, Argument { key, value }: Argument, errors: &mut Errors) {
        match key.unraw().to_string().as_str() {
            "name" => self.name = name_value(&key, value, is_identifier, errors),
            "idempotency" => match syn::parse2::<Ident>(value.clone()) {
                Ok(variant)
                    if ["Unknown", "NoSideEffects", "Idempotent"]
                        .iter()
                        .any(|known| variant == known) =>
                {
                    self.idempotency = Some(variant);
                }
                _ => {
                    let message = "`idempotency` is one of `NoSideEffects`, `Idempotent` and `Unknown`";
                    if value.is_empty() {
                        errors.at(&key, message);
                    } else {
                        errors.at(value, message);
                    }
                }
            },
            other => errors.at(
                &key,
                format!(
                    "unknown argument `{other}`; accepted are `name = \"Method\"` and `idempotency = NoSideEffects`"
                ),
            ),
        }
    }
}

/// Splits `key = value, …`. What does not look like that is an error, and ends the list.
fn arguments(tokens: TokenStream, errors: &mut Errors) -> Vec<Argument> {
    let mut found = Vec::new();
    let parsed = (|input: ParseStream<'_>| {
        while !input.is_empty() {
            let key = Ident::parse_any(input)?;
            if !input.peek(Token![=]) {
                return Err(syn::Error::new(
                    key.span(),
                    format!("`{key}` has no value; write `{key} = …`"),
                ));
            }
            input.parse::<Token![=]>()?;
            let mut value = TokenStream::new();
            while !input.is_empty() && !input.peek(Token![,]) {
                value.extend([input.parse::<proc_macro2::TokenTree>()?]);
            }
            found.push(Argument { key, value });
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        Ok(())
    })
    .parse2(tokens);
    if let Err(error) = parsed {
        errors.push(error);
    }
    found
}

/// Notes a key; one that was there before is an error.
fn first_time(key: &Ident, seen: &mut Vec<Ident>, errors: &mut Errors) -> bool {
    if seen.contains(key) {
        errors.at(key, format!("`{key}` is given twice; leave one"));
        return false;
    }
    seen.push(key.clone());
    true
}

fn name_value(
    key: &Ident,
    value: TokenStream,
    valid: fn(&str) -> bool,
    errors: &mut Errors,
) -> Option<(String, Span)> {
    let Ok(literal) = syn::parse2::<LitStr>(value) else {
        errors.at(key, format!("`{key}` takes a string, as in `{key} = \"Get\"`"));
        return None;
    };
    if !valid(&literal.value()) {
        errors.at(
            &literal,
            "a name on the wire is of letters, digits and underscores, and begins with no digit; \
             a service's may be several of them joined by dots, as `kv.v1.Kv`",
        );
        return None;
    }
    Some((literal.value(), literal.span()))
}

fn is_service_name(name: &str) -> bool {
    name.split('.').all(is_identifier)
}

fn is_identifier(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(|first: char| first.is_ascii_digit())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}
