//! `kv`: a key-value service, and the commands that call it.

fn main() -> std::process::ExitCode {
    kv::main()
}
