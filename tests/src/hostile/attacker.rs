use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use rpc_core::cm::{Handshake, LocalHello, Need, Outcome};
use rpc_core::verbs::{Link, QpAddress};
use rpc_core::wire::{
    Confirm, FrameFlags, FrameType, Full, RequestFrame, Segment, Segments, SendHeader, SendWriter,
    Writer,
};

use super::heard::Heard;
use super::raw;
use super::station::{self, RECEIVES, SLOT_BYTES, Seen, Station};
use crate::eventually;

/// How long anything that must happen may take, on a machine that is busy with other things.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A peer that shakes hands as it should and then says what it likes.
///
/// Its device works only while one of its methods runs: what is not polled does not read, answer or
/// grant anything.
pub struct Attacker {
    station: Box<dyn Station>,
    /// Its end of the control connection.
    pub control: TcpStream,
    /// The server's queue pair.
    pub peer: QpAddress,
    outcome: Outcome,
    /// What its next SEND says of itself.
    header: SendHeader,
    spent: u32,
    limit: u32,
    heard: Vec<Heard>,
    received_spent: u32,
    /// SENDs that the server may have under way.
    window: u32,
    last_call: u64,
    broken: Option<String>,
}

/// How a connection ended.
#[derive(Debug)]
pub struct End {
    /// What the server said last, if that came through.
    pub error: Option<String>,
}

/// A call to be made.
#[derive(Clone, Copy, Debug, Default)]
pub struct Call<'a> {
    /// The method's number.
    pub method: u32,
    /// Its name.
    pub name: Option<&'a str>,
    /// What is left of its time.
    pub timeout: Option<Duration>,
    /// A metadata block.
    pub metadata: &'a [u8],
    /// The message in order.
    pub segments: &'a [Segment],
    /// The bytes in the frame.
    pub inline: &'a [u8],
}

impl Attacker {
    /// Shakes hands, and says nothing on the queue pair yet.
    ///
    /// # Panics
    /// If the server does not want it.
    pub fn connect(port: u16) -> Self {
        Self::try_connect(port).expect("the server takes the connection")
    }

    /// The same; the reason if the server does not want it.
    ///
    /// # Errors
    /// What the server, or this side's handshake, says.
    ///
    /// # Panics
    /// If this side has no memory or descriptors.
    pub fn try_connect(port: u16) -> Result<Self, String> {
        // First, since the server waits for a hello only so long.
        let mut station = station::open();
        let mut control = raw::connect(port);
        let (outcome, peer) = shake(&mut control, &mut *station)?;
        control.set_nonblocking(true).expect("a socket option");
        Ok(Self {
            station,
            control,
            peer,
            header: SendHeader { epoch: outcome.agreed.epoch, ..SendHeader::default() },
            outcome,
            spent: 0,
            limit: 1,
            heard: Vec::new(),
            received_spent: 0,
            window: RECEIVES / 2,
            last_call: 0,
            broken: None,
        })
    }

    /// Says CONFIRM, and waits for the server's.
    ///
    /// # Panics
    /// If it does not come.
    pub fn confirm(&mut self) {
        let mac = self.outcome.confirm.own;
        self.say_confirm(mac);
        self.until("CONFIRM", |heard| *heard == Heard::Confirm);
    }

    /// Says CONFIRM with this code.
    pub fn say_confirm(&mut self, mac: [u8; 32]) {
        let confirm = Confirm { mac, padding: Confirm::padding_for(4352) };
        self.frame(FrameType::Confirm, 0, |w| confirm.encode(w));
    }

    /// The code that the server expects.
    pub fn mac(&self) -> [u8; 32] {
        self.outcome.confirm.own
    }

    /// Where the server's device takes links.
    ///
    /// # Panics
    /// If it takes none.
    pub fn link_port(&self) -> SocketAddr {
        let Link::Soft { dial: Some(dial), .. } = self.peer.link else {
            panic!("the server's device listens");
        };
        dial
    }

    /// SENDs that it grants the server at a time; none from the next SEND on that says so.
    pub fn grant(&mut self, window: u32) {
        self.window = window;
    }

