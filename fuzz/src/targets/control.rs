//! Messages of the control connection: hello, address blob, refusal.

use rpc_core::wire::handshake::{CONTROL_BYTES_MAX, PREFIX_BYTES, frame_len};
use rpc_core::wire::{ControlMessage, Hello, Role};

use super::make::{self, says_what};
use crate::heap;
use crate::recipe::Recipe;

/// What a decoded message may own: a name or the text of a refusal.
const HEAP_BYTES_MAX: u64 = 256;

/// What a message may be longer when it is encoded again: the window type of a hello may be absent,
/// and is always written.
const ABSENT_BYTES: usize = 16;

pub(crate) fn run(input: &[u8]) {
    check(input);
    let mut r = Recipe::new(input);
    let message = make::control(&mut r);
    let mut bytes = message.encode().expect("a message within its bounds can be encoded");
    let decoded = ControlMessage::decode(&bytes).expect("what is encoded can be decoded");
    if let (ControlMessage::Refused(cut), ControlMessage::Refused(whole)) = (&decoded, &message) {
        assert!(cut.code == whole.code && whole.text.starts_with(&cut.text));
    } else {
        assert_eq!(decoded, message);
    }
    r.spoil(&mut bytes);
    if r.flag() {
        set_len(&mut bytes);
    }
    check(&bytes);
}

/// Makes the prefix's length that of the message, so that its inside is reached.
pub(crate) fn set_len(bytes: &mut [u8]) {
    let len = (bytes.len() as u32).to_le_bytes();
    if let Some(field) = bytes.get_mut(12..16) {
        field.copy_from_slice(&len);
    }
}

fn check(bytes: &[u8]) {
    let len = heap::nothing("finding a message's length", || frame_len(bytes));
    match len {
        Ok(None) => assert!(bytes.len() < PREFIX_BYTES),
        Ok(Some(len)) => assert!((PREFIX_BYTES..=CONTROL_BYTES_MAX).contains(&len)),
        Err(error) => says_what(&error),
    }
    // A prefix of the stream never says something else, only less.
    let begun = frame_len(&bytes[..bytes.len() / 2]);
    assert!(begun == len || begun == Ok(None) || len.is_err(), "{begun:?} and then {len:?}");
    let decoded = heap::at_most("decoding a control message", HEAP_BYTES_MAX, || {
        ControlMessage::decode(bytes)
    });
    let message = match decoded {
        Ok(message) => message,
        Err(error) => return says_what(&error),
    };
    assert_eq!(len, Ok(Some(bytes.len())), "a message was decoded that is not one");
    assert!(!format!("{message:?}").is_empty());
    let again = message.encode().expect("what was decoded can be encoded");
    assert!(again.len() <= bytes.len() + ABSENT_BYTES);
    assert_eq!(ControlMessage::decode(&again).as_ref(), Ok(&message));
    if let ControlMessage::Hello(hello) = &message {
        agree(hello);
    }
}

/// Both sides of a hello come to the same.
fn agree(theirs: &Hello) {
    let role = match theirs.role {
        Role::Connecting => Role::Accepting,
        Role::Accepting => Role::Connecting,
    };
    let ours = Hello::new(role, 1, [1; 32]);
    match (ours.negotiate(theirs), theirs.negotiate(&ours)) {
        (Ok(a), Ok(b)) => {
            assert_eq!(a, b);
            assert!(a.eager_bytes <= ours.eager_bytes && a.eager_bytes <= theirs.eager_bytes);
            assert!(a.message_bytes_max <= ours.message_bytes_max);
            assert!(ours.offered.has(a.features) && theirs.offered.has(a.features));
        }
        (Err(error), Err(_)) => assert!(!error.to_string().is_empty()),
        (a, b) => panic!("one side agrees and the other does not: {a:?}, {b:?}"),
    }
}
