//! Free ports.

use std::fs::{File, TryLockError};
use std::io;
use std::net::TcpListener;
use std::sync::{Mutex, PoisonError};

use super::ProcessError;

/// The locks of the ports that this process has given out. The kernel releases them when the process ends.
static GIVEN: Mutex<Vec<File>> = Mutex::new(Vec::new());

/// A port of 127.0.0.1 that nobody listens on right now.
///
/// It is bound and released, so until the child binds it another process may take it. Processes that use this function
/// never do so: each port has a lock file in the system's temporary folder. A child that loses the race against another
/// process ends at once with "address already in use", and the components of this crate are then started again on
/// another port.
///
/// # Errors
/// [`ProcessError::Port`] when the kernel has none, or a lock file cannot be made.
pub fn free_port() -> Result<u16, ProcessError> {
    loop {
        let listener = TcpListener::bind(("127.0.0.1", 0)).map_err(ProcessError::Port)?;
        let port = listener.local_addr().map_err(ProcessError::Port)?.port();
        if let Some(lock) = lock(port).map_err(ProcessError::Port)? {
            GIVEN.lock().unwrap_or_else(PoisonError::into_inner).push(lock);
            return Ok(port);
        }
    }
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