    /// Sends one frame.
    pub fn frame(
        &mut self,
        kind: FrameType,
        call: u64,
        body: impl FnOnce(&mut Writer<'_>) -> Result<(), Full>,
    ) {
        self.send(|w| w.frame(kind, FrameFlags::NONE, call, body), |_| ());
    }

    /// Sends frames under a header that `change` may change, when the server has granted a credit.
    pub fn send(
        &mut self,
        frames: impl FnOnce(&mut SendWriter<'_>) -> Result<(), Full>,
        change: impl FnOnce(&mut SendHeader),
    ) {
        self.wait_for_credit();
        self.send_anyway(frames, change);
    }

    /// The same without a credit.
    ///
    /// # Panics
    /// If the frames do not fit.
    pub fn send_anyway(
        &mut self,
        frames: impl FnOnce(&mut SendWriter<'_>) -> Result<(), Full>,
        change: impl FnOnce(&mut SendHeader),
    ) {
        let bytes = self.compose(frames, change);
        self.spent += 1;
        self.post(&bytes);
    }

    /// Posts SENDs without a credit all at once: the device takes them up when it is polled next, so the
    /// server finds several of them before it can have granted any more.
    pub fn overdraw(
        &mut self,
        count: u32,
        frames: impl Fn(&mut SendWriter<'_>) -> Result<(), Full>,
    ) {
        for _ in 0..count {
            let bytes = self.compose(&frames, |_| ());
            self.spent += 1;
            if self.station.is_full() {
                self.post(&bytes);
            } else if let Err(error) = self.station.send(&bytes) {
                self.broken.get_or_insert(error);
                return;
            }
        }
    }

    /// The bytes of a SEND.
    ///
    /// # Panics
    /// If the frames do not fit.
    pub fn compose(
        &mut self,
        frames: impl FnOnce(&mut SendWriter<'_>) -> Result<(), Full>,
        change: impl FnOnce(&mut SendHeader),
    ) -> Vec<u8> {
        let mut bytes = vec![0; SLOT_BYTES as usize];
        let mut writer = SendWriter::new(&mut bytes).expect("a header fits");
        frames(&mut writer).expect("the frames fit");
        self.header.sequence += 1;
        self.header.limit = self.received_spent + self.window;
        self.header.flags = rpc_core::wire::SendFlags::WANTS_CREDIT;
        let mut header = self.header;
        change(&mut header);
        let len = writer.finish(&header).expect("a header fits");
        bytes.truncate(len);
        bytes
    }

    /// Sends these bytes as they are.
    ///
    /// # Panics
    /// If the send queue stays full.
    pub fn post(&mut self, bytes: &[u8]) {
        let has_room = eventually(PATIENCE, || {
            self.poll();
            !self.station.is_full() || self.broken.is_some()
        });
        assert!(has_room, "the send queue stays full");
        if self.broken.is_some() {
            return;
        }
        // A queue pair in ERR takes nothing more.
        if let Err(error) = self.station.send(bytes) {
            self.broken.get_or_insert(error);
        }
    }

    /// Begins a call under the next id.
    pub fn call(&mut self, call: &Call<'_>) -> u64 {
        self.last_call += 1;
        let id = self.last_call;
        self.call_as(id, call);
        id
    }

    /// Begins a call under this id.
    pub fn call_as(&mut self, id: u64, call: &Call<'_>) {
        self.frame(FrameType::Request, id, |w| call.frame().encode(w));
    }

    /// Waits for the end of a call.
    ///
    /// # Panics
    /// If it does not come.
    pub fn answer(&mut self, call: u64) -> Heard {
        self.until("the end of a call", |heard| heard.ends(call))
    }

    /// Waits until the server has said something.
    ///
    /// # Panics
    /// If it does not.
    pub fn until(&mut self, what: &str, holds: impl Fn(&Heard) -> bool) -> Heard {
        let mut found = None;
        eventually(PATIENCE, || {
            self.poll();
            self.renew();
            found = self.heard.iter().position(&holds);
            found.is_some() || self.broken.is_some()
        });
        match found {
            Some(at) => self.heard.remove(at),
            None => panic!("{what} did not come: {:?}, {:?}", self.broken, self.heard),
        }
    }

    /// Waits for the end of the connection.
    ///
    /// # Panics
    /// If it stays open.
    pub fn ends(&mut self) -> End {
        self.ends_for("what it did")
    }

    /// The same, for a named reason.
    ///
    /// # Panics
    /// If it stays open.
    pub fn ends_for(&mut self, what: &str) -> End {
        let mut open = true;
        eventually(PATIENCE, || {
            self.poll();
            open = self.is_open();
            !open
        });
        assert!(!open, "the server keeps the connection for {what}: {:?}", self.heard);
        let error = self.heard.iter().find_map(|heard| match heard {
            Heard::Error(text) => Some(text.clone()),
            _ => None,
        });
        End { error }
    }

    /// Whether the control connection is open.
    pub fn is_open(&mut self) -> bool {
        match self.control.read(&mut [0; 64]) {
            Ok(0) => false,
            Ok(_) => true,
            Err(error) => error.kind() == ErrorKind::WouldBlock,
        }
    }

    /// Lets the device work.
    ///
    /// # Panics
    /// If the server sends what cannot be decoded.
    pub fn poll(&mut self) {
        for seen in self.station.poll() {
            match seen {
                Seen::Message(bytes) => self.received(&bytes),
                Seen::Failure(failure) => {
                    self.broken.get_or_insert(failure);
                }
            }
        }
    }

    fn received(&mut self, bytes: &[u8]) {
        let (header, frames) = SendHeader::decode(bytes).expect("the server speaks the protocol");
        if header.limit.wrapping_sub(self.limit) as i32 > 0 {
            self.limit = header.limit;
        }
        self.header.received += 1;
        if !header.flags.has(rpc_core::wire::SendFlags::CREDIT_ONLY) {
            self.received_spent += 1;
        }
        for frame in frames {
            self.heard.push(Heard::new(&frame.expect("its frames are whole")));
        }
    }

    /// Grants again what the server has spent, if half of it is, and a credit says so.
    fn renew(&mut self) {
        let told = self.header.limit.wrapping_sub(self.received_spent);
        if told < self.window / 2 && self.credits() > 0 && self.broken.is_none() {
            let credit = |w: &mut SendWriter<'_>| {
                w.frame(FrameType::Credit, FrameFlags::NONE, 0, |_| Ok(()))
            };
            self.send_anyway(credit, |_| ());
        }
    }

    fn wait_for_credit(&mut self) {
        eventually(PATIENCE, || {
            self.poll();
            if !self.is_open() {
                self.broken.get_or_insert_with(|| "the server has closed".into());
            }
            self.credits() > 0 || self.broken.is_some()
        });
        assert!(self.credits() > 0 || self.broken.is_some(), "the server grants nothing");
    }

    /// SENDs that the server has granted and that are not spent.
    pub fn credits(&self) -> u32 {
        self.limit.saturating_sub(self.spent)
    }
}

impl std::fmt::Debug for Attacker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Attacker({} heard, broken: {:?})", self.heard.len(), self.broken)
    }
}

impl Call<'_> {
    /// Its frame.
    pub fn frame(&self) -> RequestFrame<'_> {
        RequestFrame {
            method: self.method,
            name: self.name,
            timeout: self.timeout,
            metadata: self.metadata,
            segments: Segments::new(self.segments),
            inline: self.inline,
            ..RequestFrame::default()
        }
    }
}

