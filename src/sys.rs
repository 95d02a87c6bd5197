//! The operating system, where std has no safe door to it: `poll`, listening with a
//! chosen backlog, `accept4`, descriptor limits, a wake-up descriptor.
//!
//! This is the only module that may use `unsafe`; everything it offers is safe to
//! call. It decides nothing: which error means "go on" is the caller's business.
#![allow(unsafe_code)]

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::marker::PhantomData;
use std::mem;
use std::net::{
    IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6, TcpListener, TcpStream,
};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// What a [`Watch`] waits for. Errors and hang-ups of both sides always end the wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interest {
    /// Bytes to read, a connection to accept, or the peer's end of stream.
    Read,
    /// Room to write.
    Write,
    /// Bytes to read or room to write.
    ReadWrite,
    /// Only that the peer closed or reset; waiting bytes do not count.
    Hangup,
}

/// One descriptor in a [`poll`].
#[repr(transparent)]
pub struct Watch<'fd> {
    raw: libc::pollfd,
    fd: PhantomData<BorrowedFd<'fd>>,
}

impl<'fd> Watch<'fd> {
    /// Watches `fd` for `interest`.
    #[must_use]
    pub fn new(fd: BorrowedFd<'fd>, interest: Interest) -> Self {
        let events = match interest {
            Interest::Read => libc::POLLIN | libc::POLLRDHUP,
            Interest::Write => libc::POLLOUT,
            Interest::ReadWrite => libc::POLLIN | libc::POLLRDHUP | libc::POLLOUT,
            Interest::Hangup => libc::POLLRDHUP,
        };
        Self {
            raw: libc::pollfd {
                fd: fd.as_raw_fd(),
                events,
                revents: 0,
            },
            fd: PhantomData,
        }
    }

    /// Whether the last [`poll`] reported anything for this descriptor.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.raw.revents != 0
    }

    /// Whether the last [`poll`] saw the peer close, reset, or the descriptor fail.
    #[must_use]
    pub fn is_hung_up(&self) -> bool {
        self.raw.revents & (libc::POLLRDHUP | libc::POLLHUP | libc::POLLERR | libc::POLLNVAL) != 0
    }
}

impl fmt::Debug for Watch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch")
            .field("fd", &self.raw.fd)
            .field("events", &self.raw.events)
            .field("revents", &self.raw.revents)
            .finish()
    }
}

/// Waits until a watch is ready or `timeout` has passed; `None` waits for ever.
///
/// Returns how many are ready. A signal ends the wait early with 0, so a caller
/// looks at its own clock before it calls again. The timeout is rounded up to whole
/// milliseconds, so that a wait to a deadline does not spin in the last one.
///
/// # Errors
/// What poll(2) reports, EINTR excepted.
pub fn poll(watches: &mut [Watch<'_>], timeout: Option<Duration>) -> io::Result<usize> {
    let millis = match timeout {
        None => -1,
        Some(time) => {
            let whole = time.as_nanos().div_ceil(1_000_000);
            libc::c_int::try_from(whole).unwrap_or(libc::c_int::MAX)
        }
    };
    for watch in watches.iter_mut() {
        watch.raw.revents = 0;
    }
    let count = libc::nfds_t::try_from(watches.len())
        .map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    // SAFETY: `Watch` is a transparent wrapper of `pollfd`, so the slice is an array of
    // `count` of them that lives through the call; each descriptor is borrowed as long.
    let ready = unsafe { libc::poll(watches.as_mut_ptr().cast::<libc::pollfd>(), count, millis) };
    match usize::try_from(ready) {
        Ok(ready) => Ok(ready),
        Err(_) => match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::Interrupted => Ok(0),
            error => Err(error),
        },
    }
}

/// Whether the peer has closed its side or reset the connection, as of now.
///
/// A peer that only half-closed looks the same as one that left.
#[must_use]
pub fn peer_closed(fd: BorrowedFd<'_>) -> bool {
    let mut watch = [Watch::new(fd, Interest::Hangup)];
    poll(&mut watch, Some(Duration::ZERO)).is_ok() && watch[0].is_hung_up()
}

/// A descriptor that is readable from the first [`Wake::wake`] until [`Wake::clear`].
#[derive(Debug)]
pub struct Wake {
    event: File,
}

