//! The names HAProxy holds: maps, files of ACLs, certificates, CAs, CRLs, crt-lists.
//!
//! Each kind is one complete listing or an error; a kind that could not be read is
//! never reported as empty, and a row that is not understood spoils its listing.
//! Names are sorted, so that two equal inventories are equal values whatever order a
//! configuration has. Rows and contents are not read here.

use super::wait::Deadline;
use super::worker::{CliLevel, DumpError, WorkerSocket};
use crate::wire::limits::MAX_INVENTORY_ROWS;
use std::error::Error;
use std::fmt;

/// What a worker holds by name; each list sorted by bytes, without repetition.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RuntimeInventory {
    /// Map names as the configuration writes them.
    pub maps: Vec<String>,
    /// Files whose lines are an ACL's patterns; a map whose keys are an ACL's too is
    /// among both.
    pub acl_files: Vec<String>,
    /// Certificates.
    pub certs: Vec<String>,
    /// CA files, without HAProxy's own `@system-ca`.
    pub ca_files: Vec<String>,
    /// CRL files.
    pub crl_files: Vec<String>,
    /// crt-lists.
    pub crt_lists: Vec<String>,
}

impl RuntimeInventory {
    /// Reads all six, one connection after the other.
    ///
    /// # Errors
    ///
    /// [`InventoryError`] when the socket is not of level admin, or when one of the
    /// listings is refused, cut, larger than the contract allows or not understood.
    pub fn read(worker: &WorkerSocket, deadline: Deadline) -> Result<Self, InventoryError> {
        match worker.cli_level(deadline).map_err(InventoryError::Dump)? {
            CliLevel::Admin => {}
            level @ (CliLevel::Operator | CliLevel::User) => {
                return Err(InventoryError::Level { level });
            }
        }
        Ok(Self {
            maps: read(worker, Kind::Maps, deadline)?.names,
            acl_files: read(worker, Kind::AclFiles, deadline)?.names,
            certs: read(worker, Kind::Certs, deadline)?.names,
            ca_files: read(worker, Kind::CaFiles, deadline)?.names,
            crl_files: read(worker, Kind::CrlFiles, deadline)?.names,
            crt_lists: read(worker, Kind::CrtLists, deadline)?.names,
        })
    }
}

/// One of the six listings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `show map`
    Maps,
    /// `show acl`
    AclFiles,
    /// `show ssl cert`
    Certs,
    /// `show ssl ca-file`
    CaFiles,
    /// `show ssl crl-file`
    CrlFiles,
    /// `show ssl crt-list`
    CrtLists,
}

impl Kind {
    /// The command that lists it.
    #[must_use]
    pub fn command(self) -> &'static str {
        match self {
            Self::Maps => "show map",
            Self::AclFiles => "show acl",
            Self::Certs => "show ssl cert",
            Self::CaFiles => "show ssl ca-file",
            Self::CrlFiles => "show ssl crl-file",
            Self::CrtLists => "show ssl crt-list",
        }
    }
}

/// One listing, parsed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Listing {
    /// Sorted, without repetition.
    pub names: Vec<String>,
    /// Names with an open transaction (certificates, CAs, CRLs); they are in use or
    /// not, this does not say.
    pub open: Vec<String>,
}

/// Reads one listing. Does not look at the level of the socket.
///
/// # Errors
///
/// [`InventoryError`], never `Level`.
pub fn read(
    worker: &WorkerSocket,
    kind: Kind,
    deadline: Deadline,
) -> Result<Listing, InventoryError> {
    let mut parser = Parser::new(kind);
    let mut fault = None;
    worker
        .each_row(kind.command(), deadline, &mut |row| match parser.row(row) {
            Ok(()) => true,
            Err(error) => {
                fault = Some(error);
                false
            }
        })
        .map_err(InventoryError::Dump)?;
    match fault {
        None => Ok(parser.end()),
        Some(error) => Err(error),
    }
}

/// Takes a listing row by row. Bytes that are no UTF-8 are replaced: such a name is
/// nobody's manifest path.
struct Parser {
    kind: Kind,
    listing: Listing,
    section: Section,
}

impl Parser {
    fn new(kind: Kind) -> Self {
        Self {
            kind,
            listing: Listing::default(),
            section: Section::None,
        }
    }

