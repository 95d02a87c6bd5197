//! `show servers state`, of one backend or of all.
//!
//! Fields are taken by their place, which the first line of the listing vouches for
//! (format 1). A row that is not understood spoils the listing.

use super::wait::Deadline;
use super::worker::{DumpError, WorkerSocket};
use std::net::IpAddr;

/// One server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServerRow {
    pub(crate) backend: String,
    pub(crate) name: String,
    /// As printed; `-` when it has none.
    pub(crate) address: String,
    pub(crate) port: String,
    /// A bit mask: 1 maintenance, 8 drain, others come from files and tracking.
    pub(crate) admin: u32,
    pub(crate) weight: u32,
    /// The weight that its percentages count from.
    pub(crate) base_weight: u32,
    /// A bit mask: 4 when its agent is asked, who may change weight and state.
    pub(crate) agent: u32,
    /// Where its agent is, as printed; `-` and `0` when it has none.
    pub(crate) agent_at: (String, String),
}

impl ServerRow {
    /// Whether its agent is asked.
    pub(crate) fn is_asked(&self) -> bool {
        self.agent & 4 != 0
    }

    pub(crate) fn has_address(&self, ip: IpAddr, port: Option<u16>) -> bool {
        self.address.parse() == Ok(ip) && port.is_none_or(|p| self.port == p.to_string())
    }
}

/// The servers of a backend, in HAProxy's order.
pub(crate) fn read(
    worker: &WorkerSocket,
    backend: &str,
    deadline: Deadline,
) -> Result<Vec<ServerRow>, DumpError> {
    run(worker, format!("show servers state {backend}"), deadline)
}

/// The servers of all backends, in HAProxy's order.
pub(crate) fn read_all(
    worker: &WorkerSocket,
    deadline: Deadline,
) -> Result<Vec<ServerRow>, DumpError> {
    run(worker, "show servers state".to_owned(), deadline)
}

fn run(
    worker: &WorkerSocket,
    command: String,
    deadline: Deadline,
) -> Result<Vec<ServerRow>, DumpError> {
    let dump = worker.dump(&command, deadline)?;
    parse(&String::from_utf8_lossy(&dump)).map_err(|what| DumpError::Refused {
        command,
        words: what,
    })
}

fn parse(dump: &str) -> Result<Vec<ServerRow>, String> {
    let mut lines = dump.lines();
    let format = (lines.next(), lines.next());
    if !matches!(format, (Some("1"), Some(header)) if header.starts_with("# ")) {
        return Err("`show servers state` printed another format than 1".to_owned());
    }
    let rows = lines.filter(|line| !line.is_empty());
    rows.map(|line| {
        row(line).ok_or_else(|| {
            let shown: String = line.chars().take(200).collect();
            format!("`show servers state` printed a row that is not understood: {shown:?}")
        })
    })
    .collect()
}

fn row(line: &str) -> Option<ServerRow> {
    let fields: Vec<&str> = line.split(' ').collect();
    let text = |place: usize| fields.get(place - 1).map(|f| (*f).to_owned());
    let number = |place: usize| fields.get(place - 1)?.parse::<u32>().ok();
    Some(ServerRow {
        backend: text(2)?,
        name: text(4)?,
        address: text(5)?,
        admin: number(7)?,
        weight: number(8)?,
        base_weight: number(9)?,
        agent: number(15)?,
        port: text(19)?,
        agent_at: (text(24)?, text(25)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "1\n# be_id be_name srv_id srv_name srv_addr srv_op_state srv_admin_state srv_uweight srv_iweight srv_time_since_last_change srv_check_status srv_check_result srv_check_health srv_check_state srv_agent_state bk_f_forced_id srv_f_forced_id srv_fqdn srv_port srvrecord srv_use_ssl srv_check_port srv_check_addr srv_agent_addr srv_agent_port\n";

    #[test]
    fn fields_by_their_place() {
        let rows = parse(&format!(
            "{HEADER}3 b 1 s1 127.0.0.1 2 8 7 1 0 1 0 0 0 4 0 0 - 8080 - 0 0 - ::1 9777\n\n"
        ))
        .unwrap();
        let row = rows.first().unwrap();
        assert_eq!(
            (row.name.as_str(), row.admin, row.weight, row.agent),
            ("s1", 8, 7, 4)
        );
        assert_eq!((row.backend.as_str(), row.base_weight), ("b", 1));
        assert_eq!(row.agent_at, ("::1".to_owned(), "9777".to_owned()));
        let ip = "127.0.0.1".parse().unwrap();
        assert!(row.has_address(ip, Some(8080)) && row.has_address(ip, None));
        assert!(!row.has_address(ip, Some(80)));
        assert!(!row.has_address("127.0.0.2".parse().unwrap(), None));
    }

    #[test]
    fn what_is_not_understood_is_an_error() {
        assert_eq!(parse(HEADER).unwrap(), []);
        for bad in [
            "",
            "2\n# x\n",
            "1\n",
            &format!("{HEADER}3 b 1 s1\n"),
            &format!("{HEADER}3 b 1 s1 - x x x x x x x x x x x x x x\n"),
        ] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
    }
}
