//! Command lines of the verbs that write and show overrides.

use std::ffi::{OsStr, OsString};
use std::time::Duration;

use super::super::args::{Typed, UsageError, Values};
use super::super::table::{Command, CtlFlag, DRAIN, MAINT, OVERRIDES, READY, WEIGHT};
use super::super::value::{self, Expected};
use super::output;
use crate::ctl::overrides::{Action, Overrides, Sights, StoreChoice};
use crate::http::client::Origin;
use crate::responder::key::{self, Prefix};
use crate::responder::kv::ConsulServer;
use crate::responder::note::{self, Note};
use crate::responder::value::Value;

/// What a command line of one of these verbs asks for; `None` for every other verb.
pub(super) fn parse(
    command: &'static Command<CtlFlag>,
    typed: &Typed<CtlFlag>,
    values: &Values<'_, CtlFlag>,
) -> Result<Option<Overrides>, UsageError> {
    let set = |value| Reader { typed, values }.set(value).map(Some);
    match command.name {
        name if name == DRAIN.name => set(Value::Drain),
        name if name == MAINT.name => set(Value::Maint),
        name if name == WEIGHT.name => {
            let percent = typed.operands.get(1).map(|word| word.to_string_lossy());
            set(percent_of(percent.as_deref().unwrap_or_default())?)
        }
        name if name == READY.name => Reader { typed, values }.ready().map(Some),
        name if name == OVERRIDES.name => {
            let action = Action::List {
                sweep: values.given(CtlFlag::Sweep),
            };
            Reader { typed, values }.task(action).map(Some)
        }
        _ => Ok(None),
    }
}

struct Reader<'a> {
    typed: &'a Typed<CtlFlag>,
    values: &'a Values<'a, CtlFlag>,
}

impl Reader<'_> {
    fn set(&self, value: Value) -> Result<Overrides, UsageError> {
        let keys = match value {
            // Its second word is the share.
            Value::Weight(_) => self.keys(1)?,
            Value::Ready | Value::Drain | Value::Maint => self.keys(usize::MAX)?,
        };
        self.task(Action::Set {
            keys,
            value,
            lasts: self.values.maybe(CtlFlag::For, lasting)?,
            note: self.note()?,
            wait: self.wait()?,
        })
    }

    fn ready(&self) -> Result<Overrides, UsageError> {
        let pin = self.values.given(CtlFlag::Pin);
        let ramp = self.values.given(CtlFlag::Ramp);
        if pin && ramp {
            return Err(together("pin", "ramp", "a ramp ends with the key deleted"));
        }
        if pin {
            return self.set(Value::Ready);
        }
        for (flag, name) in [
            (CtlFlag::For, "for"),
            (CtlFlag::Why, "why"),
            (CtlFlag::By, "by"),
        ] {
            if self.values.given(flag) {
                return Err(UsageError::Unusable {
                    problem: format!(
                        "--{name} needs --pin beside ready: without it the key is deleted, and nothing is left that could end or be explained"
                    ),
                });
            }
        }
        let hold = self.values.one(CtlFlag::RampHold, value::patience)?;
        self.task(Action::End {
            keys: self.keys(usize::MAX)?,
            ramp: ramp.then_some(hold),
            wait: self.wait()?,
        })
    }

    fn task(&self, action: Action) -> Result<Overrides, UsageError> {
        let store = self.store()?;
        let marker = self.values.maybe(CtlFlag::KvMarker, text)?;
        if let (StoreChoice::Directory(_), Some(_)) = (&store, &marker) {
            return Err(together(
                "kv-dir",
                "kv-marker",
                "a directory has a mark of its own",
            ));
        }
        let sights = self.sights()?;
        let waits = match &action {
            Action::Set { wait, .. } | Action::End { wait, .. } => wait.is_some(),
            Action::List { .. } => false,
        };
        if waits && sights.is_empty() {
            return Err(UsageError::Unusable {
                problem: "--wait needs a place to look at: --responder URL, or --haproxy-socket PATH for a key that is backend/server".into(),
            });
        }
        if let StoreChoice::Directory(_) = store {
            for key in self
                .typed
                .operands
                .iter()
                .map(|word| word.to_string_lossy())
            {
                key::file_name(&key).map_err(|why| bad_key(&key, &why.to_string()))?;
            }
        }
        Ok(Overrides {
            store,
            marker,
            output: self.values.one(CtlFlag::Output, output)?,
            sights,
            action,
        })
    }

    fn store(&self) -> Result<StoreChoice, UsageError> {
        let address = self.values.maybe(CtlFlag::ConsulAddr, text)?;
        if let Some(path) = self.values.maybe(CtlFlag::KvDir, value::path)? {
            if self.values.given(CtlFlag::ConsulAddr) {
                return Err(together("kv-dir", "consul-addr", "there is one store"));
            }
            return Ok(StoreChoice::Directory(path));
        }
        let server = ConsulServer::new(address.as_deref(), self.values.env).map_err(|error| {
            UsageError::Unusable {
                problem: error.to_string(),
            }
        })?;
        let prefix = self.values.one(CtlFlag::KvPrefix, |typed| {
            Prefix::new(value::utf8(typed)?).map_err(|why| format!("a prefix: {why}"))
        })?;
        Ok(StoreChoice::Consul { server, prefix })
    }

    fn sights(&self) -> Result<Sights, UsageError> {
        let takes = |key| self.values.command.flags.iter().any(|flag| flag.key == key);
        let responders = self.values.all(CtlFlag::Responder, |typed| {
            Origin::parse(value::utf8(typed)?).map_err(|error| {
                format!("the URL of a responder's monitoring, as http://127.0.0.1:9778: {error}")
            })
        })?;
        let haproxy = match takes(CtlFlag::HaproxySocket) {
            true => self.values.all(CtlFlag::HaproxySocket, value::path)?,
            false => Vec::new(),
        };
        Ok(Sights {
            haproxy,
            responders,
        })
    }

    fn keys(&self, most: usize) -> Result<Vec<String>, UsageError> {
        let words = self.typed.operands.iter().take(most);
        let mut keys: Vec<String> = Vec::new();
        for word in words {
            let key = key_of(word)?;
            // Twice the same is once.
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        Ok(keys)
    }

    fn note(&self) -> Result<Note, UsageError> {
        let line = |typed: &OsStr| {
            let text = value::utf8(typed)?.trim();
            note::is_text(text)
                .then(|| text.to_owned())
                .ok_or_else(|| format!("one line of at most {} bytes", note::MAX_TEXT_BYTES))
        };
        let why = self.values.maybe(CtlFlag::Why, line)?;
        let by = self.values.maybe(CtlFlag::By, line)?;
        let user = || {
            let set = |name| (self.values.env)(name).filter(|user| note::is_text(user));
            set("SUDO_USER").or_else(|| set("USER"))
        };
        let by = match (&why, by) {
            (_, Some(by)) => Some(by),
            (Some(_), None) => user(),
            (None, None) => None,
        };
        Ok(Note { by, why, at: None })
    }

    fn wait(&self) -> Result<Option<Duration>, UsageError> {
        self.values.maybe(CtlFlag::Wait, value::patience)
    }
}