impl Wake {
    /// A wake-up that has not been given yet.
    ///
    /// # Errors
    /// No descriptor or memory left.
    pub fn new() -> io::Result<Self> {
        // SAFETY: eventfd takes no pointers.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        Ok(Self {
            event: File::from(owned(fd)?),
        })
    }

    /// Makes the descriptor readable. A full counter means that it already is.
    pub fn wake(&self) {
        let _already = (&self.event).write(&1u64.to_ne_bytes());
    }

    /// Makes the descriptor unreadable again.
    pub fn clear(&self) {
        let mut count = [0u8; 8];
        let _empty = (&self.event).read(&mut count);
    }
}

impl AsFd for Wake {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

/// Opens a non-blocking, close-on-exec TCP listener with the given backlog.
///
/// `[::]` takes IPv4 as well (IPV6_V6ONLY off, whatever the system's default).
///
/// # Errors
/// What socket, setsockopt, bind or listen report.
pub fn listen(address: SocketAddr, backlog: u16) -> io::Result<TcpListener> {
    let family = match address {
        SocketAddr::V4(_) => libc::AF_INET,
        SocketAddr::V6(_) => libc::AF_INET6,
    };
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: socket takes no pointers.
    let socket = owned(unsafe { libc::socket(family, kind, 0) })?;
    set_int(&socket, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
    match address {
        SocketAddr::V4(v4) => {
            let raw = libc::sockaddr_in {
                sin_family: family_of(libc::AF_INET),
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr {
                    s_addr: u32::from(*v4.ip()).to_be(),
                },
                sin_zero: [0; 8],
            };
            bind(&socket, &raw)?;
        }
        SocketAddr::V6(v6) => {
            set_int(&socket, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 0)?;
            let raw = libc::sockaddr_in6 {
                sin6_family: family_of(libc::AF_INET6),
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: v6.flowinfo(),
                sin6_addr: libc::in6_addr {
                    s6_addr: v6.ip().octets(),
                },
                sin6_scope_id: v6.scope_id(),
            };
            bind(&socket, &raw)?;
        }
    }
    // SAFETY: listen takes no pointers; the descriptor is owned here.
    check(unsafe { libc::listen(socket.as_raw_fd(), libc::c_int::from(backlog)) })?;
    Ok(TcpListener::from(socket))
}

/// Lets the kernel hold connections back from accept until they have sent something, for
/// about `seconds`; then they are handed over as they are.
///
/// # Errors
/// What setsockopt reports; the listener works without it.
pub fn defer_accept(listener: &TcpListener, seconds: u8) -> io::Result<()> {
    let value = libc::c_int::from(seconds);
    set_int(listener, libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, value)
}

/// Takes one connection, non-blocking and close-on-exec, with its peer's address.
///
/// # Errors
/// What accept4(2) reports, EAGAIN when none waits, errors of the new connection
/// included; the caller tells apart which of them concern the listener.
pub fn accept(listener: &TcpListener) -> io::Result<(TcpStream, SocketAddr)> {
    let mut storage = mem::MaybeUninit::<libc::sockaddr_storage>::zeroed();
    let mut length = length_of::<libc::sockaddr_storage>();
    // SAFETY: `storage` has room for `length` bytes and both live through the call.
    let fd = unsafe {
        libc::accept4(
            listener.as_raw_fd(),
            storage.as_mut_ptr().cast::<libc::sockaddr>(),
            &raw mut length,
            libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK,
        )
    };
    let stream = TcpStream::from(owned(fd)?);
    // SAFETY: all zeroes is a valid `sockaddr_storage`, and the kernel wrote at most
    // its size into it.
    let storage = unsafe { storage.assume_init() };
    Ok((stream, address_of(&storage)))
}

/// Makes the coming close throw away what is unsent and reset the connection, so that
/// a peer that never reads leaves nothing behind in the kernel.
pub fn reset_on_close(stream: &TcpStream) {
    let linger = libc::linger {
        l_onoff: 1,
        l_linger: 0,
    };
    // SAFETY: the option's value is a live `linger` of the size that is passed.
    let _gone_already = unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_LINGER,
            (&raw const linger).cast::<libc::c_void>(),
            length_of::<libc::linger>(),
        )
    };
}

