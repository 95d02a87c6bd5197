//! The order of ops from several files: new before old.
//!
//! What is added takes traffic before anything that points to it changes, and what goes
//! leaves only when nothing points to it any more.

use crate::client::backends::ops::BackendOps;
use crate::wire::op::Op;

/// Ops by their place; the fields stand in the order in which they run.
#[derive(Debug, Default)]
pub(super) struct Phases {
    pub(super) backend_add: Vec<Op>,
    pub(super) server_change: Vec<Op>,
    pub(super) publish: Vec<Op>,
    pub(super) map: Vec<Op>,
    pub(super) cert: Vec<Op>,
    pub(super) crt_list: Vec<Op>,
    pub(super) map_del: Vec<Op>,
    pub(super) unpublish: Vec<Op>,
    pub(super) leave: Vec<Op>,
    pub(super) remove: Vec<Op>,
}

impl Phases {
    pub(super) fn backends(&mut self, ops: BackendOps) {
        self.backend_add.extend(ops.add);
        self.server_change.extend(ops.change);
        self.publish.extend(ops.publish);
        self.unpublish.extend(ops.unpublish);
        self.leave.extend(ops.leave);
        self.remove.extend(ops.remove);
    }

    pub(super) fn into_ops(self) -> Vec<Op> {
        [
            self.backend_add,
            self.server_change,
            self.publish,
            self.map,
            self.cert,
            self.crt_list,
            self.map_del,
            self.unpublish,
            self.leave,
            self.remove,
        ]
        .concat()
    }
}
