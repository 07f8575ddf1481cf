use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::mock::*;
use crate::Code;
use crate::cm::*;

#[test]
fn shutdown_answers_every_request_once_wherever_it_stands() {
    let host = MockHost::new(1, "host");
    let control = ControlThread::start(host.clone()).unwrap();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut answers = Vec::new();

    // Waiting for a hello that never comes.
    answers.push(connect(&control, at(silent.local_addr().unwrap())));
    // Waiting for cores that never answer.
    host.answers.store(false, Ordering::SeqCst);
    answers.push(connect(&control, Target::InProcess { server: 1 }));
    let installed = host.next();
    // In the queue, behind a thread that is busy.
    let gate = host.gate.lock().unwrap();
    host.opened.try_iter().for_each(drop);
    answers.push(connect(&control, Target::InProcess { server: 2 }));
    host.opened.recv_timeout(PATIENCE).unwrap();
    answers.extend((0..10).map(|_| connect(&control, Target::InProcess { server: 3 })));

    let stopping = std::thread::spawn({
        let control = control.clone();
        move || control.shutdown()
    });
    drop(gate);
    stopping.join().unwrap();
    // After it.
    answers.push(connect(&control, Target::InProcess { server: 4 }));
    assert!(matches!(try_listen(&control, "soft://127.0.0.1:0", 1), Err(ConnectError::ShutDown)));

    for answer in &answers {
        // One that is answered by the other end of its pair is refused by it.
        let error = failed(answer).error;
        assert!(
            matches!(error, ConnectError::ShutDown)
                || matches!(error, ConnectError::PeerRefused { code: Code::Unavailable, .. }),
            "{error}"
        );
    }
    assert!(installed.established.control.is_lost());
    assert_eq!(Arc::strong_count(&host), 1, "the thread has let go of its host");
}

#[test]
fn dropping_the_last_handle_ends_the_thread_and_its_listeners() {
    let host = MockHost::new(1, "host");
    let control = ControlThread::start(host.clone()).unwrap();
    let port = listen(&control, 1);
    let other = control.clone();
    drop(control);
    assert!(std::net::TcpStream::connect(port).is_ok(), "another handle lives");
    drop(other);
    assert_eq!(Arc::strong_count(&host), 1);
    assert!(std::net::TcpStream::connect(port).is_err());
}

#[test]
fn the_last_handle_may_go_on_the_control_thread_itself() {
    let control = ControlThread::start(MockHost::new(1, "host")).unwrap();
    let (gone, went) = crossbeam_channel::bounded(1);
    let (handed, handle) = crossbeam_channel::bounded::<Control>(1);
    let (mut request, _answer) = request(Target::InProcess { server: 1 }, PATIENCE);
    request.done = Box::new(move |_| {
        drop(handle.recv());
        gone.send(()).unwrap();
    });
    control.connect(request);
    handed.send(control).unwrap();
    went.recv_timeout(PATIENCE).expect("the callback does not wait for its own thread");
}

#[test]
fn a_full_queue_answers_busy_at_once() {
    let host = MockHost::new(1, "host");
    let control = ControlThread::start(host.clone()).unwrap();
    let gate = host.gate.lock().unwrap();
    let first = connect(&control, Target::InProcess { server: 1 });
    host.opened.recv_timeout(PATIENCE).unwrap();
    let queued: Vec<_> =
        (0..QUEUE_MAX).map(|_| connect(&control, Target::InProcess { server: 1 })).collect();
    let failure = failed(&connect(&control, Target::InProcess { server: 1 }));
    assert!(matches!(failure.error, ConnectError::Busy { max: QUEUE_MAX }), "{}", failure.error);
    assert_eq!(failure.error.code(), Code::ResourceExhausted);
    assert!(context_is_back(failure.context));
    drop(gate);
    succeeded(&first);
    for answer in &queued {
        // Both ends of each are in this process, so not all of them are begun at once.
        if let Err(failure) = answer.recv_timeout(PATIENCE).expect("an answer") {
            let error = failure.error;
            assert!(matches!(error, ConnectError::TooManyHandshakes { .. }), "{error}");
        }
        assert_answered_once(answer);
    }
}

#[test]
fn unlisten_frees_the_port_and_refuses_who_is_shaking_hands() {
    let host = MockHost::new(2, "server");
    let control = ControlThread::start(host.clone()).unwrap();
    let client = ControlThread::start(MockHost::new(1, "client")).unwrap();
    let (port, kept) = (listen(&control, 1), listen(&control, 2));
    host.answers.store(false, Ordering::SeqCst);
    let answer = connect(&client, at(port));
    let installed = host.next();

    control.unlisten(1);
    let error = failed(&answer).error;
    assert_eq!(error.code(), Code::Unavailable, "{error}");
    assert!(error.to_string().contains("shutting down"), "{error}");
    assert!(installed.established.control.is_lost());
    assert_eq!(try_listen(&control, &format!("soft://{port}"), 3).unwrap(), port);

    host.answers.store(true, Ordering::SeqCst);
    succeeded(&connect(&client, at(kept)));
}

#[test]
fn a_core_that_drops_its_answer_counts_as_shut_down() {
    let host = MockHost::new(1, "host");
    let control = ControlThread::start(host.clone()).unwrap();
    host.answers.store(false, Ordering::SeqCst);
    let answer = connect(&control, Target::InProcess { server: 1 });
    drop(host.next());
    assert_eq!(failed(&answer).error.code(), Code::Unavailable);
}
