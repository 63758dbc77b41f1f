//! Permissions of the tagging controller that its role lacks: an Event names the action, and other work is done.

use std::sync::atomic::Ordering;

use super::node_support::eventually;
use super::{BATCHED, Flags, Running, SINGLE, labelled, lines, node, pause, refusal, start, world};

/// How many Events of denied actions name this action, the Node and the instance.
fn reports(running: &Running, action: &str, id: &str) -> usize {
    let named = |message: &&String| {
        message.starts_with("Warning TaggingActionDenied default: ")
            && message.contains(&format!("instance {id} of Node {id},"))
            && message.contains(&format!("allow ec2:{action} to the cloud controller manager's role"))
    };
    running.api.messages().iter().filter(named).count()
}

#[tokio::test(start_paused = true)]
async fn each_denied_action_is_reported_once_by_an_event_and_again_while_it_lasts() {
    let aws = world(&["i-1", "i-2", "i-3"]);
    aws.deny("ec2:CreateTags");
    aws.deny("ec2:DeleteTags");
    let nodes = vec![node("i-1"), node("i-2"), labelled("i-3", super::LABEL)];
    let running = start(nodes, aws, SINGLE);
    pause(10).await;
    running.api.remove("i-3");
    pause(20 * 60).await;
    assert_eq!(
        reports(&running, "CreateTags", "i-1"),
        1,
        "{:#?}",
        running.api.messages()
    );
    assert_eq!(
        reports(&running, "DeleteTags", "i-3"),
        1,
        "{:#?}",
        running.api.messages()
    );
    assert_eq!(running.api.messages().len(), 2, "{:#?}", running.api.messages());
    pause(15 * 60).await;
    assert_eq!(
        running.api.messages().len(),
        4,
        "the API server keeps an Event for an hour"
    );
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn tags_are_removed_although_setting_them_is_denied() {
    let aws = world(&["i-1", "i-2"]);
    aws.change(|world| {
        let instance = world.instances.get_mut(&outrigger_aws::InstanceId::new("i-2"));
        instance.unwrap().tags.extend(super::TAGS.clone());
    });
    aws.deny("ec2:CreateTags");
    let running = start(vec![node("i-1"), labelled("i-2", super::LABEL)], aws, SINGLE);
    pause(10).await;
    running.api.remove("i-2");
    let removed = || super::TAGS.keys().all(|key| !running.tags("i-2").contains_key(key));
    eventually("the tags of the removed Node's instance are removed", removed).await;
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_minute_without_permission_costs_few_calls_and_lines_and_ends_by_itself() {
    for flags in [
        Flags {
            calls_at_once: 10,
            ..SINGLE
        },
        BATCHED,
    ] {
        let (lines, _guard) = lines();
        let ids: Vec<String> = (0..300).map(|n| format!("i-{n:04x}")).collect();
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        let aws = world(&ids);
        for _ in 0..40 {
            aws.fail_next("CreateTags", refusal("CreateTags", "UnauthorizedOperation"));
        }
        let running = start(ids.iter().map(|id| node(id)).collect(), aws, flags);
        pause(60).await;
        assert!(running.calls("CreateTags") <= 16, "{}", running.calls("CreateTags"));
        assert!(lines.0.load(Ordering::Relaxed) <= 3);
        pause(40 * 60).await;
        eventually("tagged", || ids.iter().all(|id| running.is_tagged(id))).await;
        running.end().await;
    }
}
