//! The worker's stats socket: which command does what.

use std::sync::Arc;
use std::time::Duration;

use super::cli::{Commands, Done};
use super::hub::{Hub, Process};
use super::model::Version;
use super::reply::{ERR, Reply, unknown};
use super::{backends, crt_lists, maps, servers, tls};

/// How often a `wait` looks.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// Commands on the worker that served when the connection was made.
pub(super) struct Worker<'a> {
    pub(super) hub: &'a Hub,
    pub(super) process: Arc<Process>,
}

impl Commands for Worker<'_> {
    fn prompt(&self) -> &'static str {
        "> "
    }

    fn stays(&self) -> bool {
        false
    }

    fn run(&mut self, words: &[String], payload: Option<&str>) -> Done {
        self.hub.note(&words.join(" "));
        let text: Vec<&str> = words.iter().map(String::as_str).collect();
        if let ["wait", ..] = text.as_slice() {
            return self.wait(words);
        }
        Done::Reply(self.command(words, &text, payload))
    }
}

impl Worker<'_> {
    fn command(&self, words: &[String], text: &[&str], payload: Option<&str>) -> Reply {
        let version = self.hub.version;
        let stopping = self.process.is_stopping();
        let model = &mut *self.process.model();
        servers::settle(model, self.hub.now());
        let from = |place: usize| words.get(place..).unwrap_or_default();
        match text {
            ["show", "version", ..] => Reply::info(self.hub.full_version.as_str()),
            ["show", "cli", "level", ..] => Reply::info("admin"),
            ["show", "info", rest @ ..] => self.info(rest.contains(&"float")),
            ["show", "map", ..] => maps::show(model, from(2)),
            ["show", "acl"] => Reply::Plain("# id (file) description\n".to_owned()),
            ["show", "servers", "state", ..] => servers::show_state(model, from(3)),
            ["show", "backend", ..] => backends::show(model),
            ["show", "stat", ..] => self.stat(&model.frontends),
            ["show", "ssl", "cert", ..] => tls::show_cert(model, from(3), version),
            ["show", "ssl", "ca-file", ..] => tls::show_ca(model, from(3)),
            ["show", "ssl", "crl-file", ..] => tls::show_crl(model),
            ["show", "ssl", "crt-list", ..] => crt_lists::show(model, from(3)),
            ["add", "map", ..] => maps::add(model, from(2), payload),
            ["set", "map", ..] => maps::set(model, from(2), version),
            ["del", "map", ..] => maps::del(model, from(2), version),
            ["prepare", "map", ..] => maps::prepare(model, from(2)),
            ["commit", "map", ..] => maps::commit(model, from(2)),
            ["clear", "map", ..] => maps::clear(model, from(2), version),
            ["add", "server", ..] => servers::add(model, from(2), version),
            ["del", "server", ..] => servers::del(model, from(2)),
            ["enable", "health" | "agent" | "server", ..] => {
                servers::switch(model, true, from(1), stopping)
            }
            ["disable", "health" | "agent" | "server", ..] => {
                servers::switch(model, false, from(1), stopping)
            }
            ["set", "server", ..] => servers::set(model, from(2), self.hub.now(), stopping),
            ["shutdown", "sessions", "server", ..] => servers::shutdown_sessions(model, from(3)),
            ["add", "backend", ..] if version >= Version::V3_4 => backends::add(model, from(2)),
            ["del", "backend", ..] if version >= Version::V3_4 => backends::del(model, from(2)),
            ["publish", "backend", ..] if version >= Version::V3_4 => {
                backends::publish(model, from(2), true)
            }
            ["unpublish", "backend", ..] if version >= Version::V3_4 => {
                backends::publish(model, from(2), false)
            }
            ["new", "ssl", "cert", ..] => tls::new_cert(model, from(3)),
            ["set", "ssl", "cert", ..] => tls::set_cert(model, from(3), payload),
            ["commit", "ssl", "cert", ..] => tls::commit_cert(model, from(3), version),
            ["abort", "ssl", "cert", ..] => tls::abort_cert(model, from(3)),
            ["del", "ssl", "cert", ..] => tls::del_cert(model, from(3)),
            ["new", "ssl", "ca-file", ..] => tls::new_ca(model, from(3)),
            ["set", "ssl", "ca-file", ..] => tls::set_ca(model, from(3), payload, false),
            ["add", "ssl", "ca-file", ..] => tls::set_ca(model, from(3), payload, true),
            ["commit", "ssl", "ca-file", ..] => tls::commit_ca(model, from(3), version),
            ["abort", "ssl", "ca-file", ..] => tls::abort_ca(model, from(3)),
            ["del", "ssl", "ca-file", ..] => tls::del_ca(model, from(3)),
            ["add", "ssl", "crt-list", ..] => crt_lists::add(model, from(3), payload),
            ["del", "ssl", "crt-list", ..] => crt_lists::del(model, from(3)),
            ["experimental-mode" | "expert-mode", ..] => Reply::Silent,
            ["echo", rest @ ..] if version >= Version::V3_2 => Reply::info(rest.join(" ")),
            [first, ..] => unknown(first, version),
            [] => Reply::Silent,
        }
    }

    /// Lines in HAProxy's order; those that nobody needs are left out.
    fn info(&self, float: bool) -> Reply {
        let Process { pid, started, .. } = &*self.process;
        let (seconds, micros) = (started / 1_000_000, started % 1_000_000);
        let start = match (float, micros) {
            (false, _) | (true, 0) => seconds.to_string(),
            (true, _) => {
                let text = format!("{seconds}.{micros:06}");
                text.trim_end_matches('0').to_owned()
            }
        };
        let version = &self.hub.full_version;
        let stopping = u8::from(self.process.is_stopping());
        Reply::Plain(format!(
            "Name: HAProxy\nVersion: {version}\nNbthread: 2\nNbproc: 1\nProcess_num: 1\nPid: {pid}\nUptime: 0d 0h00m01s\nUptime_sec: 1\nMaxconn: 9984\nCurrConns: 0\nIdle_pct: 100\nnode: fake\nStopping: {stopping}\nJobs: 3\nListeners: 2\nBuild info: {version}\nStart_time_sec: {start}\nTainted: 0\n"
        ))
    }

    /// Frontends and their connections, none so far.
    fn stat(&self, frontends: &[String]) -> Reply {
        let rows = frontends
            .iter()
            .map(|name| format!("{name},FRONTEND,0,0,0,0,0,\n"));
        Reply::Plain(format!(
            "# pxname,svname,scur,smax,slim,stot,conn_tot,\n{}",
            rows.collect::<String>()
        ))
    }

    /// `wait TIME [condition object]`.
    fn wait(&self, words: &[String]) -> Done {
        let Some(time) = words.get(1) else {
            return Done::Reply(Reply::err("Expects a duration in milliseconds."));
        };
        let Some(time) = duration(time) else {
            return Done::Reply(Reply::err(usage(self.hub.version)));
        };
        let reasons = self.hub.version >= Version::V3_4;
        let told = |what: &str, why: &str| match (reasons, why) {
            (true, why) if !why.is_empty() => Reply::err(format!("{what} {why}")),
            (_, _) => Reply::err(what),
        };
        let condition = words.get(2).map(String::as_str);
        let end = self.hub.now() + time;
        let cut = self.hub.now() + self.hub.stats_timeout;
        loop {
            let state = {
                let model = &mut *self.process.model();
                match condition {
                    None => Ok(Some("")),
                    Some("srv-removable") => servers::kept(model, words.get(3)),
                    Some("be-removable") if reasons => backends::kept(model, words.get(3)),
                    Some(_) => return Done::Reply(Reply::err(usage(self.hub.version))),
                }
            };
            let why = match state {
                Ok(None) => return Done::Reply(Reply::info("Done.")),
                Ok(Some(why)) if why.contains("still ha") || why.is_empty() => why.to_owned(),
                Ok(Some(why)) => return Done::Reply(told("Failed.", why)),
                Err(Reply::Tagged(ERR, why)) => return Done::Reply(told("Failed.", &why)),
                Err(other) => return Done::Reply(other),
            };
            let now = self.hub.now();
            if now >= cut {
                return Done::Last {
                    text: "[3]: Interrupted.\n\n> ".to_owned(),
                    slowly: false,
                };
            }
            if now >= end {
                return Done::Reply(match condition {
                    None => Reply::info("Done."),
                    Some(_) => told("Wait delay expired.", &why),
                });
            }
            if !self.hub.pause(LOOK_EVERY) {
                return Done::Close;
            }
        }
    }
}

/// Milliseconds, or a number with a unit.
fn duration(text: &str) -> Option<Duration> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let number: u64 = text.get(..digits)?.parse().ok()?;
    Some(match text.get(digits..)? {
        "us" => Duration::from_micros(number),
        "" | "ms" => Duration::from_millis(number),
        "s" => Duration::from_secs(number),
        "m" => Duration::from_secs(number.checked_mul(60)?),
        _ => return None,
    })
}

fn usage(version: Version) -> String {
    let backends = match version {
        Version::V3_0 | Version::V3_2 => "",
        Version::V3_4 => "\n    - be-removable <px> : wait for this backend to become removable.",
    };
    format!(
        "Usage: wait {{-h|<duration>}} [condition [args...]]\n  - '-h' displays this help\n  - <duration> is the maximum wait time, optionally suffixed by the unit among\n    'us', 'ms', 's', 'm', 'h', and 'd'. ; the default unit is milliseconds.\n  - <condition> indicates what to wait for, no longer than the specified\n    duration. Supported conditions are:\n    - <none> : by default, just sleep for the specified duration.\n    - srv-removable <px>/<sv> : wait for this server to become removable.{backends}"
    )
}
