//! What a test makes the fake do: how it answers, what its HAProxy does, and what happens
//! behind its back. Each takes effect with the next request.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use crate::wire::manifest::{FileKind, Token};
use crate::wire::result::ApplyResult;

use super::pod::Content;
use super::{Break, FakeAgent, OpFault, Pacing, ReloadFault, path};

impl FakeAgent {
    /// The next applies are turned away with 503 `busy`, so many of them.
    pub fn turn_away(&self, applies: usize) {
        self.shared.lock().knobs.busy = applies;
    }

    /// Whether it has finished starting. While it has not, states wait and applies are
    /// turned away with 503 `startup`.
    pub fn set_ready(&self, ready: bool) {
        self.shared.lock().knobs.ready = ready;
        self.shared.ring();
    }

    /// How long every apply takes from now on.
    pub fn set_delay(&self, delay: Duration) {
        self.shared.lock().knobs.delay = delay;
    }

    /// The contract's version in the state.
    pub fn set_api_version(&self, version: u32) {
        self.shared.lock().knobs.api_version = Some(version);
    }

    /// The op kinds that it knows, as an older agent would; an apply with another one is
    /// answered with a reload.
    pub fn set_known_ops(&self, kinds: &[&str]) {
        let kinds = kinds.iter().map(|kind| (*kind).to_owned()).collect();
        self.shared.lock().knobs.known_ops = Some(kinds);
    }

    /// HAProxy's version from now on; the worker stays the same.
    pub fn set_haproxy_version(&self, version: &str) {
        self.shared.lock().pod.worker.set_version(version);
    }

    /// Every op of that kind is refused with these words: the apply goes on with a reload.
    pub fn reject_op(&self, kind: &str, words: &str) {
        self.set_op_fault(kind, Some(OpFault::Refuse(words.to_owned())));
    }

    /// Ops of that kind behave again.
    pub fn accept_op(&self, kind: &str) {
        self.set_op_fault(kind, None);
    }

    /// What ops of that kind meet.
    pub fn set_op_fault(&self, kind: &str, fault: Option<OpFault>) {
        let faults = &mut self.shared.lock().knobs.op_faults;
        match fault {
            Some(fault) => faults.insert(kind.to_owned(), fault),
            None => faults.remove(kind),
        };
    }

    /// HAProxy refuses the next reload with these words.
    pub fn fail_next_reload(&self, words: &str) {
        self.next_reload(ReloadFault::Refused(words.to_owned()));
    }

    /// What the next reload meets; several are met in turn.
    pub fn next_reload(&self, fault: ReloadFault) {
        self.shared.lock().knobs.reload_faults.push_back(fault);
    }

    /// Refusals that were remembered are forgotten, as after a minute.
    pub fn forget_refusals(&self) {
        self.shared.lock().pod.forget_refusals();
    }

    /// When a reload has to wait.
    pub fn set_pacing(&self, pacing: Pacing) {
        self.shared.lock().knobs.pacing = pacing;
        self.shared.ring();
    }

    /// With [`Pacing::AfterEach`]: the next reload does not have to wait.
    pub fn open_window(&self) {
        self.shared.lock().pod.last_reload = None;
    }

    /// A reload of what is applied is pending from now on: every apply comes back
    /// scheduled and only its in-place ops run, until [`FakeAgent::fire`].
    pub fn schedule_reload(&self) {
        let inner = &mut *self.shared.lock();
        let plan_id = inner.pod.applied.clone();
        self.shared.run(inner).put_off(plan_id, false);
        self.shared.ring();
    }

    /// The pending reload runs now. What becomes of it, as the state's `last_apply` will
    /// show it; `None` if there is none, or if HAProxy could not be asked.
    pub fn fire(&self) -> Option<ApplyResult> {
        let inner = &mut *self.shared.lock();
        self.shared.run(inner).fire()
    }

    /// Deletes wait in the queue from now on, as while connections are open, until they
    /// are let go.
    pub fn hold_deletes(&self, hold: bool) {
        let mut inner = self.shared.lock();
        inner.knobs.hold_deletes = hold;
        if !hold {
            inner.pod.worker.servers.clear();
            inner.pod.worker.backends.clear();
        }
    }

    /// The connection of the next apply breaks there; several break in turn.
    pub fn break_next(&self, place: Break) {
        self.shared.lock().knobs.breaks.push_back(place);
    }

    /// The next connections are closed as soon as they are made, so many of them.
    pub fn refuse_connections(&self, count: usize) {
        if let Some(relay) = &self.relay {
            relay.lines().turn_away(count);
        }
    }

    /// Ends every open connection, as a restart does.
    pub fn cut_connections(&self) {
        self.shared.lines.cut_all();
    }

    /// Another controller pushes this set behind the back of the one that is tested, and
    /// HAProxy loads it.
    ///
    /// # Errors
    /// A path that the contract does not allow.
    pub fn push_behind<'a>(
        &self,
        plan_id: &str,
        token: Token,
        files: impl IntoIterator<Item = (&'a str, FileKind, &'a [u8])>,
    ) -> io::Result<()> {
        let mut set = BTreeMap::new();
        for (name, kind, bytes) in files {
            set.insert(path(name)?, (kind, bytes.to_vec()));
        }
        self.shared.lock().pod.push_behind(plan_id, token, set);
        Ok(())
    }

    /// Something other than the agent writes an owned file, or removes it. Noticed by the
    /// next `verify=1` and by the next apply: the baseline is unknown then.
    ///
    /// # Errors
    /// A path that the contract does not allow.
    pub fn write_behind(&self, name: &str, bytes: Option<&[u8]>) -> io::Result<()> {
        let content = bytes.map(|bytes| Content::of(bytes.to_vec()));
        let path = path(name)?;
        self.shared.lock().pod.behind.insert(path, content);
        Ok(())
    }

    /// The agent does not know any more what is applied.
    pub fn lose_baseline(&self) {
        self.shared.lock().pod.forget_baseline();
    }

    /// HAProxy is restarted with the files that are there: the agent reloads the applied
    /// set once, or schedules that, to know again what runs.
    pub fn restart_haproxy(&self) {
        let inner = &mut *self.shared.lock();
        self.shared.run(inner).other_worker();
        self.shared.ring();
    }

    /// HAProxy's worker does not answer from now on, for that reason, until a reload works
    /// or it is [there again](FakeAgent::wake_worker). Only the state says so: what a
    /// reload meets is for [`FakeAgent::next_reload`].
    pub fn silence_worker(&self, reason: &str) {
        let reason = Some(reason.to_owned());
        self.shared.lock().pod.worker.set_answer(reason);
    }

    /// HAProxy's worker answers again.
    pub fn wake_worker(&self) {
        self.shared.lock().pod.worker.set_answer(None);
    }
}