/// Asks the kernel to begin writing a file's dirty pages to disk and returns at once. It
/// promises nothing: a sync later only finds less left to do.
pub fn start_writeback(file: BorrowedFd<'_>) {
    // SAFETY: no memory is passed; the descriptor is borrowed and open.
    let _refused_where_unsupported =
        unsafe { libc::sync_file_range(file.as_raw_fd(), 0, 0, libc::SYNC_FILE_RANGE_WRITE) };
}

/// A file that may not grow any more is an error of the write from now on, and not the end
/// of the process.
pub fn survive_file_size_limit() {
    // SAFETY: ignoring a signal installs no handler.
    let _cannot_fail = unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// From now on this thread runs when no other wants to that has just been woken: what it
/// does in the background keeps no answer waiting. Where that is refused it runs like any
/// other.
pub fn run_in_background() {
    // SAFETY: a sched_param is numbers only, of which this policy wants zero.
    let parameters: libc::sched_param = unsafe { std::mem::zeroed() };
    // SAFETY: a pointer to a live sched_param, which the kernel only reads; 0 is the
    // calling thread.
    let _refused = unsafe { libc::sched_setscheduler(0, libc::SCHED_BATCH, &raw const parameters) };
}

/// `N` bytes from the kernel's random source.
///
/// # Errors
/// The kernel has no getrandom(2).
pub fn random_bytes<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0u8; N];
    let mut have = 0;
    while have < N {
        let rest = &mut bytes[have..];
        // SAFETY: the pointer and the length describe `rest`, which lives through the call.
        let got =
            unsafe { libc::getrandom(rest.as_mut_ptr().cast::<libc::c_void>(), rest.len(), 0) };
        match usize::try_from(got) {
            Ok(got) => have += got,
            Err(_) => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => {}
                error => return Err(error),
            },
        }
    }
    Ok(bytes)
}

/// The descriptor limit is lower than what the process may need.
#[derive(Debug)]
pub enum NofileError {
    /// The hard limit is below the need.
    TooLow {
        /// The hard limit of this process.
        hard: u64,
        /// How many descriptors it may need at once.
        needed: u64,
    },
    /// The limit could not be read or raised.
    System(io::Error),
}

impl fmt::Display for NofileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLow { hard, needed } => write!(
                f,
                "the hard limit of open files is {hard}, but up to {needed} are needed; \
                 raise it (ulimit -Hn, LimitNOFILE=, --ulimit nofile=)"
            ),
            Self::System(_) => write!(f, "the limit of open files cannot be read or raised"),
        }
    }
}

impl std::error::Error for NofileError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::TooLow { .. } => None,
            Self::System(source) => Some(source),
        }
    }
}

/// Raises the soft limit of open files to the hard one and checks that `needed` fit.
///
/// Returns the limit that now holds.
///
/// # Errors
/// The hard limit is below `needed`, or the calls fail.
pub fn raise_nofile_limit(needed: u64) -> Result<u64, NofileError> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the pointer is to a live `rlimit`.
    check(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) })
        .map_err(NofileError::System)?;
    let hard = limit.rlim_max;
    if hard < needed {
        return Err(NofileError::TooLow { hard, needed });
    }
    if limit.rlim_cur < hard {
        limit.rlim_cur = hard;
        // SAFETY: the pointer is to a live `rlimit`.
        check(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) })
            .map_err(NofileError::System)?;
    }
    Ok(hard)
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Owns a descriptor that a system call has just returned.
fn owned(fd: libc::c_int) -> io::Result<OwnedFd> {
    check(fd)?;
    // SAFETY: the kernel just handed this descriptor out, so nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn set_int(
    socket: &impl AsRawFd,
    level: libc::c_int,
    name: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    // SAFETY: the option's value is a live int of the size that is passed.
    check(unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            (&raw const value).cast::<libc::c_void>(),
            length_of::<libc::c_int>(),
        )
    })
}

/// The address types that the kernel reads in bind(2).
trait RawAddress {}
impl RawAddress for libc::sockaddr_in {}
impl RawAddress for libc::sockaddr_in6 {}

fn bind<A: RawAddress>(socket: &OwnedFd, address: &A) -> io::Result<()> {
    // SAFETY: the pointer is to a live socket address of the size that is passed.
    check(unsafe {
        libc::bind(
            socket.as_raw_fd(),
            std::ptr::from_ref(address).cast::<libc::sockaddr>(),
            length_of::<A>(),
        )
    })
}

