#[rpc_core::service]
pub struct Kv {
    field: u8,
}

#[rpc_core::service]
impl Kv {}

fn main() {}
