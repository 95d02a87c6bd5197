//! The manifest: what a controller asks for, first part of every apply.
//!
//! [`Manifest::parse`] is the only way in: whoever holds a `Manifest` holds one that
//! broke no rule of the contract. What needs the agent's state (fence, missing
//! content) or HAProxy (ops) is not decided here.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::digest::Digest;
use super::limits::{
    MAX_FILES, MAX_FILES_BYTES, MAX_MANIFEST_BYTES, MAX_OPS_PER_APPLY, MAX_PLAN_ID_BYTES,
};
use super::op::{Object, Op, object, objects};
use super::path::{ManifestPath, PathError};

/// The fencing token: who leads, and which render of that leader this is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token {
    /// Grows with every change of leadership.
    pub leader_epoch: u64,
    /// The leader's own counter; it need not grow.
    pub render_seq: u64,
}

/// How the controller wants the set to become active.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Files, then the ops; a reload only as the fallback.
    Auto,
    /// Files, then a reload.
    Reload,
    /// Back to the last known good set, and a reload of it.
    RevertLkg,
}

/// What a file is for; decides its mode bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum FileKind {
    Config,
    Map,
    Cert,
    Ca,
    Crtlist,
    General,
}

/// One file of the desired set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct File {
    /// Where it lies, and what HAProxy calls it.
    pub path: ManifestPath,
    /// Of its content.
    pub digest: Digest,
    /// Of its content, in bytes; negative sizes are refused while parsing.
    pub size: u64,
    /// What it is for.
    pub kind: FileKind,
    /// The controller's own note; the agent does nothing with it.
    #[serde(default)]
    pub reload_on_change: bool,
}

/// One apply's manifest, checked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// The desired plan; opaque, not empty.
    pub plan_id: String,
    /// Of the plan blob; stored and echoed.
    #[serde(default)]
    pub plan_schema_version: i64,
    /// The fencing token.
    #[serde(deserialize_with = "object")]
    pub token: Token,
    /// What the controller believes is applied; `""` is "nothing that I know".
    #[serde(default)]
    pub expected_prev_plan_id: String,
    /// The token of that.
    #[serde(default, deserialize_with = "object")]
    pub expected_prev_token: Token,
    /// The worker's plan that `in_place_ops` were composed against. One that is unknown,
    /// `""` in the state, is met by none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_worker_ops_plan_id: Option<String>,
    /// The plan that the worker holds once `in_place_ops` ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker_ops_plan_id: Option<String>,
    /// The newest plan that the controller's own check passed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validated_plan_id: Option<String>,
    /// The complete desired set; empty on a revert.
    #[serde(default, deserialize_with = "objects")]
    pub files: Vec<File>,
    /// Runtime commands for mode `auto`, in order.
    #[serde(
        default,
        deserialize_with = "objects",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub ops: Vec<Op>,
    /// The subset that is safe on the running worker while a reload waits.
    #[serde(
        default,
        deserialize_with = "objects",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub in_place_ops: Vec<Op>,
    /// How to become active.
    pub mode: Mode,
}

/// Names that the agent keeps for itself and no manifest may use: its sockets and
/// state files where these lie below the base directory.
#[derive(Debug, Clone, Default)]
pub struct ReservedPaths(BTreeSet<String>);

impl ReservedPaths {
    /// Reserves base-relative paths; absolute ones outside the base reserve nothing.
    pub fn new(paths: impl IntoIterator<Item = String>) -> Self {
        Self(paths.into_iter().collect())
    }

    /// All of them, in their order.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.0.iter().cloned().collect()
    }

    /// Whether a file of that path would be in the way of one of them.
    #[must_use]
    pub fn conflict(&self, path: &str) -> bool {
        self.0.iter().any(|reserved| {
            reserved == path
                || reserved
                    .strip_prefix(path)
                    .is_some_and(|rest| rest.starts_with('/'))
                || path
                    .strip_prefix(reserved.as_str())
                    .is_some_and(|rest| rest.starts_with('/'))
        })
    }
}

