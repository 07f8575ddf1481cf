use proptest::prelude::*;

use super::*;
use crate::verbs::{Link, Psn, QpNum};
use crate::wire::{CONTROL_BYTES_MAX, Features, SoftLink};

fn local(boot_id: u128, name: &str, eager_bytes: u32) -> LocalHello {
    LocalHello { boot_id, name: name.into(), eager_bytes, message_bytes_max: 1 << 20 }
}

fn address(qp_num: u32) -> QpAddress {
    QpAddress {
        qp_num: QpNum(qp_num),
        psn: Psn::new(qp_num + 7),
        mtu: 4096,
        max_rd_atomic: 16,
        max_dest_rd_atomic: 16,
        message_bytes_max: 1 << 30,
        link: Link::Soft { guid: u64::from(qp_num), dial: None },
    }
}

fn connecting() -> Handshake {
    Handshake::connecting(local(1, "client", 9216), [1; 32], 77, None).unwrap()
}

fn accepting() -> Handshake {
    Handshake::accepting(local(2, "server", 16_384), [2; 32], None)
}

/// Moves everything `from` wants to say into `to`, in pieces of `piece` bytes.
fn pump(from: &mut Handshake, to: &mut Handshake, piece: usize) -> Result<(), ConnectError> {
    while !from.outbound().is_empty() {
        let bytes = from.outbound()[..piece.min(from.outbound().len())].to_vec();
        from.on_sent(bytes.len());
        to.on_bytes(&bytes)?;
        if to.need()? == Need::Offers {
            to.on_offers(Vec::new())?;
        }
    }
    Ok(())
}

/// Both sides, up to where each has installed.
fn complete(piece: usize) -> (Handshake, Handshake) {
    let (mut c, mut a) = (connecting(), accepting());
    pump(&mut c, &mut a, piece).unwrap();
    pump(&mut a, &mut c, piece).unwrap();
    assert_eq!(c.need().unwrap(), Need::Open);
    assert_eq!(a.need().unwrap(), Need::Bytes, "a QP is made only for a peer that has made one");
    c.on_opened(address(10), 0).unwrap();
    pump(&mut c, &mut a, piece).unwrap();
    assert_eq!(a.need().unwrap(), Need::Open);
    a.on_opened(address(20), 0).unwrap();
    assert_eq!(a.need().unwrap(), Need::Connect(address(10)));
    a.on_connected();
    assert_eq!(a.need().unwrap(), Need::Install);
    assert!(a.outbound().is_empty(), "the blob waits until the core has posted its receives");
    a.on_installed().unwrap();
    pump(&mut a, &mut c, piece).unwrap();
    assert_eq!(a.need().unwrap(), Need::Done);
    assert_eq!(c.need().unwrap(), Need::Connect(address(20)));
    c.on_connected();
    c.on_installed().unwrap();
    assert_eq!(c.need().unwrap(), Need::Done);
    (c, a)
}

#[test]
fn both_sides_agree() {
    let (c, a) = complete(usize::MAX);
    let (c, a) = (c.outcome().unwrap(), a.outcome().unwrap());
    assert_eq!(c.agreed, a.agreed);
    assert_eq!(c.agreed.epoch, 77, "the epoch is the one that the connecting side drew");
    assert_eq!(c.agreed.eager_bytes, 9216);
    assert_eq!((c.peer_name.as_str(), c.peer_boot_id), ("server", 2));
    assert_eq!((a.peer_name.as_str(), a.peer_boot_id), ("client", 1));
    assert!(c.confirm.peer_matches(&a.confirm.own));
    assert!(a.confirm.peer_matches(&c.confirm.own));
}

#[test]
fn messages_that_arrive_byte_by_byte_are_the_same() {
    complete(1);
}

fn hello(role: Role) -> Hello {
    Hello { window: WindowType::Type2, ..Hello::new(role, 3, [3; 32]) }
}

fn feed(to: &mut Handshake, message: &ControlMessage) -> ConnectError {
    to.on_bytes(&message.encode().unwrap()).unwrap_err()
}

#[test]
fn a_version_that_does_not_fit_is_refused_with_both_ranges() {
    let newer = Hello { version_min: 2, version_max: 3, ..hello(Role::Connecting) };
    let mut a = accepting();
    let error = feed(&mut a, &ControlMessage::Hello(newer));
    assert!(matches!(error, ConnectError::Version { own_max: 1, peer_min: 2, peer_max: 3, .. }));

    a.refuse(&error);
    let mut c = connecting();
    let refused = c.on_bytes(a.outbound()).unwrap_err();
    assert!(refused.to_string().contains("you speak 2 to 3, this side 1 to 1"), "{refused}");
}

