//! The master socket: `reload`, `show proc`, and commands for the worker behind it.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::cli::{Commands, Done};
use super::faults::ReloadFault;
use super::hub::{Hub, Reloaded};
use super::model::Version;
use super::reply::{Reply, Severity, unknown};
use super::worker::Worker;

/// Commands on the master.
pub(super) struct Master<'a> {
    pub(super) hub: &'a Hub,
}

impl Commands for Master<'_> {
    fn prompt(&self) -> &'static str {
        "master> "
    }

    /// Without a prompt too it stays until `reload`, `quit` or the client's end.
    fn stays(&self) -> bool {
        true
    }

    fn run(&mut self, words: &[String], payload: Option<&str>) -> Done {
        self.hub.note_master(&words.join(" "));
        let text: Vec<&str> = words.iter().map(String::as_str).collect();
        match text.as_slice() {
            ["reload", ..] => self.reload(),
            ["show", "proc", ..] => Done::Reply(self.processes()),
            ["show", "version", ..] => Done::Reply(Reply::Plain(self.hub.full_version.clone())),
            ["show", "cli", "level", ..] => Done::Reply(Reply::Plain("admin".to_owned())),
            [prefix, ..] if prefix.starts_with('@') => self.relay(prefix, words, payload),
            [first, ..] => {
                let reply = unknown(first, self.hub.version);
                // The master knows no severity.
                Done::Reply(Reply::Plain(reply.text(Severity::None)))
            }
            [] => Done::Reply(Reply::Silent),
        }
    }
}

impl Master<'_> {
    /// `@1 command`, each in a session of its own.
    fn relay(&self, prefix: &str, words: &[String], payload: Option<&str>) -> Done {
        let current = self.hub.current();
        let own = format!("@!{}", current.pid);
        if prefix != "@1" && prefix != own {
            return Done::Raw(format!(
                "Can't find the target PID matching the prefix '{prefix}'\n"
            ));
        }
        let mut worker = Worker {
            hub: self.hub,
            process: current,
        };
        match worker.run(words.get(1..).unwrap_or_default(), payload) {
            Done::Reply(reply) => Done::Reply(Reply::Plain(reply.text(Severity::None))),
            other => other,
        }
    }

    fn processes(&self) -> Reply {
        let (reloads, failed, former) = self.hub.counts();
        let version = &self.hub.full_version;
        let row = |pid: u32, kind: &str, reloads: &str| {
            format!(
                "{pid:<15} {kind:<15} {reloads:<15} {:<15} {version:<15}\n",
                "0d00h00m01s"
            )
        };
        let mut text = format!(
            "{:<15} {:<15} {:<15} {:<15} {:<15}\n",
            "#<PID>", "<type>", "<reloads>", "<uptime>", "<version>"
        );
        text.push_str(&row(
            self.hub.master_pid,
            "master",
            &format!("{reloads} [failed: {failed}]"),
        ));
        text.push_str("# workers\n");
        let worker = self.hub.current().pid;
        // After a refusal later branches file the worker that serves under the old ones.
        let serves = failed == 0 || self.hub.version == Version::V3_0;
        if serves {
            text.push_str(&row(worker, "worker", "0"));
        }
        if !serves || !former.is_empty() {
            text.push_str("# old workers\n");
        }
        if !serves {
            text.push_str(&row(worker, "worker", "1"));
        }
        for pid in former {
            text.push_str(&row(pid, "worker", "1"));
        }
        if self.hub.version == Version::V3_0 {
            text.push_str("# programs\n");
        }
        Reply::Plain(text)
    }

    fn reload(&self) -> Done {
        let hub = self.hub;
        let fault = hub.reload_fault();
        let taken = hub
            .reloading
            .compare_exchange(false, true, Ordering::SeqCst, Ordering::SeqCst);
        if taken.is_err() || fault == Some(ReloadFault::Busy) {
            if taken.is_ok() {
                hub.reloading.store(false, Ordering::SeqCst);
            }
            return match hub.version {
                // It takes the connection and resets it.
                Version::V3_0 => Done::Close,
                Version::V3_2 | Version::V3_4 => last(
                    "Success=0\n--\nAnother reload is still in progress.\n".to_owned(),
                    false,
                ),
            };
        }
        let done = self.carry_out(fault);
        hub.reloading.store(false, Ordering::SeqCst);
        done
    }

    fn carry_out(&self, fault: Option<ReloadFault>) -> Done {
        let hub = self.hub;
        match &fault {
            Some(ReloadFault::Hang) if !hub.hang() => return Done::Close,
            Some(ReloadFault::Slow(time)) if !hub.pause(Duration::from_millis(*time)) => {
                return Done::Close;
            }
            Some(ReloadFault::Close) => return Done::Close,
            Some(ReloadFault::Die) => {
                hub.die();
                return Done::Close;
            }
            Some(_) | None => {}
        }
        let reloaded = match &fault {
            Some(ReloadFault::Refuse(words)) => Reloaded::Refused {
                tried: hub.current().pid + 1,
                words: words.clone(),
            },
            Some(ReloadFault::NoNewWorker) => hub.reload(true),
            Some(_) | None => hub.reload(false),
        };
        let text = self.log(&reloaded);
        match fault {
            Some(ReloadFault::LoseVerdict) => Done::Close,
            Some(ReloadFault::Cut(bytes)) => {
                let cut = text.get(..bytes).unwrap_or(&text).to_owned();
                last(cut, false)
            }
            Some(ReloadFault::Bytewise) => last(text, true),
            Some(_) | None => last(text, false),
        }
    }

    /// The verdict and the start-up log, as the branch words it.
    fn log(&self, reloaded: &Reloaded) -> String {
        let (master, version) = (self.hub.master_pid, &self.hub.full_version);
        let greeting = |pid: u32| {
            format!(
                "[NOTICE]   ({pid}) : haproxy version is {version}\n[NOTICE]   ({pid}) : path to executable is /usr/sbin/haproxy\n"
            )
        };
        let alerts = |pid: u32, words: &str| {
            let one = |line: &str| format!("[ALERT]    ({pid}) : {line}\n");
            words.lines().map(one).collect::<String>()
        };
        match (reloaded, self.hub.version) {
            (Reloaded::Loaded { new, .. }, Version::V3_0) => format!(
                "Success=1\n--\n[NOTICE]   ({master}) : New worker ({new}) forked\n[NOTICE]   ({master}) : Loading success.\n\n"
            ),
            (Reloaded::Loaded { new, old }, Version::V3_2 | Version::V3_4) => format!(
                "Success=1\n--\n[NOTICE]   ({master}) : Initializing new worker ({new})\n[NOTICE]   ({master}) : Loading success.\n{}[WARNING]  ({master}) : Former worker ({old}) exited with code 0 (Exit)\n\n",
                greeting(master)
            ),
            (Reloaded::Refused { words, .. }, Version::V3_0) => format!(
                "Success=0\n--\n{}{}[ALERT]    ({master}) : config : Fatal errors found in configuration.\n[WARNING]  ({master}) : Loading failure!\n\n",
                greeting(master),
                alerts(master, words)
            ),
            (Reloaded::Refused { tried, words }, Version::V3_2 | Version::V3_4) => format!(
                "Success=0\n--\n[NOTICE]   ({master}) : Initializing new worker ({tried})\n{}{}[WARNING]  ({master}) : Failed to load worker ({tried}) exited with code 1 (Exit)\n\n",
                greeting(*tried),
                alerts(*tried, words)
            ),
        }
    }
}

fn last(text: String, slowly: bool) -> Done {
    Done::Last { text, slowly }
}
