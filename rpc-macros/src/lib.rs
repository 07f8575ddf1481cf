//! The `#[service]` attribute: a Rust trait becomes client and server stubs.
//!
//! Users reach it as `rpc_core::service`, usually through the traits that `rpc-codegen` writes.

#![forbid(unsafe_code)]

use proc_macro::TokenStream;

mod attr;
mod errors;
mod expand;
mod parse;
mod stubs;
#[cfg(test)]
mod tests;

/// Turns a trait into client and server stubs.
///
/// ```text
/// /// Answers with what it was asked.
/// #[rpc_core::service(name = "echo.v1.Echo")]
/// pub trait Echo {
///     /// The same bytes.
///     #[method(idempotency = NoSideEffects)]
///     async fn echo(&self, request: Request<EchoRequest>) -> Result<Response<EchoResponse>, Status>;
/// }
/// ```
///
/// Beside the trait it puts `EchoClient<C = Channel>`, with one `async fn` for each method, and
/// `EchoServer<T>`, which serves any `T: Echo`. Messages are `prost` messages.
///
/// # The trait
///
/// It gets the supertraits `Send + Sync + 'static` if it does not say them. A method is
/// `async fn name(&self, request: Request<Q>) -> Result<Response<R>, Status>`, or the same with
/// `-> impl Future<Output = Result<Response<R>, Status>> + Send`; the first form becomes the second,
/// so its future is `Send`, and implementations may write either. A method with a body is a default.
/// The types are known by their last names, so `rpc_core::Request<Q>` will do and a type alias will
/// not. `new` is the client's own; no method can be called that.
///
/// # Arguments of `#[service(…)]`
///
/// - `name = "package.Service"`: the name on the wire. Without it, the trait's name.
/// - `crate = path`: where `rpc_core` is, if not at `::rpc_core`.
///
/// # Arguments of `#[method(…)]`
///
/// - `name = "Method"`: the name on the wire. Without it, the function's in upper camel case:
///   `get_range` is `GetRange`.
/// - `idempotency = NoSideEffects`, or `Idempotent`: what may happen when it runs twice. Without it
///   nothing is assumed, and a call that may have run is never repeated.
#[proc_macro_attribute]
pub fn service(attr: TokenStream, item: TokenStream) -> TokenStream {
    expand::expand(attr.into(), item.into()).into()
}
