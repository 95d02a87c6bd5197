//! Reading a state, also one of another release.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::wire::limits::API_VERSION;
use crate::wire::state::{PendingDeletes, RuntimeInventory, State};

/// Reads a state document. Of one whose `api_version` is another, what is not
/// understood counts as absent: such an agent gets the full set and no ops, and for
/// that its plan id and token are enough.
pub(super) fn read(json: &[u8]) -> Result<State, serde_json::Error> {
    let strict = match serde_json::from_slice::<State>(json) {
        Ok(state) => return Ok(state),
        Err(error) => error,
    };
    let Ok(Value::Object(fields)) = serde_json::from_slice(json) else {
        return Err(strict);
    };
    match field::<u32>(&fields, "api_version") {
        Some(version) if version != API_VERSION => Ok(lenient(version, &fields)),
        Some(_) | None => Err(strict),
    }
}

fn lenient(api_version: u32, fields: &Map<String, Value>) -> State {
    fn or_default<T: DeserializeOwned + Default>(fields: &Map<String, Value>, name: &str) -> T {
        field(fields, name).unwrap_or_default()
    }
    State {
        api_version,
        agent_version: or_default(fields, "agent_version"),
        plan_schema_version: or_default(fields, "plan_schema_version"),
        agent_ops: or_default(fields, "agent_ops"),
        features: or_default(fields, "features"),
        haproxy: or_default(fields, "haproxy"),
        worker: field(fields, "worker"),
        generation: or_default(fields, "generation"),
        applied_plan_id: or_default(fields, "applied_plan_id"),
        running_plan_id: or_default(fields, "running_plan_id"),
        worker_ops_plan_id: or_default(fields, "worker_ops_plan_id"),
        applied_token: or_default(fields, "applied_token"),
        lkg_plan_id: or_default(fields, "lkg_plan_id"),
        reserved_paths: or_default(fields, "reserved_paths"),
        worker_socket: field(fields, "worker_socket"),
        applied_plan_stored: or_default(fields, "applied_plan_stored"),
        files: or_default(fields, "files"),
        in_the_way: or_default(fields, "in_the_way"),
        runtime_inventory: or_default::<RuntimeInventory>(fields, "runtime_inventory"),
        pending_deletes: or_default::<PendingDeletes>(fields, "pending_deletes"),
        applied_plan: field(fields, "applied_plan"),
        reload_pending_at: field(fields, "reload_pending_at"),
        last_apply: field(fields, "last_apply"),
        invariant_violation: field(fields, "invariant_violation"),
        degraded: field(fields, "degraded"),
        unsaved: field(fields, "unsaved"),
    }
}

/// A field that is there and of our type.
fn field<T: DeserializeOwned>(fields: &Map<String, Value>, name: &str) -> Option<T> {
    serde_json::from_value(fields.get(name)?.clone()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(edit: impl FnOnce(&mut Value)) -> Result<State, serde_json::Error> {
        let mut json = serde_json::json!({
            "api_version": 1, "agent_version": "0.1.0", "plan_schema_version": 0,
            "agent_ops": ["map_add"], "features": [],
            "haproxy": {"version": "3.4.7", "full_version": "3.4.7-1", "worker_pid": 7,
                        "worker_start_time_unix_micros": 1},
            "generation": 3, "applied_plan_id": "p", "running_plan_id": "p",
            "worker_ops_plan_id": "p", "applied_token": {"leader_epoch": 1, "render_seq": 2},
            "lkg_plan_id": "p", "applied_plan_stored": false, "files": {},
            "runtime_inventory": {"generation": 1, "maps": [], "certs": [], "ca_files": [],
                                  "crl_files": [], "crt_lists": []},
            "pending_deletes": {"servers": [], "backends": []},
        });
        edit(&mut json);
        read(json.to_string().as_bytes())
    }

    #[test]
    fn unknown_keys_are_ignored() {
        assert_eq!(
            state(|j| j["from_the_future"] = 1.into())
                .unwrap()
                .generation,
            3
        );
    }

    #[test]
    fn another_release_is_read_as_far_as_it_goes() {
        let got = state(|j| {
            j["api_version"] = 2.into();
            j["files"] = "elsewhere".into();
            j["haproxy"] = Value::Null;
            j.as_object_mut().unwrap().remove("features");
        })
        .unwrap();
        assert_eq!((got.api_version, got.applied_plan_id.as_str()), (2, "p"));
        assert_eq!(got.applied_token.render_seq, 2);
        assert!(got.files.is_empty());
    }

    #[test]
    fn a_broken_state_of_our_own_release_is_an_error() {
        assert!(state(|j| j["files"] = "elsewhere".into()).is_err());
        assert!(state(|j| j["api_version"] = "one".into()).is_err());
        assert!(read(b"[]").is_err());
        assert!(read(b"").is_err());
    }
}
