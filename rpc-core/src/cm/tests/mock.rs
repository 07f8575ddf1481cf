use std::any::Any;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, unbounded};

use crate::cm::poller::{Interest, Poller};
use crate::cm::*;
use crate::verbs::{Gid, GidType, Link, LinkLayer, Port, Psn, QpAddress, QpNum};
use crate::wire::ControlMessage;

/// No test waits longer; what passes comes by events, much sooner.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// A host whose core is the test.
pub(super) struct MockHost {
    boot_id: u128,
    name: &'static str,
    qps: AtomicU32,
    /// What the control thread asked for.
    pub opened: Receiver<OpenRequest>,
    opens: Sender<OpenRequest>,
    /// What reached the core.
    pub installed: Receiver<Installed>,
    installs: Sender<Installed>,
    /// Whether the core answers at once.
    pub answers: AtomicBool,
    /// Whether there is no memory for a QP.
    pub full: AtomicBool,
    /// What its servers offer.
    pub offers: std::sync::Mutex<Vec<Offer>>,
    /// Whether it has no device of RDMA.
    pub without_rdma: AtomicBool,
    /// What it says of its having none.
    pub lack: std::sync::Mutex<Option<String>>,
    /// QPs that are pending.
    pub pending: Arc<AtomicU32>,
    /// Held by the test to keep the control thread in `open`.
    pub gate: std::sync::Mutex<()>,
}

pub(super) struct Installed {
    pub established: Established,
    pub qp_num: u32,
    pub done: Option<InstallDone>,
}

impl Installed {
    /// The core's answer, which the host was told not to give at once.
    pub(super) fn answer(&mut self, result: Result<(), ConnectError>) {
        let done = self.done.take().expect("a core that has not answered");
        done(result);
    }
}

struct MockQp {
    num: u32,
    rdma: bool,
    peer: Option<QpAddress>,
    installs: Sender<Installed>,
    answers: bool,
    pending: Arc<AtomicU32>,
}

impl MockHost {
    pub(super) fn new(boot_id: u128, name: &'static str) -> Arc<Self> {
        let (opens, opened) = unbounded();
        let (installs, installed) = unbounded();
        Arc::new(Self {
            boot_id,
            name,
            qps: AtomicU32::new(100 * boot_id as u32),
            opened,
            opens,
            installed,
            installs,
            answers: AtomicBool::new(true),
            full: AtomicBool::new(false),
            offers: std::sync::Mutex::default(),
            without_rdma: AtomicBool::new(false),
            lack: std::sync::Mutex::default(),
            pending: Arc::default(),
            gate: std::sync::Mutex::new(()),
        })
    }

    /// The next connection that reaches the core.
    pub(super) fn next(&self) -> Installed {
        self.installed.recv_timeout(PATIENCE).expect("a connection reaches the core")
    }
}

impl Host for MockHost {
    fn hello(&self) -> LocalHello {
        LocalHello {
            boot_id: self.boot_id,
            name: self.name.into(),
            eager_bytes: 9216,
            message_bytes_max: 1 << 26,
        }
    }

    fn offers(&self, _: &DeviceChoice, _: Option<IpAddr>) -> Vec<Offer> {
        self.offers.lock().unwrap().clone()
    }

    fn lack(&self, _: &DeviceChoice) -> Option<String> {
        self.lack.lock().unwrap().clone()
    }

    fn open(&self, request: &OpenRequest) -> Result<Box<dyn PendingQp>, ConnectError> {
        self.opens.send(request.clone()).unwrap();
        let rdma = matches!(request.device, DeviceChoice::Rdma(_));
        if rdma && self.without_rdma.load(Ordering::SeqCst) {
            return Err(ConnectError::NoWindows { device: "mock0".into() });
        }
        drop(self.gate.lock().unwrap());
        if self.full.load(Ordering::SeqCst) {
            return Err(ConnectError::NoMemory { what: "2 receives of 9216 bytes".into() });
        }
        self.pending.fetch_add(1, Ordering::SeqCst);
        Ok(Box::new(MockQp {
            num: self.qps.fetch_add(1, Ordering::SeqCst),
            rdma,
            peer: None,
            installs: self.installs.clone(),
            answers: self.answers.load(Ordering::SeqCst),
            pending: Arc::clone(&self.pending),
        }))
    }
}

impl PendingQp for MockQp {
    fn address(&self) -> QpAddress {
        if self.rdma {
            QpAddress { link: Link::Ibv(PORT), ..address(self.num) }
        } else {
            address(self.num)
        }
    }

    fn connect(&mut self, peer: &QpAddress) -> Result<(), ConnectError> {
        self.peer = Some(peer.clone());
        Ok(())
    }

