//! Load whose every byte is checked: `soak serve`, `soak call`, and rounds of killed processes and cut
//! links. `soak` alone says how it is used.

fn main() -> std::process::ExitCode {
    rpc_tests::soak::main(std::env::args().skip(1).collect())
}