    /// One row, without its LF.
    fn row(&mut self, row: &[u8]) -> Result<(), InventoryError> {
        let kind = self.kind;
        let row = &*String::from_utf8_lossy(row);
        let listing = &mut self.listing;
        let error = || InventoryError::Row {
            kind,
            row: row.chars().take(200).collect(),
        };
        if row.is_empty() {
            return Err(error());
        }
        match kind {
            Kind::Maps => {
                if !row.starts_with('#') {
                    let name = map_name(row).ok_or_else(error)?;
                    listing.names.push(name.to_owned());
                }
            }
            // Most rows are the patterns of one line each, without a file.
            Kind::AclFiles => {
                if !row.starts_with('#') && !is_inline(row) {
                    let name = map_name(row).ok_or_else(error)?;
                    listing.names.push(name.to_owned());
                }
            }
            Kind::CrtLists => listing.names.push(row.to_owned()),
            Kind::Certs | Kind::CaFiles | Kind::CrlFiles => match (row, self.section) {
                ("# transaction", _) => self.section = Section::Transaction,
                ("# filename", _) => self.section = Section::Filename,
                (_, Section::None) => return Err(error()),
                (_, Section::Transaction) => {
                    let name = row.strip_prefix('*').ok_or_else(error)?;
                    let name = file_name(kind, name).ok_or_else(error)?;
                    listing.open.push(name.to_owned());
                }
                (_, Section::Filename) => {
                    let name = file_name(kind, row).ok_or_else(error)?;
                    if !(kind == Kind::CaFiles && name == "@system-ca") {
                        listing.names.push(name.to_owned());
                    }
                }
            },
        }
        match listing.names.len() + listing.open.len() > MAX_INVENTORY_ROWS {
            true => Err(InventoryError::TooMany { kind }),
            false => Ok(()),
        }
    }

    fn end(mut self) -> Listing {
        for names in [&mut self.listing.names, &mut self.listing.open] {
            names.sort_unstable();
            names.dedup();
        }
        self.listing
    }
}

#[derive(Clone, Copy)]
enum Section {
    None,
    Transaction,
    Filename,
}

/// `<id> (<name>) pattern loaded from file '<name>' used by …`. A name may itself hold
/// the words around it: the first opening and the last closing mark count.
fn map_name(row: &str) -> Option<&str> {
    let (id, rest) = row.split_once(" (")?;
    let (name, _) = rest.rsplit_once(") pattern loaded from file '")?;
    (is_id(id) && !name.is_empty()).then_some(name)
}

/// `<id> () …`: patterns that stand on a line of the configuration.
fn is_inline(row: &str) -> bool {
    row.split_once(" () ").is_some_and(|(id, _)| is_id(id))
}

fn is_id(id: &str) -> bool {
    !id.is_empty() && id.bytes().all(|b| b.is_ascii_digit() || b == b'-')
}

/// A row of certificates or CRLs is a name; a row of CAs has a count behind it.
fn file_name(kind: Kind, row: &str) -> Option<&str> {
    let name = match kind {
        Kind::CaFiles => {
            let (name, count) = row.strip_suffix(" certificate(s)")?.rsplit_once(" - ")?;
            let plain = !count.is_empty() && count.bytes().all(|b| b.is_ascii_digit());
            plain.then_some(name)?
        }
        Kind::Maps | Kind::AclFiles | Kind::Certs | Kind::CrlFiles | Kind::CrtLists => row,
    };
    (!name.is_empty()).then_some(name)
}

/// Why there is no inventory.
#[derive(Debug)]
pub enum InventoryError {
    /// A listing could not be had.
    Dump(DumpError),
    /// The socket's level hides what is asked for.
    Level {
        /// What it is.
        level: CliLevel,
    },
    /// A row is not of the form its command prints.
    Row {
        /// The listing.
        kind: Kind,
        /// The row, shortened.
        row: String,
    },
    /// More rows than [`MAX_INVENTORY_ROWS`].
    TooMany {
        /// The listing.
        kind: Kind,
    },
}

impl fmt::Display for InventoryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dump(_) => f.write_str("HAProxy's names could not be listed"),
            Self::Level { level } => write!(
                f,
                "the worker's stats socket has level {level}; the configuration must say `stats socket … level admin`"
            ),
            Self::Row { kind, row } => write!(
                f,
                "`{}` printed a row that is not understood: {row:?}",
                kind.command()
            ),
            Self::TooMany { kind } => write!(
                f,
                "`{}` has more than {MAX_INVENTORY_ROWS} rows",
                kind.command()
            ),
        }
    }
}

