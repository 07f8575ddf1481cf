use std::error::Error;

use crate::cm::{ConnectError, Step};
use crate::verbs::VerbsError;
use crate::{Code, Status};

/// What mends that a server could not be reached, for a status of connecting to it or of calling it.
///
/// ```
/// let nobody = rpc_core::Status::unimplemented("no such method");
/// assert!(rpc_core::doctor::remedy(&nobody).contains("another service"));
/// ```
pub fn remedy(status: &Status) -> String {
    match status.source().and_then(<dyn Error>::downcast_ref::<ConnectError>) {
        Some(error) => of_connecting(error),
        None if status.code() == Code::Unimplemented => {
            "the address of the server that has this method: another service answers here".into()
        }
        None => "as the cause says".into(),
    }
}

/// Whether a connection failed before anything was said to the server, for want of a device here. What there is to
/// mend then is what [`Doctor::examine`](super::Doctor::examine) finds for the same address.
///
/// ```
/// let nobody = rpc_core::Status::unimplemented("no such method");
/// assert!(!rpc_core::doctor::failed_here(&nobody));
/// ```
pub fn failed_here(status: &Status) -> bool {
    let error = status.source().and_then(<dyn Error>::downcast_ref::<ConnectError>);
    error.is_some_and(|error| {
        matches!(
            error,
            ConnectError::VerbsFeatureMissing
                | ConnectError::Device(VerbsError::Open(_))
                | ConnectError::NoWindows { .. }
                | ConnectError::Memlock { .. }
        )
    })
}

fn of_connecting(error: &ConnectError) -> String {
    match error {
        ConnectError::Refused { to } => {
            format!("start the server on that host, at port {}; ss -ltn there lists what listens", to.port())
        }
        ConnectError::NotThisProtocol => "the port on which the RPC server says that it listens".into(),
        ConnectError::PeerRefused { of_device: true, .. } => "kv doctor on the server's host, whose log says more; \
             options such as ?gid_index= and ?device= must choose a GID of the server's network here"
            .into(),
        ConnectError::NotOffered { offers_rdma: false } => {
            "kv doctor on the server's host says what it lacks; auto:// in place of rdma:// does without RDMA".into()
        }
        ConnectError::NotOffered { offers_rdma: true } => "rdma:// or auto:// in place of soft://".into(),
        ConnectError::VerbsFeatureMissing => {
            "cargo build --release --features rpc-core/verbs; or auto:// in place of rdma://".into()
        }
        ConnectError::Device(VerbsError::Open(_)) => {
            "what mends the problem of the device or of the address; or soft:// in place of rdma://".into()
        }
        ConnectError::TimedOut { step: Step::Hello } => {
            "the port on which the RPC server says that it listens; if it is that one, its process stands still, or is stopped: ps \
             there"
                .into()
        }
        ConnectError::TimedOut { step: Step::Connect } | ConnectError::Unreachable { .. } => {
            "ping the host; ip route get its address; and let its firewall pass the port".into()
        }
        _ => "as the cause says".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::OpenError;

    #[test]
    fn a_connection_fails_here_for_want_of_a_device_alone() {
        let here = |error: ConnectError| failed_here(&Status::from(error));
        let name = "none9".to_owned();
        let none = OpenError::NoSuchDevice { name, have: "rxe0".to_owned() };
        assert!(here(VerbsError::from(none).into()));
        assert!(here(ConnectError::VerbsFeatureMissing));
        assert!(!here(ConnectError::Refused { to: ([10, 0, 0, 1], 7471).into() }));
        assert!(!here(ConnectError::NotOffered { offers_rdma: false }));
    }

    #[test]
    fn each_way_to_fail_has_a_remedy_of_its_own() {
        let of = |error: ConnectError| remedy(&Status::from(error));
        let to = ([10, 0, 0, 1], 7471).into();
        assert!(of(ConnectError::Refused { to }).contains("at port 7471"));
        assert!(of(ConnectError::NotOffered { offers_rdma: false }).contains("auto://"));
        let refused = ConnectError::PeerRefused {
            code: Code::Unavailable,
            of_device: true,
            message: "this side's device could not make the connection".to_owned(),
        };
        assert!(of(refused).contains("?gid_index="));
        assert!(of(ConnectError::TimedOut { step: Step::Connect }).contains("firewall"));
        assert!(
            !of(ConnectError::TimedOut { step: Step::Hello }).contains("firewall"),
            "TCP got through"
        );
        assert_eq!(of(ConnectError::ShutDown), "as the cause says");
    }
}
