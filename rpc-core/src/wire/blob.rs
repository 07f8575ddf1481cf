//! How a QP is reached: what each side says of its device.

use std::fmt;

// Addresses as data. `core` has no sockets, so this layer stays free of I/O.
use core::net::{IpAddr, SocketAddr};

use super::error::{at_least, at_most};
use super::{DecodeError, Full, Reader, Writer};

/// The greatest QP number and PSN: both have 24 bits.
const BITS_24: u32 = 0x00ff_ffff;

/// Bytes of an MTU at least, that of InfiniBand's shortest.
pub const MTU_BYTES_MIN: u32 = 256;

/// Bytes of an MTU at most: verbs has 4096, a software device may have more.
pub const MTU_BYTES_MAX: u32 = 65_536;

macro_rules! numbered {
    ($(#[$doc:meta])* $name:ident { $($(#[$text:meta])+ $variant:ident = $number:literal,)* }) => {
        $(#[$doc])*
        #[non_exhaustive]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$text])+ $variant,)* }

        impl $name {
            /// Every one.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            pub(super) const fn to_u8(self) -> u8 {
                match self { $(Self::$variant => $number,)* }
            }

            pub(super) fn from_u8(field: &'static str, number: u8) -> Result<Self, DecodeError> {
                match number {
                    $($number => Ok(Self::$variant),)*
                    _ => Err(DecodeError::Unknown { field, value: u64::from(number) }),
                }
            }
        }
    };
}

numbered! {
    /// What a device is.
    DeviceKind {
        /// The software device.
        Soft = 1,
        /// A device of libibverbs.
        Ibv = 2,
    }
}

numbered! {
    /// What lies under a port.
    LinkLayer {
        /// Neither, or not known: a software device.
        Unspecified = 0,
        /// InfiniBand: paths go by LID.
        InfiniBand = 1,
        /// Ethernet: RoCE, paths go by GID.
        Ethernet = 2,
    }
}

numbered! {
    /// What a GID is.
    GidType {
        /// There is none.
        None = 0,
        /// InfiniBand.
        InfiniBand = 1,
        /// RoCE version 1.
        RoceV1 = 2,
        /// RoCE version 2.
        RoceV2 = 3,
    }
}

numbered! {
    /// How a side guards memory that its peers may READ.
    #[derive(Default)]
    WindowType {
        /// By its regions alone: an R_Key opens a whole region until the connection ends.
        #[default]
        None = 0,
        /// By windows of type 2, one for each range, closed when the range has been read.
        Type2 = 2,
    }
}

/// How links of a software device are joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SoftLink {
    /// The device's random name.
    pub guid: u64,
    /// Where its links are dialled; `None`: it dials, or both are in one process.
    pub dial: Option<SocketAddr>,
}

/// How one side's QP is reached.
// docs/wire-format.md section 4
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct AddressBlob {
    /// What its device is.
    pub kind: DeviceKind,
    /// What lies under its port.
    pub link_layer: LinkLayer,
    /// The QP's number, 24 bits.
    pub qp_num: u32,
    /// The first PSN it sends, 24 bits.
    pub psn: u32,
    /// Its GID; zeros if there is none.
    pub gid: [u8; 16],
    /// What the GID is.
    pub gid_type: GidType,
    /// Its LID; 0 if there is none.
    pub lid: u16,
    /// Its partition key.
    pub pkey: u16,
    /// Its active MTU in bytes, [`MTU_BYTES_MIN`] to [`MTU_BYTES_MAX`].
    pub mtu: u32,
    /// READs it may have outstanding.
    pub max_rd_atomic: u8,
    /// READs it serves at once.
    pub max_dest_rd_atomic: u8,
    /// The longest message its device takes; at least 1.
    pub message_bytes_max: u32,
    /// How it guards memory that the peer may READ.
    pub window: WindowType,
    /// Whether it accepts SEND_WITH_INV.
    pub remote_invalidate: bool,
    /// The boot id of its hello: blob and hello must come from one runtime.
    pub boot_id: u128,
    /// The connection's epoch.
    pub epoch: u32,
    /// The candidate of the accepting side's hello that the connecting side has chosen; 0: none was named.
    pub candidate: u8,
    /// The software device's link; there exactly if `kind` is [`DeviceKind::Soft`].
    pub soft: Option<SoftLink>,
}

const REMOTE_INVALIDATE: u8 = 1;

impl AddressBlob {
    /// A blob of a software device's QP, with nothing of a network adapter's.
    pub fn soft(qp_num: u32, psn: u32, mtu: u32, link: SoftLink) -> Self {
        Self {
            kind: DeviceKind::Soft,
            link_layer: LinkLayer::Unspecified,
            qp_num,
            psn,
            gid: [0; 16],
            gid_type: GidType::None,
            lid: 0,
            pkey: 0,
            mtu,
            max_rd_atomic: 0,
            max_dest_rd_atomic: 0,
            message_bytes_max: u32::MAX,
            window: WindowType::Type2,
            remote_invalidate: false,
            boot_id: 0,
            epoch: 0,
            candidate: 0,
            soft: Some(link),
        }
    }

    /// The rules that a blob keeps to.
    pub fn check(&self) -> Result<(), DecodeError> {
        at_most("blob QP number", u64::from(self.qp_num), u64::from(BITS_24))?;
        at_most("blob PSN", u64::from(self.psn), u64::from(BITS_24))?;
        at_least("blob MTU", u64::from(self.mtu), u64::from(MTU_BYTES_MIN))?;
        at_most("blob MTU", u64::from(self.mtu), u64::from(MTU_BYTES_MAX))?;
        at_least("blob longest message", u64::from(self.message_bytes_max), 1)?;
        if self.soft.is_some() != (self.kind == DeviceKind::Soft) {
            let rule = "belongs to a software device, and to no other";
            return Err(DecodeError::Invalid { field: "blob link", rule });
        }
        Ok(())
    }

