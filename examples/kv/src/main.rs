//! A key-value service.
fn main() {}
