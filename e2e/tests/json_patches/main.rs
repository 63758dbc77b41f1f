//! API servers must be able to apply the webhook's patches, and must get what the webhook decided: each patch is applied with
//! the JSON patch library, the encoder and the decoder of Kubernetes 1.22, 1.26 and 1.36 (`e2e/tools/json-patch`). A patch
//! that does not apply rejects the write, although the failure policy is Ignore.
//!
//! | patches of | file |
//! |---|---|
//! | the golden cases | `golden.rs` |
//! | golden objects with further fields and texts that Go and Rust write differently | `altered.rs` |
//! | any value into any other | `values.rs` |
//!
//! `OUTRIGGER_JSON_PATCHES=100000` draws so many instead of some thousand. Each case depends on its number only.

#![allow(clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "test helpers")]

mod altered;
mod golden;
mod peer;
mod random;
mod values;

use anyhow::{Context, Result, ensure};
use json_patch::PatchOperation;
use serde_json::Value;

use peer::Peer;

/// How many cases are drawn.
fn count(usual: usize) -> usize {
    std::env::var("OUTRIGGER_JSON_PATCHES").map_or(usual, |text| text.parse().expect("a number"))
}

/// Compares a patch of the object that the API server sent with what it stores.
async fn compare(peer: &mut Peer, sent: &str, object: &Value, patch: &[PatchOperation]) -> Result<()> {
    let mut wanted = object.clone();
    json_patch::patch(&mut wanted, patch).context("the patch does not apply here")?;
    let wanted = peer.sent(&wanted).await?.context("the wanted object is none")?;

    let stored = peer.stored(sent, patch).await?;
    let text = serde_json::to_string(patch)?;
    let stored = stored.map_err(|error| anyhow::anyhow!("{}: {error}\n{sent}{text}", peer.name))?;
    ensure!(
        stored == wanted,
        "{}:\n{sent}with {text}\nis stored as\n{stored}instead of\n{wanted}",
        peer.name
    );
    Ok(())
}

/// A library that accepts everything would prove nothing.
#[tokio::test]
async fn a_test_of_a_text_that_go_escapes_fails() -> Result<()> {
    for mut peer in peer::all().await? {
        let object = serde_json::json!({"apiVersion": "example.dev/v1", "kind": "One", "spec": {"a": "<", "b": "x"}});
        let sent = peer.sent(&object).await?.context("an object")?;
        for (place, is_refused) in [("a", true), ("b", false)] {
            let path = format!("/spec/{place}");
            let test = serde_json::json!([{"op": "test", "path": path, "value": object["spec"][place]}]);
            let operations: Vec<PatchOperation> = serde_json::from_value(test)?;
            let stored = peer.stored(&sent, &operations).await?;
            ensure!(stored.is_err() == is_refused, "{}: {path}: {stored:?}", peer.name);
        }
    }
    Ok(())
}