fn key_of(word: &OsString) -> Result<String, UsageError> {
    let key = word.to_string_lossy();
    let checked = match word.to_str() {
        Some(key) => key::checked_key(key).map_err(|why| why.to_string()),
        None => Err("it is not UTF-8".to_owned()),
    };
    checked.map_err(|why| bad_key(&key, &why))?;
    Ok(key.into_owned())
}

fn bad_key(key: &str, why: &str) -> UsageError {
    UsageError::UnexpectedOperand {
        name: "KEY",
        given: key.to_owned(),
        expected: format!("the key that a row sends, as be_web/srv1 or canary: {why}"),
    }
}

fn percent_of(text: &str) -> Result<Value, UsageError> {
    match Value::parse(text.as_bytes()) {
        Ok(value @ Value::Weight(_)) => Ok(value),
        Ok(Value::Ready | Value::Drain | Value::Maint) | Err(_) => {
            Err(UsageError::UnexpectedOperand {
                name: "N%",
                given: text.to_owned(),
                expected: "a share of the configured weight from 0% to 999%, as 50%".into(),
            })
        }
    }
}

fn together(one: &str, other: &str, why: &str) -> UsageError {
    UsageError::Unusable {
        problem: format!("--{one} and --{other} do not go together: {why}"),
    }
}

fn text(typed: &OsStr) -> Result<String, Expected> {
    Ok(value::utf8(typed)?.to_owned())
}

/// How long an override may last.
const LONGEST: Duration = Duration::from_secs(90 * 86_400);

fn lasting(typed: &OsStr) -> Result<Duration, Expected> {
    let expected = || "a time from 1s to 90d, as 90s, 30m, 12h or 7d".to_owned();
    let text = value::utf8(typed)?;
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: u64 = digits.parse().map_err(|_| expected())?;
    let unit = match text.get(digits.len()..) {
        Some("s") => 1,
        Some("m") => 60,
        Some("h") => 3600,
        Some("d") => 86_400,
        Some(_) | None => return Err(expected()),
    };
    let time = number.checked_mul(unit).map(Duration::from_secs);
    time.filter(|time| {
        !time.is_zero() && *time <= LONGEST && digits.bytes().all(|b| b.is_ascii_digit())
    })
    .ok_or_else(expected)
}