fn length_of<T>() -> libc::socklen_t {
    libc::socklen_t::try_from(mem::size_of::<T>()).unwrap_or(0)
}

fn family_of(family: libc::c_int) -> libc::sa_family_t {
    libc::sa_family_t::try_from(family).unwrap_or(0)
}

/// The peer's address; an unknown family gives `0.0.0.0:0`, which no peer has.
fn address_of(storage: &libc::sockaddr_storage) -> SocketAddr {
    match libc::c_int::from(storage.ss_family) {
        libc::AF_INET => {
            // SAFETY: the family says which address the storage holds, and the storage
            // is larger than and aligned for each of them.
            let raw = unsafe { &*std::ptr::from_ref(storage).cast::<libc::sockaddr_in>() };
            SocketAddr::V4(SocketAddrV4::new(
                Ipv4Addr::from(u32::from_be(raw.sin_addr.s_addr)),
                u16::from_be(raw.sin_port),
            ))
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let raw = unsafe { &*std::ptr::from_ref(storage).cast::<libc::sockaddr_in6>() };
            let v6 = SocketAddrV6::new(
                Ipv6Addr::from(raw.sin6_addr.s6_addr),
                u16::from_be(raw.sin6_port),
                raw.sin6_flowinfo,
                raw.sin6_scope_id,
            );
            match v6.ip().to_canonical() {
                IpAddr::V4(v4) => SocketAddr::V4(SocketAddrV4::new(v4, v6.port())),
                IpAddr::V6(_) => SocketAddr::V6(v6),
            }
        }
        _ => SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wake_up_stays_until_it_is_cleared() {
        let wake = Wake::new().unwrap();
        let ready = |wake: &Wake| {
            let mut watch = [Watch::new(wake.as_fd(), Interest::Read)];
            poll(&mut watch, Some(Duration::ZERO)).unwrap()
        };
        assert_eq!(ready(&wake), 0);
        wake.wake();
        wake.wake();
        assert_eq!(ready(&wake), 1);
        assert_eq!(ready(&wake), 1);
        wake.clear();
        assert_eq!(ready(&wake), 0);
    }

    #[test]
    fn accepted_peers_have_their_address_and_leave_a_trace() {
        for address in ["127.0.0.1:0", "[::]:0"] {
            let listener = match listen(address.parse().unwrap(), 16) {
                Ok(listener) => listener,
                Err(error) if address.starts_with('[') => {
                    println!("no IPv6 here: {error}");
                    continue;
                }
                Err(error) => panic!("{error}"),
            };
            assert_eq!(
                accept(&listener).unwrap_err().kind(),
                io::ErrorKind::WouldBlock
            );
            let port = listener.local_addr().unwrap().port();
            let client = TcpStream::connect(("127.0.0.1", port)).unwrap();
            let mut watch = [Watch::new(listener.as_fd(), Interest::Read)];
            assert_eq!(poll(&mut watch, Some(Duration::from_secs(5))).unwrap(), 1);
            let (server, peer) = accept(&listener).unwrap();
            assert_eq!(peer, client.local_addr().unwrap());
            assert!(!peer_closed(server.as_fd()));
            drop(client);
            let mut watch = [Watch::new(server.as_fd(), Interest::Hangup)];
            assert_eq!(poll(&mut watch, Some(Duration::from_secs(5))).unwrap(), 1);
            assert!(peer_closed(server.as_fd()));
        }
    }

    #[test]
    fn a_reset_reaches_the_peer() {
        let listener = listen("127.0.0.1:0".parse().unwrap(), 16).unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut watch = [Watch::new(listener.as_fd(), Interest::Read)];
        poll(&mut watch, Some(Duration::from_secs(5))).unwrap();
        let (server, _) = accept(&listener).unwrap();
        reset_on_close(&server);
        drop(server);
        let error = client.read(&mut [0u8; 1]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    }

    #[test]
    fn the_limit_of_open_files_is_checked() {
        assert!(raise_nofile_limit(16).unwrap() >= 16);
        let error = raise_nofile_limit(u64::MAX);
        assert!(
            matches!(error, Ok(u64::MAX) | Err(NofileError::TooLow { .. })),
            "{error:?}"
        );
    }

    #[test]
    fn random_bytes_differ() {
        let (a, b) = (random_bytes::<32>().unwrap(), random_bytes::<32>().unwrap());
        assert_ne!(a, b);
    }
}