    /// Reads what follows the prefix. A later version may write more, which is ignored.
    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let kind = DeviceKind::from_u8("blob device kind", reader.u8("blob device kind")?)?;
        let link_layer = LinkLayer::from_u8("blob link layer", reader.u8("blob link layer")?)?;
        let gid_type = GidType::from_u8("blob GID type", reader.u8("blob GID type")?)?;
        let window = WindowType::from_u8("blob window type", reader.u8("blob window type")?)?;
        let flags = reader.u8("blob flags")?;
        let family = reader.u8("blob dial family")?;
        let port = reader.u16("blob dial port")?;
        let (qp_num, psn) = (reader.u32("blob QP number")?, reader.u32("blob PSN")?);
        let gid = reader.array("blob GID")?;
        let (lid, pkey) = (reader.u16("blob LID")?, reader.u16("blob PKey")?);
        let mtu = reader.u32("blob MTU")?;
        let max_rd_atomic = reader.u8("blob max_rd_atomic")?;
        let max_dest_rd_atomic = reader.u8("blob max_dest_rd_atomic")?;
        let candidate = reader.u8("blob candidate")?;
        reader.reserved::<1>("blob")?;
        let epoch = reader.u32("blob epoch")?;
        let message_bytes_max = reader.u32("blob longest message")?;
        reader.reserved::<4>("blob")?;
        let boot_id = reader.u128("blob boot id")?;
        let guid = reader.u64("blob software device")?;
        let dial = dial(family, port, reader.array("blob dial address")?)?;
        let soft = match kind {
            DeviceKind::Soft => Some(SoftLink { guid, dial }),
            DeviceKind::Ibv => None,
        };
        let blob = Self {
            kind,
            link_layer,
            qp_num,
            psn,
            gid,
            gid_type,
            lid,
            pkey,
            mtu,
            max_rd_atomic,
            max_dest_rd_atomic,
            message_bytes_max,
            window,
            remote_invalidate: flags & REMOTE_INVALIDATE != 0,
            boot_id,
            epoch,
            candidate,
            soft,
        };
        blob.check()?;
        Ok(blob)
    }

    /// Writes what follows the prefix.
    pub(super) fn encode(&self, w: &mut Writer<'_>) -> Result<(), Full> {
        self.check().map_err(|_| Full)?;
        let (guid, dial) = self.soft.map_or((0, None), |soft| (soft.guid, soft.dial));
        let (family, port, ip) = dial_bytes(dial);
        w.u8(self.kind.to_u8())?;
        w.u8(self.link_layer.to_u8())?;
        w.u8(self.gid_type.to_u8())?;
        w.u8(self.window.to_u8())?;
        w.u8(if self.remote_invalidate { REMOTE_INVALIDATE } else { 0 })?;
        w.u8(family)?;
        w.u16(port)?;
        w.u32(self.qp_num)?;
        w.u32(self.psn)?;
        w.bytes(&self.gid)?;
        w.u16(self.lid)?;
        w.u16(self.pkey)?;
        w.u32(self.mtu)?;
        w.u8(self.max_rd_atomic)?;
        w.u8(self.max_dest_rd_atomic)?;
        w.u8(self.candidate)?;
        w.u8(0)?;
        w.u32(self.epoch)?;
        w.u32(self.message_bytes_max)?;
        w.u32(0)?;
        w.u128(self.boot_id)?;
        w.u64(guid)?;
        w.bytes(&ip)
    }
}

impl fmt::Debug for AddressBlob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Who knows QP number and PSN can forge packets; the rest tells what is wrong.
        f.debug_struct("AddressBlob")
            .field("kind", &self.kind)
            .field("link_layer", &self.link_layer)
            .field("gid_type", &self.gid_type)
            .field("gid", &format_args!("{:032x}", u128::from_be_bytes(self.gid)))
            .field("lid", &self.lid)
            .field("pkey", &self.pkey)
            .field("mtu", &self.mtu)
            .field("max_rd_atomic", &self.max_rd_atomic)
            .field("max_dest_rd_atomic", &self.max_dest_rd_atomic)
            .field("message_bytes_max", &self.message_bytes_max)
            .field("window", &self.window)
            .field("remote_invalidate", &self.remote_invalidate)
            .field("epoch", &self.epoch)
            .field("candidate", &self.candidate)
            .field("soft", &self.soft)
            .finish_non_exhaustive()
    }
}

/// An address whose IPv4 form fills the first four of its sixteen bytes.
fn dial(family: u8, port: u16, ip: [u8; 16]) -> Result<Option<SocketAddr>, DecodeError> {
    let [a, b, c, d, ..] = ip;
    let ip = match family {
        0 => return Ok(None),
        4 => IpAddr::from([a, b, c, d]),
        6 => IpAddr::from(ip),
        other => {
            let (field, value) = ("blob dial family", u64::from(other));
            return Err(DecodeError::Unknown { field, value });
        }
    };
    at_least("blob dial port", u64::from(port), 1)?;
    Ok(Some(SocketAddr::new(ip, port)))
}

fn dial_bytes(dial: Option<SocketAddr>) -> (u8, u16, [u8; 16]) {
    let Some(dial) = dial else {
        return (0, 0, [0; 16]);
    };
    match dial.ip() {
        IpAddr::V4(ip) => {
            let [a, b, c, d] = ip.octets();
            (4, dial.port(), [a, b, c, d, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])
        }
        IpAddr::V6(ip) => (6, dial.port(), ip.octets()),
    }
}
