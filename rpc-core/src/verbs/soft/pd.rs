use std::sync::Arc;

use super::device::{Shared, refuse_destroy};
use super::rule::Rule;
use super::table::Id;

/// A protection domain of a software device. The last clone deallocates it.
#[derive(Clone)]
pub struct SoftPd {
    handle: Arc<Handle>,
}

struct Handle {
    shared: Arc<Shared>,
    id: Id,
}

impl SoftPd {
    pub(super) fn new(shared: Arc<Shared>, id: Id) -> Self {
        Self { handle: Arc::new(Handle { shared, id }) }
    }

    /// Its place in the tables of `device`, if it belongs there.
    pub(super) fn id_in(&self, device: &Arc<Shared>) -> Option<Id> {
        Arc::ptr_eq(&self.handle.shared, device).then_some(self.handle.id)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        let env = &mut state.core.env;
        let unused = env.pds.get(self.id).is_none_or(|pd| pd.users == 0);
        if !env.rules.hold(Rule::DestroyOrder, unused) {
            refuse_destroy("protection domain", "objects still belong to it");
        } else {
            env.pds.remove(self.id);
        }
    }
}
