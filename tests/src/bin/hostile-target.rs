//! The server that the tests of hostile peers attack; with a port as its argument, a client of that
//! server, to be killed in the middle of its calls.

fn main() {
    match std::env::args().nth(1).and_then(|port| port.parse().ok()) {
        Some(port) => rpc_tests::hostile::call_until_killed(port),
        None => rpc_tests::hostile::serve(),
    }
}
