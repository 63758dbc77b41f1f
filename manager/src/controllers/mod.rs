//! The controllers. They do not know each other.
