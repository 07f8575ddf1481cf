//! Generates messages and the service's trait from `proto/kv/v1/kv.proto`.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    rpc_codegen::Builder::new().compile(&["../../proto/kv/v1/kv.proto"], &["../../proto"])?;
    Ok(())
}
