//! The only crate that knows the AWS SDKs: narrow traits, adapters, one error table.