/// Why a manifest is refused. `Display` says the rule; nothing was read or written.
#[derive(Debug)]
pub enum ManifestError {
    /// More than [`MAX_MANIFEST_BYTES`].
    TooBig,
    /// Not JSON, a field of another type, or a path or digest that breaks its rule.
    Json(serde_json::Error),
    /// `plan_id` is `""`.
    EmptyPlanId,
    /// A plan id of more than [`MAX_PLAN_ID_BYTES`], or with control characters.
    BadPlanId(&'static str),
    /// More than [`MAX_FILES`].
    TooManyFiles(usize),
    /// More than [`MAX_OPS_PER_APPLY`] in `ops` or `in_place_ops`.
    TooManyOps(&'static str, usize),
    /// Declared sizes of more than [`MAX_FILES_BYTES`] together.
    TooManyBytes(u64),
    /// A path twice.
    Duplicate(ManifestPath),
    /// A path that is also another path's directory.
    FileAndDirectory(ManifestPath),
    /// One of the agent's own files or sockets.
    Reserved(ManifestPath),
    /// `in_place_ops` without both worker ids.
    InPlaceWithoutIds,
    /// `revert_lkg` with files or ops.
    RevertWithContent,
}

impl fmt::Display for ManifestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooBig => write!(f, "the manifest is larger than {MAX_MANIFEST_BYTES} bytes"),
            Self::Json(source) => write!(f, "the manifest is not what version 1 defines: {source}"),
            Self::EmptyPlanId => write!(f, "plan_id must not be empty"),
            Self::BadPlanId(field) => write!(
                f,
                "{field} must be at most {MAX_PLAN_ID_BYTES} bytes without control characters"
            ),
            Self::TooManyFiles(count) => {
                write!(f, "{count} files: a manifest holds at most {MAX_FILES}")
            }
            Self::TooManyOps(field, count) => write!(
                f,
                "{count} {field}: at most {MAX_OPS_PER_APPLY} fit one apply; send the rest in the next one"
            ),
            Self::TooManyBytes(bytes) => {
                write!(
                    f,
                    "{bytes} bytes of files: at most {MAX_FILES_BYTES} fit one set"
                )
            }
            Self::Duplicate(path) => write!(f, "{path} is listed twice"),
            Self::FileAndDirectory(path) => {
                write!(
                    f,
                    "{path} is listed as a file and is also the directory of another file"
                )
            }
            Self::Reserved(path) => {
                write!(
                    f,
                    "{path} is one of the agent's own files or sockets; choose another name"
                )
            }
            Self::InPlaceWithoutIds => write!(
                f,
                "in_place_ops need expected_worker_ops_plan_id and worker_ops_plan_id beside them"
            ),
            Self::RevertWithContent => {
                write!(
                    f,
                    "mode revert_lkg takes no files and no ops: the set is the agent's own"
                )
            }
        }
    }
}

impl std::error::Error for ManifestError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Json(source) => Some(source),
            Self::TooBig
            | Self::EmptyPlanId
            | Self::BadPlanId(_)
            | Self::TooManyFiles(_)
            | Self::TooManyOps(..)
            | Self::TooManyBytes(_)
            | Self::Duplicate(_)
            | Self::FileAndDirectory(_)
            | Self::Reserved(_)
            | Self::InPlaceWithoutIds
            | Self::RevertWithContent => None,
        }
    }
}

impl From<PathError> for ManifestError {
    fn from(error: PathError) -> Self {
        Self::Json(serde::de::Error::custom(error))
    }
}

impl Manifest {
    /// Reads and checks a manifest.
    ///
    /// # Errors
    /// The first rule that it breaks.
    pub fn parse(json: &[u8], reserved: &ReservedPaths) -> Result<Self, ManifestError> {
        if json.len() > MAX_MANIFEST_BYTES {
            return Err(ManifestError::TooBig);
        }
        let Object(manifest) =
            serde_json::from_slice::<Object<Self>>(json).map_err(ManifestError::Json)?;
        manifest.check(reserved)?;
        Ok(manifest)
    }

