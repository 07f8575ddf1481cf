use std::io::Write;
use std::net::TcpListener;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::mock::*;
use crate::Code;
use crate::cm::*;
use crate::wire::{ControlMessage, Hello};

/// Two runtimes and a server at one of them.
fn two() -> (std::sync::Arc<MockHost>, Control, std::sync::Arc<MockHost>, Control) {
    let (client, server) = (MockHost::new(1, "client"), MockHost::new(2, "server"));
    let client_control = ControlThread::start(client.clone()).unwrap();
    let server_control = ControlThread::start(server.clone()).unwrap();
    (client, client_control, server, server_control)
}

#[test]
fn both_cores_get_the_same_connection_over_tcp() {
    let (client, client_control, server, server_control) = two();
    let port = listen(&server_control, 9);
    succeeded(&connect(&client_control, at(port)));
    let (c, s) = (client.next(), server.next());
    let (ce, se) = (c.established, s.established);

    assert_eq!((ce.role, se.role), (Role::Connecting, Role::Accepting));
    assert_eq!((ce.epoch, ce.version), (se.epoch, se.version));
    assert_ne!(ce.epoch, 0);
    assert_eq!((ce.peer.name.as_str(), ce.peer.boot_id), ("server", 2));
    assert_eq!((se.peer.name.as_str(), se.peer.boot_id), ("client", 1));
    assert_eq!(ce.peer.remote_addr, Some(port));
    assert_eq!(ce.peer.local_addr, se.peer.remote_addr);
    assert_eq!(ce.peer_address, address(s.qp_num));
    assert_eq!(se.peer_address, address(c.qp_num));
    assert!(ce.confirm.peer_matches(&se.confirm.own) && se.confirm.peer_matches(&ce.confirm.own));
    assert_eq!((ce.server, se.server), (None, Some(9)));
    assert!(context_is_back(ce.context) && se.context.is_none());

    let asked = client.opened.try_recv().unwrap();
    assert_eq!((asked.core, asked.server, asked.in_process), (Some(3), None, false));
    let asked = server.opened.try_recv().unwrap();
    assert_eq!((asked.core, asked.server), (None, Some(9)));
    assert_eq!(asked.local_ip, Some(LOOPBACK));
}

#[test]
fn each_core_sees_when_the_other_lets_go_of_the_control_connection() {
    let (client, client_control, server, server_control) = two();
    let port = listen(&server_control, 9);
    let answers = [connect(&client_control, at(port)), connect(&client_control, at(port))];
    answers.iter().for_each(succeeded);
    // The cores may have got them in different orders.
    let mut servers = [server.next().established, server.next().established];
    servers.sort_by_key(|e| e.peer.remote_addr);
    let mut clients = [client.next().established, client.next().established];
    clients.sort_by_key(|e| e.peer.local_addr);
    let [first_server, second_server] = servers;
    let [first_client, second_client] = clients;

    assert!(!first_client.control.is_lost() && !second_server.control.is_lost());
    drop(first_server);
    assert!(is_lost_now(&first_client.control));
    assert!(!second_client.control.is_lost());
    drop(second_client);
    assert!(is_lost_now(&second_server.control));
}

#[test]
fn a_server_of_this_process_is_connected_to_without_a_port() {
    let host = MockHost::new(1, "both");
    let control = ControlThread::start(host.clone()).unwrap();
    succeeded(&connect(&control, Target::InProcess { server: 4 }));
    let (one, other) = (host.next(), host.next());
    let (c, s) = match one.established.role {
        Role::Connecting => (one.established, other.established),
        Role::Accepting => (other.established, one.established),
    };
    assert_eq!((c.server, s.server), (None, Some(4)));
    assert!(c.confirm.peer_matches(&s.confirm.own));
    assert_eq!((c.peer.remote_addr, s.peer.remote_addr), (None, None));
    assert!(host.opened.try_iter().all(|request| request.in_process && request.local_ip.is_none()));
    drop(s);
    assert!(is_lost_now(&c.control));
}

#[test]
fn a_name_is_resolved_and_each_of_its_addresses_tried() {
    let (_client, client_control, _server, server_control) = two();
    let port = listen(&server_control, 1).port();
    // localhost often has ::1 first, where nobody listens.
    let target = Target::Address(Address::parse(&format!("auto://localhost:{port}")).unwrap());
    succeeded(&connect(&client_control, target));
}

#[test]
fn the_peer_is_answered_only_when_the_core_has_posted_its_receives() {
    let (client, client_control, server, server_control) = two();
    server.answers.store(false, Ordering::SeqCst);
    let answer = connect(&client_control, at(listen(&server_control, 9)));
    let mut installed = server.next();
    assert!(answer.try_recv().is_err() && client.installed.try_recv().is_err());
    installed.answer(Ok(()));
    succeeded(&answer);
    assert_eq!(client.next().established.peer_address, address(installed.qp_num));
}

#[test]
fn a_core_that_cannot_back_the_receives_refuses_with_a_sentence() {
    let (_client, client_control, server, server_control) = two();
    server.answers.store(false, Ordering::SeqCst);
    let port = listen(&server_control, 9);
    let answer = connect(&client_control, at(port));
    server.next().answer(Err(ConnectError::NoMemory { what: "a slot".into() }));
    let failure = failed(&answer);
    assert_eq!(failure.error.code(), Code::ResourceExhausted);
    assert!(failure.error.to_string().contains("no memory for another"), "{}", failure.error);
    assert!(context_is_back(failure.context));

    server.full.store(true, Ordering::SeqCst);
    let failure = failed(&connect(&client_control, at(port)));
    assert_eq!(failure.error.code(), Code::ResourceExhausted);
    assert_eq!(server.pending.load(Ordering::SeqCst), 0, "no QP is left");
}

