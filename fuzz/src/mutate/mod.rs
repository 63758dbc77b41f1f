//! Changing an input so that most of it still makes sense.

pub mod bytes;
pub mod json;
pub mod text;
