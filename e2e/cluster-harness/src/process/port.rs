//! Free ports.

use std::fs::{File, TryLockError};
use std::io;
use std::net::TcpListener;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use super::ProcessError;

/// The kernel gives ports from 32768 on to connections and to servers that leave the choice to it (Linux; macOS from 49152
/// on), and Kubernetes those from 30000 on to Services:
/// <https://docs.kernel.org/networking/ip-sysctl.html#ip-variables>.
const PORTS: Range<u16> = 15_000..30_000;

/// The locks of the ports that this process has given out. The kernel releases them when the process ends.
static GIVEN: Mutex<Vec<File>> = Mutex::new(Vec::new());

/// A port of 127.0.0.1 that nobody listens on, for a child that gets its port as an argument.
///
/// Until the child binds it, nobody else does. The kernel gives it to no connection and to no server of another test that
/// lets the kernel choose; and processes that use this function each lock a file of the port in the system's temporary
/// folder. A child that loses its port to a foreign process ends at once with "address already in use", and the
/// components of this crate are then started again on another port.
///
/// # Errors
/// [`ProcessError::Port`] when none is free, or a lock file cannot be made.
pub fn free_port() -> Result<u16, ProcessError> {
    let first = fastrand::u16(PORTS);
    for port in (first..PORTS.end).chain(PORTS.start..first) {
        match TcpListener::bind(("127.0.0.1", port)) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => continue,
            Err(error) => return Err(ProcessError::Port(error)),
        }

        if let Some(lock) = lock(port).map_err(ProcessError::Port)? {
            GIVEN.lock().unwrap_or_else(PoisonError::into_inner).push(lock);
            return Ok(port);
        }
    }

    Err(ProcessError::Port(io::ErrorKind::AddrInUse.into()))
}

/// The locked file of a port; none where it is locked already, by this process or by another one.
fn lock(port: u16) -> io::Result<Option<File>> {
    let folder = std::env::temp_dir().join("outrigger-ports");
    std::fs::create_dir_all(&folder)?;
    let file = File::options()
        .create(true)
        .append(true)
        .open(folder.join(port.to_string()))?;

    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server of another test, on a port of the kernel's choice, answered in place of a child that had not bound the
    /// same port yet.
    #[test]
    fn a_port_is_none_that_the_kernel_gives_to_others_and_none_that_was_given() {
        let mut given = std::collections::BTreeSet::new();
        for _ in 0..200 {
            let port = free_port().unwrap();
            assert!(given.insert(port), "{port} was given twice");
        }

        let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range");
        let first = range
            .ok()
            .and_then(|range| range.split_whitespace().next()?.parse().ok());
        let first: u16 = first.unwrap_or(32_768);
        if first < PORTS.end {
            println!("skipped: the kernel of this machine gives ports from {first} on");
            return;
        }
        assert_eq!(given.range(first..).next(), None);
    }
}
