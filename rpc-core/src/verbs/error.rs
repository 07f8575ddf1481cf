use std::io;

/// Why a control operation, or building a chain, failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VerbsError {
    /// The system refused.
    #[error("{operation} failed: {source}")]
    System {
        /// The verb.
        operation: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// The device has no more of this object, or the object is at its size.
    #[error("{what}: the limit of {max} is reached")]
    Limit {
        /// What there would be too much of.
        what: &'static str,
        /// How much there may be.
        max: u64,
    },
    /// The object's state does not allow this.
    #[error("{operation} is not possible: {why}")]
    State {
        /// The verb.
        operation: &'static str,
        /// What is wrong.
        why: &'static str,
    },
    /// The peer's address cannot be used.
    #[error("the peer's device address cannot be used: {0}")]
    Address(String),
    /// There is no RDMA device that could be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The system lets this user pin no more memory.
    #[error(
        "registering {bytes} bytes with the RDMA device failed: the limit on locked memory \
         (RLIMIT_MEMLOCK) is {limit} bytes; raise it (`ulimit -l`, LimitMEMLOCK= of a systemd unit, \
         memlock in limits.conf), give the process CAP_IPC_LOCK, or give the runtime a smaller budget"
    )]
    MemoryLock {
        /// Bytes of the region.
        bytes: u64,
        /// The limit's value.
        limit: u64,
    },
    /// The CQ overran: it lost completions and can no longer be trusted.
    #[error("the completion queue overran: more work was outstanding than it has entries")]
    CqOverrun,
}

/// Why no RDMA device could be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The kernel has no user-space RDMA.
    #[error(
        "this kernel has no RDMA for programs; load its module (`modprobe ib_uverbs`) and that of \
         the network card, or use soft://"
    )]
    NoRdma,
    /// There is no device.
    #[error(
        "there is no RDMA device; load the driver of the network card, or make a software one \
         (`rdma link add rxe0 type rxe netdev eth0`), or use soft://"
    )]
    NoDevice,
    /// The kernel has devices that the library has no driver for.
    #[error(
        "the kernel has RDMA devices ({have}), but libibverbs has no driver for them; install the \
         Debian package ibverbs-providers, or rdma-core elsewhere"
    )]
    NoProvider {
        /// Their names.
        have: String,
    },
    /// The device that was asked for is not there.
    #[error("there is no RDMA device {name:?}; there are: {have}")]
    NoSuchDevice {
        /// The name that was asked for.
        name: String,
        /// The names there are.
        have: String,
    },
    /// The device file cannot be opened.
    #[error(
        "RDMA device {device:?} cannot be opened: this user may not open its file {file}; add the \
         user to the file's group, or change its mode by a udev rule"
    )]
    NoPermission {
        /// The device.
        device: String,
        /// Its file.
        file: String,
    },
    /// The device file is missing.
    #[error(
        "RDMA device {device:?} cannot be opened: its file {file} is missing; in a container, pass \
         /dev/infiniband into it"
    )]
    NoDeviceFile {
        /// The device.
        device: String,
        /// Its file.
        file: String,
    },
    /// The device has no such port.
    #[error("RDMA device {device:?} has no port {port}; it has {ports}")]
    NoSuchPort {
        /// The device.
        device: String,
        /// The port that was asked for.
        port: u8,
        /// How many ports there are, numbered from 1.
        ports: u8,
    },
    /// The port, or every port, has no link.
    #[error(
        "port {port} of RDMA device {device:?} is not active (its state is {state}); on Ethernet \
         bring its network interface up, on InfiniBand look for the subnet manager and the cable"
    )]
    PortDown {
        /// The device.
        device: String,
        /// The port.
        port: u8,
        /// Its state, in libibverbs' words.
        state: String,
    },
    /// No GID fits.
    #[error(
        "port {port} of RDMA device {device:?} has no GID for {wanted}; give its network interface \
         that address, connect by an address that it has, or choose a GID with gid_index="
    )]
    NoGid {
        /// The device.
        device: String,
        /// The port.
        port: u8,
        /// The address that was looked for.
        wanted: String,
    },
    /// The PKey table has no such entry.
    #[error("port {port} of RDMA device {device:?} has no PKey at index {index}")]
    NoPkey {
        /// The device.
        device: String,
        /// The port.
        port: u8,
        /// The entry that was asked for.
        index: u16,
    },
}