    /// The rules that go beyond types.
    ///
    /// # Errors
    /// The first one broken.
    pub fn check(&self, reserved: &ReservedPaths) -> Result<(), ManifestError> {
        if self.plan_id.is_empty() {
            return Err(ManifestError::EmptyPlanId);
        }
        for (field, id) in [
            ("plan_id", Some(&self.plan_id)),
            ("worker_ops_plan_id", self.worker_ops_plan_id.as_ref()),
        ] {
            if id.is_some_and(|id| id.len() > MAX_PLAN_ID_BYTES || id.chars().any(char::is_control))
            {
                return Err(ManifestError::BadPlanId(field));
            }
        }
        if self.files.len() > MAX_FILES {
            return Err(ManifestError::TooManyFiles(self.files.len()));
        }
        for (field, ops) in [("ops", &self.ops), ("in_place_ops", &self.in_place_ops)] {
            if ops.len() > MAX_OPS_PER_APPLY {
                return Err(ManifestError::TooManyOps(field, ops.len()));
            }
        }
        if self.mode == Mode::RevertLkg
            && !(self.files.is_empty() && self.ops.is_empty() && self.in_place_ops.is_empty())
        {
            return Err(ManifestError::RevertWithContent);
        }
        if !self.in_place_ops.is_empty()
            && (self.expected_worker_ops_plan_id.is_none() || self.worker_ops_plan_id.is_none())
        {
            return Err(ManifestError::InPlaceWithoutIds);
        }
        self.check_paths(reserved)?;
        let bytes = self
            .files
            .iter()
            .fold(0u64, |sum, file| sum.saturating_add(file.size));
        if bytes > MAX_FILES_BYTES {
            return Err(ManifestError::TooManyBytes(bytes));
        }
        Ok(())
    }

