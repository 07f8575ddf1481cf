//! For build scripts: `.proto` files become `prost` messages and one plain trait for each service.
//!
//! ```no_run
//! // In `main` of build.rs:
//! rpc_codegen::Builder::new().compile(&["proto/kv/v1/kv.proto"], &["proto"]).unwrap();
//! ```
//! ```text
//! // src/lib.rs
//! pub mod kv {
//!     rpc_core::include_proto!("kv.v1");
//! }
//! ```
//!
//! The crate that does this needs `rpc-core` as a dependency and `rpc-codegen` as a build
//! dependency, and nothing else: no `prost`, no `bytes`, no `protoc` and no C compiler.
//!
//! # What is generated
//!
//! One file for each protobuf package, named after it (`kv.v1.rs`), and one that has all of them as
//! a tree of modules (`rpc_protos.rs`). Beside it lies the descriptor set (`rpc_protos.bin`), for
//! reflection: `rpc_core::include_file_descriptor_set!()`. The Rust files hold
//!
//! - the messages and enums, as `prost-build` makes them; `bytes` fields are `bytes::Bytes`;
//! - for each service a trait that carries `#[rpc_core::service]`. That attribute adds the client
//!   and the server: a service `Kv` has the trait `Kv`, `KvClient` and `KvServer`.
//!
//! Names on the wire are those of the `.proto`, whatever the Rust names are. The output depends on
//! nothing but the input, and a file whose text did not change is not written.
//!
//! # When something is wrong
//!
//! The build fails once with everything that is wrong, each as `file:line:column: package.Service.Method: what`,
//! and with what to do about it. Streaming methods are among it until they are supported.

#![forbid(unsafe_code)]

mod builder;
mod check;
mod comments;
mod errors;
mod format;
mod names;
mod output;
mod services;
mod sources;

pub use builder::Builder;
pub use errors::Error;
