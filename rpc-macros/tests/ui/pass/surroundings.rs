//! No prelude, no warning allowed, everything documented, and the crate under another path.

#![deny(warnings, missing_docs, unused_qualifications, unreachable_pub)]
#![no_implicit_prelude]

/// The crate under another path.
pub mod mine {
    pub use ::rpc_core::*;
}

/// A message called as nothing should be.
#[derive(::std::clone::Clone, ::std::cmp::PartialEq, ::rpc_core::prost::Message)]
#[prost(prost_path = "::rpc_core::prost")]
pub struct Result {
    /// A number.
    #[prost(uint32, tag = "1")]
    pub number: u32,
}

/// Swaps.
#[::rpc_core::service(crate = crate::mine)]
pub trait Send {
    /// One for another.
    async fn drop(
        &self,
        request: mine::Request<Result>,
    ) -> ::std::result::Result<mine::Response<Result>, mine::Status>;

    /// Nothing for nothing.
    #[deprecated]
    async fn r#type(
        &self,
        request: mine::Request<()>,
    ) -> ::std::result::Result<mine::Response<()>, mine::Status>;
}

fn main() {
    let _ = SendServer::new(());
}