#[test]
fn a_connecting_core_that_cannot_take_the_qp_ends_the_servers_too() {
    let (client, client_control, server, server_control) = two();
    client.answers.store(false, Ordering::SeqCst);
    let answer = connect(&client_control, at(listen(&server_control, 9)));
    let mut installed = client.next();
    installed.answer(Err(ConnectError::NoMemory { what: "a slot".into() }));
    let failure = failed(&answer);
    assert!(matches!(failure.error, ConnectError::NoMemory { .. }));
    assert!(failure.context.is_none(), "the core has it");
    assert!(is_lost_now(&server.next().established.control));
}

#[test]
fn a_client_without_memory_says_so_to_nobody_but_its_caller() {
    let (client, client_control, server, server_control) = two();
    client.full.store(true, Ordering::SeqCst);
    let failure = failed(&connect(&client_control, at(listen(&server_control, 9))));
    assert!(matches!(failure.error, ConnectError::NoMemory { .. }), "{}", failure.error);
    assert!(server.opened.try_recv().is_err(), "the server makes no QP for it");
}

#[test]
fn nothing_listening_is_a_refusal_and_the_context_comes_back() {
    let (_client, control, ..) = two();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let failure = failed(&connect(&control, at(port)));
    // A socket that connects to its own port can meet itself, and is told by its role.
    let error = failure.error;
    assert!(
        matches!(error, ConnectError::Refused { to } if to == port)
            || matches!(error, ConnectError::Malformed { .. }),
        "{error}"
    );
    assert!(context_is_back(failure.context));
}

#[test]
fn mistakes_in_addresses_have_their_sentences() {
    let (_client, control, ..) = two();
    for (address, part) in [
        ("auto://name.invalid:1", "does not resolve"),
        ("auto://127.0.0.1:0", "port 0 names no server"),
    ] {
        let target = Target::Address(Address::parse(address).unwrap());
        let failure = failed(&connect(&control, target));
        assert!(failure.error.to_string().contains(part), "{}", failure.error);
    }
    if !cfg!(feature = "verbs") {
        let error = try_listen(&control, "rdma://127.0.0.1:0", 1).unwrap_err();
        assert!(error.to_string().contains("feature `verbs`"), "{error}");
    }
}

#[test]
fn a_port_in_use_is_named() {
    let (_client, one, _server, other) = two();
    let port = listen(&one, 1);
    let error = try_listen(&other, &format!("soft://{port}"), 2).unwrap_err();
    assert!(matches!(error, ConnectError::PortInUse { at } if at == port), "{error}");
}

/// A server that says `bytes` to whoever connects, and keeps what it is told.
fn saying(bytes: Vec<u8>) -> (std::net::SocketAddr, std::thread::JoinHandle<Option<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap();
    let server = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.write_all(&bytes).unwrap();
        refusal(&mut socket)
    });
    (port, server)
}

#[test]
fn another_kind_of_server_is_told_from_one_of_ours() {
    let (_client, control, ..) = two();
    let (port, server) = saying(b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec());
    let failure = failed(&connect(&control, at(port)));
    assert!(matches!(failure.error, ConnectError::NotThisProtocol), "{}", failure.error);
    server.join().unwrap();
}

#[test]
fn a_server_of_another_version_is_told_and_named() {
    let (_client, control, ..) = two();
    let hello = Hello { version_min: 2, version_max: 3, ..Hello::new(Role::Accepting, 1, [0; 32]) };
    let (port, server) = saying(ControlMessage::Hello(hello).encode().unwrap());
    let failure = failed(&connect(&control, at(port)));
    let sentence = failure.error.to_string();
    assert!(
        sentence.contains("speaks 1 to 1, the peer 2 to 3; upgrade this program"),
        "{sentence}"
    );
    assert!(server.join().unwrap().unwrap().contains("upgrade this side"));
}

#[test]
fn a_server_that_says_nothing_is_given_up_at_the_deadline() {
    let (_client, control, ..) = two();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (request, answer) = request(at(listener.local_addr().unwrap()), Duration::from_millis(50));
    control.connect(request);
    let failure = failed(&answer);
    assert_eq!(failure.error.code(), Code::DeadlineExceeded, "{}", failure.error);
    assert!(context_is_back(failure.context));
}

#[test]
fn a_deadline_that_has_passed_is_not_begun() {
    let (client, control, ..) = two();
    let (request, answer) = request(Target::InProcess { server: 1 }, Duration::ZERO);
    control.connect(request);
    assert!(matches!(failed(&answer).error, ConnectError::TimedOut { step: Step::Queue }));
    assert!(client.opened.try_recv().is_err());
}

#[test]
fn a_core_that_does_not_answer_costs_the_connection_its_deadline() {
    let (client, client_control, server, server_control) = two();
    client.answers.store(false, Ordering::SeqCst);
    let (request, answer) = request(at(listen(&server_control, 9)), Duration::from_secs(1));
    client_control.connect(request);
    let mut installed = client.next();
    let failure = failed(&answer);
    assert!(matches!(failure.error, ConnectError::TimedOut { step: Step::Install }));
    assert!(installed.established.control.is_lost(), "the core learns of it by its socket");
    assert!(is_lost_now(&server.next().established.control));
    // Too late, and harmless.
    installed.answer(Ok(()));
    succeeded(&connect(&server_control, Target::InProcess { server: 1 }));
}
