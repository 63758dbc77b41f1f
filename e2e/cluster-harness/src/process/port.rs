//! Free ports.

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::sync::{Mutex, PoisonError};

use super::ProcessError;

/// Ports given out by this process, which never gives one out twice.
static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());

/// A port of 127.0.0.1 that nobody listens on right now.
///
/// It is bound and released, so until the child binds it another process may take it. The kernel walks through its
/// range of ephemeral ports, which makes that rare; a child that loses this race ends at once with "address already in
/// use", and the components of this crate are then started again on another port.
///
/// # Errors
/// [`ProcessError::Port`] when the kernel has none.
pub fn free_port() -> Result<u16, ProcessError> {
    loop {
        let listener = TcpListener::bind(("127.0.0.1", 0)).map_err(ProcessError::Port)?;
        let port = listener.local_addr().map_err(ProcessError::Port)?.port();
        if GIVEN.lock().unwrap_or_else(PoisonError::into_inner).insert(port) {
            return Ok(port);
        }
    }
}
