//! Makes messages, client and server of `proto/greet.proto`.

fn main() -> Result<(), rpc_codegen::Error> {
    rpc_codegen::Builder::new().compile(&["proto/greet.proto"], &["proto"])
}
