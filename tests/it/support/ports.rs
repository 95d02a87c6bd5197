//! TCP ports of the loopback interface that stay reserved while a test uses them.
//!
//! A port is bound, not listened on, with `SO_REUSEPORT`: the kernel hands it to
//! nobody else, while a server that sets the same option (HAProxy does) can bind it.

use rustix::fd::OwnedFd;
use rustix::net::{self, AddressFamily, SocketType};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

/// A reserved port of 127.0.0.1.
#[derive(Debug)]
pub(crate) struct Port {
    number: u16,
    _hold: OwnedFd,
}

impl Port {
    /// Reserves a port that is free now.
    pub(crate) fn reserve() -> Self {
        let hold = net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        net::sockopt::set_socket_reuseport(&hold, true).unwrap();
        net::bind(&hold, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).unwrap();
        let bound = SocketAddr::try_from(net::getsockname(&hold).unwrap()).unwrap();
        Self {
            number: bound.port(),
            _hold: hold,
        }
    }

    /// Its number.
    pub(crate) fn number(&self) -> u16 {
        self.number
    }
}