#[test]
fn a_feature_that_one_side_requires_and_the_other_lacks_is_named() {
    let demanding = Hello {
        offered: Features::CHECKSUM,
        required: Features::CHECKSUM,
        ..hello(Role::Connecting)
    };
    let error = feed(&mut accepting(), &ControlMessage::Hello(demanding));
    assert!(error.to_string().contains("(checksum)"), "{error}");
    assert!(error.to_string().contains("upgrade this program"), "{error}");
}

#[test]
fn what_is_out_of_turn_is_refused() {
    let blob = ControlMessage::Blob(to_blob(&address(1), 3, 0));
    let error = feed(&mut accepting(), &blob);
    assert!(error.to_string().contains("out of turn"), "{error}");

    let (mut c, mut a) = (connecting(), accepting());
    pump(&mut c, &mut a, usize::MAX).unwrap();
    let error = feed(&mut a, &ControlMessage::Hello(hello(Role::Connecting)));
    assert!(error.to_string().contains("out of turn"), "{error}");

    let two = ControlMessage::Hello(hello(Role::Connecting)).encode().unwrap().repeat(2);
    let error = accepting().on_bytes(&two).unwrap_err();
    assert!(error.to_string().contains("this side's turn"), "{error}");
}

#[test]
fn a_peer_that_gave_up_before_the_answer_is_not_called_malformed() {
    let mut bytes = ControlMessage::Hello(hello(Role::Connecting)).encode().unwrap();
    let (code, text) = ConnectError::TimedOut { step: Step::Hello }.refusal();
    let refusal = Refusal { code: code as u32, text };
    bytes.extend(ControlMessage::Refused(refusal).encode().unwrap());
    let error = accepting().on_bytes(&bytes).unwrap_err();
    assert!(matches!(&error, ConnectError::PeerRefused { code: Code::DeadlineExceeded, .. }));
    assert!(error.to_string().contains("timed out"), "{error}");
}

#[test]
fn two_sides_of_one_role_do_not_connect() {
    let error = feed(&mut connecting(), &ControlMessage::Hello(hello(Role::Connecting)));
    assert!(matches!(error, ConnectError::Malformed { .. }), "{error}");
}

#[test]
fn another_protocol_is_told_from_a_broken_peer_by_its_first_bytes() {
    for text in ["HTTP/1.1 400 Bad Request\r\n\r\n", "\n", "SSH-2.0-x\r\n", "PRI * HTTP/2.0"] {
        let error = accepting().on_bytes(text.as_bytes()).unwrap_err();
        assert!(matches!(error, ConnectError::NotThisProtocol), "{error}");
    }
}

#[test]
fn a_message_that_is_too_long_is_refused_by_its_prefix() {
    let mut bytes = ControlMessage::Hello(hello(Role::Connecting)).encode().unwrap();
    bytes[12..16].copy_from_slice(&(CONTROL_BYTES_MAX as u32 + 8).to_le_bytes());
    let error = accepting().on_bytes(&bytes[..16]).unwrap_err();
    assert!(error.to_string().contains("at most 4096"), "{error}");
}

#[test]
fn a_blob_of_another_connection_is_refused() {
    let (mut c, mut a) = (connecting(), accepting());
    pump(&mut c, &mut a, usize::MAX).unwrap();
    a.on_bytes(&ControlMessage::Blob(to_blob(&address(1), 1, 78)).encode().unwrap()).unwrap();
    a.on_opened(address(2), 0).unwrap();
    assert!(a.need().unwrap_err().to_string().contains("another connection"));
}

#[test]
fn a_soft_link_that_is_not_known_yet_is_dialled_at_the_control_connections_host() {
    let remote = "10.0.0.1".parse().unwrap();
    let mut c = Handshake::connecting(local(1, "", 9216), [1; 32], 7, Some(remote)).unwrap();
    let mut a = accepting();
    pump(&mut c, &mut a, usize::MAX).unwrap();
    pump(&mut a, &mut c, usize::MAX).unwrap();
    c.on_opened(address(1), 0).unwrap();
    let dial = Some("0.0.0.0:99".parse().unwrap());
    let blob = AddressBlob { soft: Some(SoftLink { guid: 5, dial }), ..to_blob(&address(2), 2, 7) };
    c.on_bytes(&ControlMessage::Blob(blob).encode().unwrap()).unwrap();
    let dial = Some("10.0.0.1:99".parse().unwrap());
    let expected = QpAddress { link: Link::Soft { guid: 5, dial }, ..address(2) };
    assert_eq!(c.need().unwrap(), Need::Connect(expected));
}

