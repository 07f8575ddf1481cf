//! rrppcc: requests in UD SENDs, one thread that polls. Its time is that of its users' polling: whoever waits
//! for an answer drives the device.

use std::future::poll_fn;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use ::rrppcc::type_alias::{ReqType, RpcId};
use ::rrppcc::{MsgBuf, Nexus, Rpc, Session};

use crate::failure::Failure;
use crate::measure::{
    self, ANSWER_MAX, CONNECT_MAX, OUTSTANDING, SMALL_BYTES, Value, latency, rate,
};

const CLIENT: RpcId = 1;
const SERVER: RpcId = 2;
const ECHO: ReqType = 1;
/// The port of the device; soft-RoCE has one.
const DEVICE_PORT: u8 = 1;
/// Requests that a session has on the wire; what is more waits in it. So there are as many sessions as it
/// takes to have all on the wire.
const SESSION_WINDOW: usize = 8;
/// Polls between looks at the clock: one costs as much as a poll that finds nothing.
const POLLS_PER_LOOK: usize = 64;

/// Answers with as many bytes as were asked with. They are not copied: the crate gives bytes out by raw
/// pointers only. At 64 bytes that is a few nanoseconds in the crate's favour.
pub(crate) fn serve(device: &str, ip: IpAddr) -> Result<(), Failure> {
    let address = free_address(ip)?;
    let nexus = Nexus::new(address);
    let mut rpc = Rpc::new(&nexus, SERVER, device, DEVICE_PORT);
    rpc.set_handler(ECHO, |request| async move {
        let mut answer = request.pre_resp_buf();
        answer.set_len(request.req_buf().len());
        answer
    });
    println!("{address}");
    loop {
        rpc.progress();
    }
}

pub(crate) fn drive(
    device: &str,
    server: SocketAddr,
    time: Duration,
) -> Result<Vec<Value>, Failure> {
    let nexus = Nexus::new(free_address(own_ip(server)?)?);
    let rpc = Rpc::new(&nexus, CLIENT, device, DEVICE_PORT);
    let sessions = (0..OUTSTANDING.div_ceil(SESSION_WINDOW))
        .map(|_| connect(&rpc, server))
        .collect::<Result<Vec<_>, _>>()?;
    let mut buffers: Vec<_> = (0..OUTSTANDING).map(|_| Buffers::new(&rpc)).collect();
    let first = sessions.first().zip(buffers.first_mut());
    let (session, one) = first.ok_or_else(|| Failure::new("no session"))?;
    let mut values =
        latency(time, || poll_until(one.call(session), Instant::now() + ANSWER_MAX, "an answer")?)?;
    let calls = rate(time, |time| many(&sessions, &mut buffers, time))?;
    values.push((measure::rate_name(), calls));
    Ok(values)
}

/// A request, and where its answer goes.
struct Buffers {
    request: MsgBuf,
    answer: MsgBuf,
}

impl Buffers {
    fn new(rpc: &Rpc) -> Self {
        Self { request: rpc.alloc_msgbuf(SMALL_BYTES), answer: rpc.alloc_msgbuf(SMALL_BYTES) }
    }

    async fn call(&mut self, session: &Session<'_>) -> Result<(), Failure> {
        self.answer.set_len(0);
        session.request(ECHO, &self.request, &mut self.answer).await;
        match self.answer.len() {
            SMALL_BYTES => Ok(()),
            len => Err(Failure::new(format!("an answer of {len} bytes, not {SMALL_BYTES}"))),
        }
    }

    async fn calls(&mut self, session: &Session<'_>, until: Instant) -> Result<u64, Failure> {
        let mut calls = 0;
        while Instant::now() < until {
            self.call(session).await?;
            calls += 1;
        }
        Ok(calls)
    }
}

/// A call in each buffer, all at once and again, for `time`.
fn many(sessions: &[Session<'_>], buffers: &mut [Buffers], time: Duration) -> Result<u64, Failure> {
    let until = Instant::now() + time;
    let each = buffers.iter_mut().zip(sessions.iter().cycle());
    let mut loops: Vec<_> =
        each.map(|(buffers, session)| Box::pin(buffers.calls(session, until))).collect();
    let mut calls = 0;
    let all = poll_fn(|context| {
        let mut failed = None;
        loops.retain_mut(|one| match one.as_mut().poll(context) {
            Poll::Pending => true,
            Poll::Ready(Ok(made)) => {
                calls += made;
                false
            }
            Poll::Ready(Err(failure)) => {
                failed = Some(failure);
                false
            }
        });
        match failed {
            Some(failure) => Poll::Ready(Err(failure)),
            None if loops.is_empty() => Poll::Ready(Ok(())),
            None => Poll::Pending,
        }
    });
    poll_until(all, until + ANSWER_MAX, "the last answers")??;
    Ok(calls)
}

fn connect(rpc: &Rpc, server: SocketAddr) -> Result<Session<'_>, Failure> {
    let session = rpc.create_session(server, SERVER);
    if poll_until(session.connect(), Instant::now() + CONNECT_MAX, "a connection")? {
        return Ok(session);
    }
    Err(Failure::new(format!("the server at {server} refused a session")))
}

/// Polls without sleeping, as the crate is meant to be used. It repeats requests for ever when nobody answers.
fn poll_until<F: Future>(future: F, until: Instant, what: &str) -> Result<F::Output, Failure> {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        for _ in 0..POLLS_PER_LOOK {
            if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
                return Ok(output);
            }
        }
        if Instant::now() > until {
            return Err(Failure::new(format!("{what} did not come; is the server still there?")));
        }
    }
}

/// An address that nobody has: the crate wants a port, and cannot say which the system chose. Another
/// process may take it meanwhile; then the crate panics.
fn free_address(ip: IpAddr) -> Result<SocketAddr, Failure> {
    UdpSocket::bind((ip, 0))
        .and_then(|socket| socket.local_addr())
        .map_err(|error| Failure::new(format!("no UDP port at {ip}: {error}")))
}

/// This machine's address towards the server, which answers there.
fn own_ip(server: SocketAddr) -> Result<IpAddr, Failure> {
    let any: IpAddr = if server.is_ipv4() { [0, 0, 0, 0].into() } else { [0; 16].into() };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(server)?;
    Ok(socket.local_addr()?.ip())
}
