//! What generated code may name. Not for people: it changes without notice in a release that also
//! changes the generators, and a second version would stand beside the first.

/// The names that stubs of this generation use, and no others.
///
/// The standard library's are here too, so that an expansion means the same in a module that has a
/// message called `Result`, and in one without a prelude.
pub mod v1 {
    pub use core::clone::Clone;
    pub use core::fmt;
    pub use core::future::Future;
    pub use core::marker::{Send, Sync};
    pub use core::result::Result;
    pub use std::sync::Arc;

    pub use crate::server::{Call, Handler, Service};
    pub use crate::{
        Caller, Channel, Idempotency, IntoRequest, MethodDescriptor, MethodKind, Request, Response,
        Status,
    };
}