#[test]
fn a_refusal_keeps_its_code_and_shows_control_characters() {
    let refusal = Refusal { code: Code::ResourceExhausted as u32, text: "no \x1b[2J room".into() };
    let error = feed(&mut connecting(), &ControlMessage::Refused(refusal));
    assert_eq!(error.code(), Code::ResourceExhausted);
    assert!(error.to_string().ends_with("no \\u{1b}[2J room"), "{error}");

    let refusal = Refusal { code: 0, text: String::new() };
    let error = feed(&mut connecting(), &ControlMessage::Refused(refusal));
    assert_eq!(error.code(), Code::Unknown, "a refusal is never a success");
}

#[test]
fn a_name_that_is_too_long_is_cut_between_characters() {
    let long = Handshake::connecting(local(1, &"ö".repeat(40), 9216), [1; 32], 1, None).unwrap();
    assert_eq!(long.own.name, "ö".repeat(32));
    let odd = format!("x{}", "ö".repeat(40));
    let odd = Handshake::connecting(local(1, &odd, 9216), [1; 32], 1, None).unwrap();
    assert_eq!(odd.own.name.len(), 63);
}

#[test]
fn a_setting_that_breaks_the_protocol_is_this_programs_error() {
    let error = Handshake::connecting(local(1, "", 100), [1; 32], 1, None).err().unwrap();
    assert!(error.to_string().contains("this program's own hello"), "{error}");
}

proptest! {
    #[test]
    fn any_bytes_in_any_pieces_are_refused_or_waited_for_within_the_bound(
        begins_well: bool,
        cut in 0usize..200,
        bytes in proptest::collection::vec(any::<u8>(), 0..6000),
        piece in 1usize..CONTROL_BYTES_MAX,
    ) {
        let mut all = Vec::new();
        if begins_well {
            let hello = ControlMessage::Hello(hello(Role::Connecting)).encode().unwrap();
            all.extend_from_slice(&hello[..cut.min(hello.len())]);
        }
        all.extend(bytes);
        let mut a = accepting();
        for piece in all.chunks(piece) {
            if a.on_bytes(piece).is_err() {
                break;
            }
            prop_assert!(a.inbound.len() <= 2 * CONTROL_BYTES_MAX);
        }
    }

    #[test]
    fn one_flipped_bit_never_confirms_a_disagreement(bit in 0usize..8 * 200) {
        let (mut c, mut a) = (connecting(), accepting());
        let mut bytes = c.outbound().to_vec();
        let bit = bit % (8 * bytes.len());
        bytes[bit / 8] ^= 1 << (bit % 8);
        c.on_sent(bytes.len());
        let mut result = a.on_bytes(&bytes);
        while result.is_ok() && !(c.outbound().is_empty() && a.outbound().is_empty()) {
            result = pump(&mut a, &mut c, usize::MAX)
                .and_then(|()| go_on(&mut c, 10))
                .and_then(|()| pump(&mut c, &mut a, usize::MAX))
                .and_then(|()| go_on(&mut a, 20));
        }
        if result.is_ok() && is_done(&c) && is_done(&a) {
            let (c, a) = (c.outcome().unwrap(), a.outcome().unwrap());
            if c.confirm.peer_matches(&a.confirm.own) {
                prop_assert_eq!(c.agreed.epoch, a.agreed.epoch);
                prop_assert_eq!(c.agreed.version, a.agreed.version);
                prop_assert_eq!(a.peer_boot_id, 1);
            }
        }
    }
}

fn is_done(side: &Handshake) -> bool {
    matches!(side.need(), Ok(Need::Done))
}

/// Gives a side what it needs other than bytes.
fn go_on(side: &mut Handshake, qp_num: u32) -> Result<(), ConnectError> {
    loop {
        match side.need()? {
            Need::Bytes | Need::Done => return Ok(()),
            Need::Offers => side.on_offers(Vec::new())?,
            Need::Open => side.on_opened(address(qp_num), 0)?,
            Need::Connect(_) => side.on_connected(),
            Need::Install => side.on_installed()?,
        }
    }
}
