//! Serving certificates: load, reload, issue, and the CA bundle with overlap.
