//! Patches of one value into another, as the builder writes them.

use anyhow::{Context, Result, ensure};
use outrigger_decide::patch::{Builder, Path};
use serde_json::{Value, json};

use crate::random::Random;
use crate::{compare, count, peer};

#[tokio::test]
async fn any_value_becomes_any_other() -> Result<()> {
    let mut peers = peer::all().await?;
    let mut changed = 0;
    for number in 0..count(3000) {
        let mut random = Random::of_case(number);
        let before = custom_resource(Value::Object(random.object(4)));
        let wanted = altered(&mut random, &before["spec"], 4);

        for peer in &mut peers {
            let sent = peer.sent(&before).await?.context("an object")?;
            let object: Value = serde_json::from_str(&sent)?;
            let mut builder = Builder::default();
            builder.value(&Path::new(&["spec"]), &object["spec"], &wanted);
            let patch = builder.finish();
            changed += usize::from(!patch.is_empty());
            if !patch.is_empty() {
                compare(peer, &sent, &object, &patch)
                    .await
                    .with_context(|| format!("case {number}"))?;
            }
        }
    }
    println!("{changed} patches");
    ensure!(changed > count(3000), "only {changed} patches");
    Ok(())
}

fn custom_resource(spec: Value) -> Value {
    json!({"apiVersion": "example.dev/v1", "kind": "One", "metadata": {"name": "one"}, "spec": spec})
}

/// The value with some parts replaced, removed and added.
fn altered(random: &mut Random, value: &Value, depth: usize) -> Value {
    match value {
        Value::Object(fields) => {
            let mut fields = fields.clone();
            fields.retain(|_, _| random.below(6) > 0);
            for part in fields.values_mut().filter(|_| depth > 0) {
                *part = altered(random, part, depth - 1);
            }
            fields.extend(random.object(depth.saturating_sub(1)));
            Value::Object(fields)
        }
        Value::Array(items) => {
            let mut items: Vec<Value> = items.iter().filter(|_| random.below(6) > 0).cloned().collect();
            items.insert(random.below(items.len() + 1), random.value(depth.saturating_sub(1)));
            Value::Array(items)
        }
        other if random.below(2) == 0 => other.clone(),
        _ => random.value(depth),
    }
}
