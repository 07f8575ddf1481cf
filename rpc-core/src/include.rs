//! The macros that bring generated code into a crate.

/// Where a build script's files are, or what to do if there is no build script.
#[doc(hidden)]
#[macro_export]
macro_rules! __out_dir {
    () => {
        ::core::env!(
            "OUT_DIR",
            "there is no OUT_DIR: the crate needs a build.rs that calls `rpc_codegen::Builder::compile`"
        )
    };
}

/// Includes what `rpc-codegen` made of one protobuf package.
///
/// The argument is the package's name. Use it inside a module of its own:
///
/// ```text
/// pub mod kv {
///     rpc_core::include_proto!("kv.v1");
/// }
/// ```
///
/// The name is that of the `package` line in the `.proto`, and not that of the `.proto` file: `package
/// kv.v1;` is `"kv.v1"`. The macro includes the file of that name from the build script's `OUT_DIR`, so for
/// a package that is not there the compiler says `couldn't read …/kv.v2.rs`; the `.rs` files beside it are
/// the packages that there are. Files without a package are `"_"`. A package that refers to types of another
/// finds them only if both sit in the module tree that their names spell: for those, use
/// [`include_protos!`](crate::include_protos).
#[macro_export]
macro_rules! include_proto {
    ($package:literal) => {
        ::core::include!(::core::concat!($crate::__out_dir!(), "/", $package, ".rs"));
    };
}

/// Includes everything one call of `rpc_codegen::Builder::compile` made, as the tree of modules
/// that the package names spell: package `store.v1` becomes `store::v1` below the place of the call.
///
/// ```text
/// pub mod proto {
///     rpc_core::include_protos!();
/// }
/// use proto::store::v1::StoreClient;
/// ```
///
/// With an argument it includes the file named with `rpc_codegen::Builder::include_file`, for a
/// build script that compiles several sets of files.
#[macro_export]
macro_rules! include_protos {
    () => {
        $crate::include_protos!("rpc_protos.rs");
    };
    ($file:literal) => {
        ::core::include!(::core::concat!($crate::__out_dir!(), "/", $file));
    };
}

/// The descriptor set of everything one call of `rpc_codegen::Builder::compile` read, as bytes: an
/// encoded `google.protobuf.FileDescriptorSet`, imports first, without comments. For reflection, and
/// for programs that read messages they were not compiled with.
///
/// ```text
/// pub const DESCRIPTORS: &[u8] = rpc_core::include_file_descriptor_set!();
/// ```
///
/// With an argument it takes the set of the file named with `rpc_codegen::Builder::include_file`:
/// `"store.bin"` for `"store.rs"`.
#[macro_export]
macro_rules! include_file_descriptor_set {
    () => {
        $crate::include_file_descriptor_set!("rpc_protos.bin")
    };
    ($file:literal) => {
        ::core::include_bytes!(::core::concat!($crate::__out_dir!(), "/", $file))
    };
}