    fn install(self: Box<Self>, established: Established, done: InstallDone) {
        assert_eq!(self.peer.as_ref(), Some(&established.peer_address), "RTS comes before install");
        let done = if self.answers {
            done(Ok(()));
            None
        } else {
            Some(done)
        };
        let installed = Installed { established, qp_num: self.num, done };
        // A test that is over does not mind.
        let _ = self.installs.send(installed);
    }
}

impl Drop for MockQp {
    fn drop(&mut self) {
        self.pending.fetch_sub(1, Ordering::SeqCst);
    }
}

const PORT: Port = Port {
    link_layer: LinkLayer::Ethernet,
    gid: Gid([1; 16]),
    gid_type: GidType::RoceV2,
    lid: 0,
    pkey: 0xffff,
};

pub(super) fn address(num: u32) -> QpAddress {
    QpAddress {
        qp_num: QpNum(num),
        psn: Psn::new(num),
        mtu: 4096,
        max_rd_atomic: 16,
        max_dest_rd_atomic: 16,
        message_bytes_max: 1 << 30,
        link: Link::Soft { guid: 1, dial: None },
    }
}

pub(super) type Answer = Receiver<Result<(), ConnectFailure>>;

/// A connect request and where its answer arrives; the channel would show a second one.
pub(super) fn request(target: Target, timeout: Duration) -> (ConnectRequest, Answer) {
    let (answer, answered) = unbounded();
    let request = ConnectRequest {
        target,
        core: 3,
        deadline: Instant::now() + timeout,
        route: Arc::default(),
        context: Box::new("context"),
        done: Box::new(move |result| drop(answer.send(result))),
    };
    (request, answered)
}

pub(super) fn at(addr: SocketAddr) -> Target {
    Target::Address(Address::parse(&format!("auto://{addr}")).unwrap())
}

pub(super) fn connect(control: &Control, target: Target) -> Answer {
    let (request, answer) = request(target, PATIENCE);
    control.connect(request);
    answer
}

pub(super) fn succeeded(answer: &Answer) {
    if let Err(failure) = answer.recv_timeout(PATIENCE).expect("an answer") {
        panic!("{}", failure.error);
    }
    assert_answered_once(answer);
}

pub(super) fn failed(answer: &Answer) -> ConnectFailure {
    let failure = answer.recv_timeout(PATIENCE).expect("an answer").expect_err("a failure");
    assert_answered_once(answer);
    failure
}

/// A callback that was called is gone, and its sender with it.
pub(super) fn assert_answered_once(answer: &Answer) {
    assert!(answer.recv_timeout(PATIENCE).is_err_and(|error| error.is_disconnected()));
}

pub(super) fn listen(control: &Control, server: u64) -> SocketAddr {
    try_listen(control, "soft://127.0.0.1:0", server).unwrap()
}

pub(super) fn try_listen(
    control: &Control,
    address: &str,
    server: u64,
) -> Result<SocketAddr, ConnectError> {
    let (answer, answered) = unbounded();
    control.listen(ListenRequest {
        address: Address::parse(address).unwrap(),
        server,
        done: Box::new(move |result| drop(answer.send(result))),
    });
    answered.recv_timeout(PATIENCE).expect("an answer")
}

pub(super) fn context_is_back(context: Option<Box<dyn Any + Send>>) -> bool {
    context.is_some_and(|context| context.downcast_ref() == Some(&"context"))
}

/// Waits until the stream's descriptor tells something, and says whether it is the end.
pub(super) fn is_lost_now(stream: &ControlStream) -> bool {
    let poller = Poller::new().unwrap();
    poller.add(stream.fd(), 1, Interest::Read).unwrap();
    let mut keys = Vec::new();
    poller.wait(Some(PATIENCE), &mut keys).unwrap();
    assert_eq!(keys, [1], "the descriptor becomes readable");
    stream.is_lost()
}

/// A socket that says what a test wants.
pub(super) fn raw(to: SocketAddr) -> TcpStream {
    let socket = TcpStream::connect(to).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// Reads to the end; the refusal that was said last, if one was.
pub(super) fn refusal(socket: &mut impl std::io::Read) -> Option<String> {
    let mut bytes = Vec::new();
    let _ = socket.read_to_end(&mut bytes);
    let mut rest = bytes.as_slice();
    let mut refusal = None;
    while let Ok(Some(len)) = crate::wire::handshake::frame_len(rest) {
        let message = rest.get(..len)?;
        if let Ok(ControlMessage::Refused(refused)) = ControlMessage::decode(message) {
            refusal = Some(refused.text);
        }
        rest = &rest[len..];
    }
    refusal
}

pub(super) const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