/// The handshake, as an honest client makes it.
fn shake(
    control: &mut TcpStream,
    station: &mut dyn Station,
) -> Result<(Outcome, QpAddress), String> {
    let local = LocalHello {
        boot_id: 99,
        name: "hostile".into(),
        eager_bytes: 9216,
        message_bytes_max: 64 << 20,
    };
    let remote = control.peer_addr().map_err(|error| error.to_string())?.ip();
    let mut shake = Handshake::connecting(local, [9; 32], 1234, Some(remote))
        .map_err(|error| error.to_string())?;
    let mut peer = None;
    loop {
        let out = shake.outbound().to_vec();
        control.write_all(&out).map_err(|error| error.to_string())?;
        shake.on_sent(out.len());
        match shake.need().map_err(|error| error.to_string())? {
            Need::Bytes => {
                let mut bytes = [0; 4096];
                let count = control.read(&mut bytes).map_err(|error| error.to_string())?;
                if count == 0 {
                    return Err("the server closed".into());
                }
                shake.on_bytes(&bytes[..count]).map_err(|error| error.to_string())?;
            }
            Need::Offers => return Err("a client offers nothing".into()),
            Need::Open => {
                shake.on_opened(station.address(), 0).map_err(|error| error.to_string())?;
            }
            Need::Connect(address) => {
                station.rise(&address).map_err(|error| error.to_string())?;
                peer = Some(address);
                shake.on_connected();
            }
            Need::Install => shake.on_installed().map_err(|error| error.to_string())?,
            Need::Done => {
                let outcome = shake.outcome().map_err(|error| error.to_string())?;
                return Ok((outcome, peer.expect("it was connected")));
            }
        }
    }
}