impl Error for InventoryError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Dump(source) => Some(source),
            Self::Level { .. } | Self::Row { .. } | Self::TooMany { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(kind: Kind, dump: &[u8]) -> Result<Listing, InventoryError> {
        let mut parser = Parser::new(kind);
        for row in dump.split_inclusive(|&b| b == b'\n') {
            parser.row(row.strip_suffix(b"\n").unwrap())?;
        }
        Ok(parser.end())
    }

    fn names(kind: Kind, dump: &str) -> Vec<String> {
        parse(kind, dump.as_bytes()).unwrap().names
    }

    #[test]
    fn maps_by_the_outermost_marks() {
        let dump = "# id (file) description\n\
            1 (maps/z.map) pattern loaded from file 'maps/z.map' used by map at file 'c' line 3. curr_ver=0 next_ver=0 entry_cnt=4\n\
            -1 (maps/a (1).map) pattern loaded from file 'maps/a (1).map' used by map at file 'c' line 4. curr_ver=0\n\
            2 (x) pattern loaded from file 'y) pattern loaded from file 'x) pattern loaded from file 'y' used by map\n";
        assert_eq!(
            names(Kind::Maps, dump),
            [
                "maps/a (1).map",
                "maps/z.map",
                "x) pattern loaded from file 'y) pattern loaded from file 'x"
            ]
        );
    }

    #[test]
    fn acls_with_a_file_and_no_others() {
        let dump = "# id (file) description\n\
            1 (lists/z.acl) pattern loaded from file 'lists/z.acl' used by acl at file 'c' line 11. curr_ver=0 next_ver=0 entry_cnt=2\n\
            2 () acl 'path' file 'c' line 11. curr_ver=0 next_ver=0 entry_cnt=0\n\
            4 (maps/h.map) pattern loaded from file 'maps/h.map' used by map at file 'c' line 13, by map at file 'c' line 15. curr_ver=0\n\
            8 () acl 'var' file 'httpclient' line 0. curr_ver=0 next_ver=0 entry_cnt=1\n";
        assert_eq!(names(Kind::AclFiles, dump), ["lists/z.acl", "maps/h.map"]);
    }

    #[test]
    fn transactions_are_kept_apart_from_files() {
        let dump = "# transaction\n*certs/open.pem\n# filename\ncerts/b.pem\ncerts/a.pem\n";
        let listing = parse(Kind::Certs, dump.as_bytes()).unwrap();
        assert_eq!(listing.names, ["certs/a.pem", "certs/b.pem"]);
        assert_eq!(listing.open, ["certs/open.pem"]);
    }

    #[test]
    fn ca_rows_lose_their_count_and_the_system_ca() {
        let dump = "# transaction\n*ca/x.pem - 2 certificate(s)\n# filename\nca/a - b.pem - 1 certificate(s)\n@system-ca - 145 certificate(s)\n";
        let listing = parse(Kind::CaFiles, dump.as_bytes()).unwrap();
        assert_eq!(listing.names, ["ca/a - b.pem"]);
        assert_eq!(listing.open, ["ca/x.pem"]);
    }

    #[test]
    fn nothing_listed_is_an_empty_listing() {
        for kind in [
            Kind::Maps,
            Kind::AclFiles,
            Kind::Certs,
            Kind::CaFiles,
            Kind::CrlFiles,
            Kind::CrtLists,
        ] {
            assert_eq!(parse(kind, b"").unwrap(), Listing::default());
        }
        assert!(names(Kind::Certs, "# filename\n").is_empty());
    }

    #[test]
    fn an_unknown_row_spoils_the_listing() {
        for (kind, dump) in [
            (Kind::Maps, "1 maps/a.map\n"),
            (Kind::Maps, "x (a) pattern loaded from file 'a' used by\n"),
            (Kind::Maps, "1 () pattern loaded from file '' used by\n"),
            (Kind::Maps, "\n"),
            (Kind::AclFiles, "1 lists/a.acl\n"),
            (Kind::AclFiles, "x () acl 'path' file 'c' line 1.\n"),
            (Kind::Certs, "certs/a.pem\n"),
            (Kind::Certs, "# transaction\ncerts/a.pem\n"),
            (Kind::CaFiles, "# filename\nca/a.pem\n"),
            (Kind::CaFiles, "# filename\nca/a.pem - x certificate(s)\n"),
            (Kind::CrtLists, "a\n\nb\n"),
        ] {
            let refused = parse(kind, dump.as_bytes());
            assert!(
                matches!(refused, Err(InventoryError::Row { .. })),
                "{dump:?}"
            );
        }
    }

    #[test]
    fn more_rows_than_the_contract_has_are_an_error() {
        let rows = |count| (0..count).map(|n| format!("l{n}\n")).collect::<String>();
        let most = parse(Kind::CrtLists, rows(MAX_INVENTORY_ROWS).as_bytes());
        assert_eq!(most.unwrap().names.len(), MAX_INVENTORY_ROWS);
        let over = parse(Kind::CrtLists, rows(MAX_INVENTORY_ROWS + 1).as_bytes());
        assert!(matches!(over, Err(InventoryError::TooMany { .. })));
    }
}