    fn check_paths(&self, reserved: &ReservedPaths) -> Result<(), ManifestError> {
        let mut paths: Vec<&ManifestPath> = Vec::with_capacity(self.files.len());
        for file in &self.files {
            if reserved.conflict(file.path.as_str()) {
                return Err(ManifestError::Reserved(file.path.clone()));
            }
            paths.push(&file.path);
        }
        paths.sort();
        if let Some(twice) = paths.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(ManifestError::Duplicate(twice[0].clone()));
        }
        let listed = |dir: &str| {
            paths
                .binary_search_by(|path| path.as_str().cmp(dir))
                .is_ok()
        };
        // Files of one directory follow each other.
        let mut last = "";
        for path in &paths {
            if path.parent() == last {
                continue;
            }
            last = path.parent();
            if let Some(dir) = path.ancestors().find(|dir| listed(dir)) {
                let dir = ManifestPath::parse(dir)?;
                return Err(ManifestError::FileAndDirectory(dir));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHA: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    fn manifest(edit: impl FnOnce(&mut serde_json::Value)) -> Result<Manifest, ManifestError> {
        let mut json = serde_json::json!({
            "plan_id": "p1", "plan_schema_version": 3,
            "token": {"leader_epoch": 1, "render_seq": 2},
            "expected_prev_plan_id": "", "expected_prev_token": {"leader_epoch": 0, "render_seq": 0},
            "files": [{"path": "maps/host.map", "digest": SHA, "size": 3, "kind": "map",
                       "reload_on_change": false}],
            "mode": "auto",
        });
        edit(&mut json);
        let reserved = ReservedPaths::new(["haproxy-master.sock".into(), "run/worker.sock".into()]);
        Manifest::parse(json.to_string().as_bytes(), &reserved)
    }

    fn file(path: &str, size: i64) -> serde_json::Value {
        serde_json::json!({"path": path, "digest": SHA, "size": size, "kind": "general"})
    }

    #[test]
    fn a_good_one_passes_and_unknown_keys_are_ignored() {
        let got = manifest(|json| json["from_the_future"] = 1.into()).unwrap();
        assert_eq!(got.plan_schema_version, 3);
        assert_eq!(got.files.len(), 1);
        let revert = manifest(|json| {
            json["mode"] = "revert_lkg".into();
            json["files"] = serde_json::Value::Null;
        });
        assert!(revert.unwrap().files.is_empty());
    }

    /// Each row: what is wrong, and a piece of the refusal that an operator would read.
    #[test]
    fn every_refusal_names_its_rule() {
        type Edit = fn(&mut serde_json::Value);
        let table: &[(&str, Edit)] = &[
            ("plan_id must not be empty", |j| j["plan_id"] = "".into()),
            ("plan_id must be at most", |j| {
                j["plan_id"] = "x".repeat(1025).into()
            }),
            ("plan_id must be at most", |j| j["plan_id"] = "a\nb".into()),
            ("missing field `plan_id`", |j| {
                j.as_object_mut().unwrap().remove("plan_id");
            }),
            ("missing field `token`", |j| {
                j.as_object_mut().unwrap().remove("token");
            }),
            ("unknown variant `fast`", |j| j["mode"] = "fast".into()),
            ("missing field `mode`", |j| {
                j.as_object_mut().unwrap().remove("mode");
            }),
            ("4097 files", |j| {
                j["files"] = (0..4097).map(|i| file(&format!("f{i}"), 0)).collect();
            }),
            ("1001 ops", |j| {
                j["ops"] = vec![serde_json::json!({"kind": "map_del"}); 1001].into()
            }),
            ("1001 in_place_ops", |j| {
                j["in_place_ops"] = vec![serde_json::json!({"kind": "map_del"}); 1001].into();
            }),
            ("in_place_ops need", |j| {
                j["in_place_ops"] = vec![serde_json::json!({"kind": "map_del"})].into();
                j["worker_ops_plan_id"] = "p1".into();
            }),
            ("listed twice", |j| {
                j["files"] = vec![file("a", 0), file("a", 0)].into()
            }),
            ("also the directory", |j| {
                j["files"] = vec![file("a/b/c", 0), file("a", 0)].into()
            }),
            ("relative to the base", |j| {
                j["files"] = vec![file("/a", 0)].into()
            }),
            ("start with a dot", |j| {
                j["files"] = vec![file("a/../b", 0)].into()
            }),
            ("start with a dot", |j| {
                j["files"] = vec![file(".haptic-agent.json", 0)].into()
            }),
            ("agent's own", |j| {
                j["files"] = vec![file("haproxy-master.sock", 0)].into()
            }),
            ("agent's own", |j| j["files"] = vec![file("run", 0)].into()),
            ("agent's own", |j| {
                j["files"] = vec![file("run/worker.sock/x", 0)].into()
            }),
            ("64 (SHA-256) or 16", |j| {
                j["files"][0]["digest"] = "abc".into()
            }),
            ("invalid value: integer `-1`", |j| {
                j["files"] = vec![file("a", -1)].into()
            }),
            ("bytes of files", |j| {
                j["files"] = vec![file("a", 40 << 20), file("b", 25 << 20)].into();
            }),
            ("bytes of files", |j| {
                j["files"] = vec![
                    file("a", i64::MAX),
                    file("b", i64::MAX),
                    file("c", i64::MAX),
                ]
                .into();
            }),
            ("invalid type: string", |j| {
                j["files"][0]["size"] = "3".into()
            }),
            ("unknown variant `lua`", |j| {
                j["files"][0]["kind"] = "lua".into()
            }),
            ("takes no files", |j| j["mode"] = "revert_lkg".into()),
            ("invalid type", |j| {
                j["ops"] = vec![serde_json::json!({"kind": 7})].into()
            }),
            ("expected an object", |j| {
                j["token"] = serde_json::json!([1, 2])
            }),
            ("expected an object", |j| {
                j["expected_prev_token"] = serde_json::json!([1, 2]);
            }),
            ("expected an object", |j| {
                j["files"] = serde_json::json!([["a", SHA, 0, "general"]])
            }),
            ("expected an object", |j| {
                j["ops"] = serde_json::json!([["map_del"]])
            }),
            ("expected an object", |j| {
                j["ops"] = serde_json::json!([{"kind": "x", "options": [["a", []]]}]);
            }),
        ];
        for (want, edit) in table {
            let refusal = manifest(edit).expect_err(want).to_string();
            assert!(refusal.contains(want), "wanted {want:?} in {refusal:?}");
        }
        let reserved = ReservedPaths::default();
        assert!(Manifest::parse(b"{", &reserved).is_err());
        assert!(Manifest::parse(b"[]", &reserved).is_err());
        assert!(matches!(
            Manifest::parse(&vec![b' '; MAX_MANIFEST_BYTES + 1], &reserved),
            Err(ManifestError::TooBig)
        ));
    }
}
