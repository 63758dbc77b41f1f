//! EC2.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use super::groups;
use super::upstream::{Reply, Upstream, corrected, read, set, without};
use crate::fleet::unknown_instances;
use crate::query::{Parameters, Query};
use crate::service::Service;
use crate::xml::{Element, XmlError};

const ATTACHMENT_STATUS: &str = "attachment.status";

#[derive(Debug, Default)]
pub(super) struct Memory {
    terminated: Mutex<BTreeSet<String>>,
    /// Instances that somebody has stopped.
    stopped: Mutex<BTreeSet<String>>,
}

impl Memory {
    pub(super) async fn answer<U: Upstream>(&self, moto: &U, query: Query) -> Result<Reply, XmlError> {
        let ec2 = &Service::Ec2;
        match query.action.as_str() {
            "DescribeInstanceTopology" => Ok(Reply::from(&empty_topology(ec2))),
            "DescribeNetworkInterfaces" => {
                let filters = query.parameters.filters();
                let Some((_, wanted)) = filters.iter().find(|(name, _)| *name == ATTACHMENT_STATUS) else {
                    return Ok(Reply::Moto(moto.ask(ec2, &query).await));
                };
                let keep = |answer: &mut Element| keep_attachments(answer, wanted);
                corrected(moto, ec2, &without_attachment_status(&query), keep).await
            }
            "DescribeRouteTables" => {
                let terminated = self.terminated.lock().unwrap_or_else(PoisonError::into_inner).clone();
                if terminated.is_empty() {
                    return Ok(Reply::Moto(moto.ask(ec2, &query).await));
                }

                let blackholes = |answer: &mut Element| {
                    if let Some(tables) = answer.find_mut("routeTableSet") {
                        blackholes(tables, &terminated);
                    }
                };

                corrected(moto, ec2, &query, blackholes).await
            }
            "CreateTags" => create_tags(moto, &query).await,
            "DeleteSecurityGroup" => groups::delete(moto, &query).await,
            "StartInstances" | "StopInstances" => {
                let response = moto.ask(ec2, &query).await;
                if response.status().is_success() {
                    self.note_state(&query);
                }
                Ok(Reply::Moto(response))
            }
            _ => Ok(Reply::Moto(moto.ask(ec2, &query).await)),
        }
    }

    fn note_state(&self, query: &Query) {
        let mut stopped = self.stopped.lock().unwrap_or_else(PoisonError::into_inner);
        for id in query.parameters.list("InstanceId") {
            if query.action == "StopInstances" {
                stopped.insert(id.to_owned());
            } else {
                stopped.remove(id);
            }
        }
    }

    /// AWS's refusal of targets that do not run, none of which it registers then.
    pub(super) fn refused_targets(&self, query: &Query) -> Option<Reply> {
        if query.action != "RegisterTargets" {
            return None;
        }

        let stopped = self.stopped.lock().unwrap_or_else(PoisonError::into_inner);
        let wanted = query.parameters.iter().filter(|(key, _)| key.ends_with(".Id"));
        let refused: BTreeSet<&str> = wanted.map(|(_, id)| id).filter(|id| stopped.contains(*id)).collect();
        let named = refused
            .iter()
            .map(|id| format!("'{id}'"))
            .collect::<Vec<_>>()
            .join(", ");
        let message = format!("The following targets are not in a running state and cannot be registered: {named}");

        (!refused.is_empty()).then_some(Reply::Refused("InvalidTarget", message))
    }

    pub(super) fn terminated(&self, ids: &[&str]) {
        let mut terminated = self.terminated.lock().unwrap_or_else(PoisonError::into_inner);
        terminated.extend(ids.iter().map(|id| (*id).to_owned()));
    }
}

fn empty_topology(service: &Service) -> Element {
    let mut answer = Element::parent(
        "DescribeInstanceTopologyResponse",
        [Element::text("requestId", "gap"), Element::parent("instanceSet", [])],
    );
    answer.attributes.push(("xmlns".to_owned(), service.namespace()));
    answer
}

/// moto knows no such filter, so it is left out and the others are numbered anew.
fn without_attachment_status(query: &Query) -> Query {
    let others = without(query, &["Filter"]);
    let filters = query.parameters.filters();
    let kept = filters.iter().filter(|(name, _)| *name != ATTACHMENT_STATUS);
    let renumbered = (1..).zip(kept).flat_map(|(number, (name, values))| {
        let values = (1..).zip(values);
        let values = values.map(move |(index, value)| (format!("Filter.{number}.Value.{index}"), *value));
        [(format!("Filter.{number}.Name"), *name)].into_iter().chain(values)
    });

    let unchanged = others.parameters.iter().map(|(key, value)| (key.to_owned(), value));
    Query {
        parameters: unchanged.chain(renumbered).collect(),
        ..others.clone()
    }
}

fn keep_attachments(answer: &mut Element, wanted: &[&str]) {
    if let Some(set) = answer.find_mut("networkInterfaceSet") {
        set.children.retain(|interface| {
            let status = interface
                .at(&["attachment", "status"])
                .map_or("", |status| status.text.as_str());
            wanted.contains(&status)
        });
    }
}

/// AWS keeps the route to a terminated instance as a blackhole.
fn blackholes(tables: &mut Element, terminated: &BTreeSet<String>) {
    let routes = tables
        .children
        .iter_mut()
        .filter_map(|table| table.child_mut("routeSet"));
    for route in routes.flat_map(|routes| &mut routes.children) {
        if terminated.contains(route.value("instanceId")) {
            route.children.retain(|field| field.name != "instanceId");
            set(route, Element::text("networkInterfaceId", "eni-gone"));
            set(route, Element::text("state", "blackhole"));
        }
    }
}

/// Tags resources, if all instances among them exist: EC2 tags nothing at all with a call that names an instance which
/// does not exist.
async fn create_tags<U: Upstream>(moto: &U, asked: &Query) -> Result<Reply, XmlError> {
    Ok(match unknown_instances(&unknown(moto, asked).await?) {
        Some((code, message)) => Reply::Refused(code, message),
        None => Reply::Moto(moto.ask(&Service::Ec2, asked).await),
    })
}

async fn unknown<'a, U: Upstream>(moto: &U, asked: &'a Query) -> Result<Vec<&'a str>, XmlError> {
    let mut ids = asked.parameters.list("ResourceId");
    ids.retain(|id| id.starts_with("i-"));
    if ids.is_empty() {
        return Ok(ids);
    }

    let values = Parameters::numbered("Filter.1.Value", ids.iter().copied());
    let filter = [("Filter.1.Name", "instance-id")].into_iter().chain(values.iter());
    let describe = Query::new(&Service::Ec2, "DescribeInstances", filter.collect());
    let answer = read(moto, &Service::Ec2, &describe).await?.unwrap_or_default();
    let reservations = answer.items("reservationSet").iter();
    let instances = reservations.flat_map(|reservation| reservation.items("instancesSet"));
    let known: BTreeSet<&str> = instances.map(|instance| instance.value("instanceId")).collect();
    ids.retain(|id| !known.contains(id));

    Ok(ids)
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{Script, body};
    use super::{Memory, Reply};
    use crate::query::Query;

    fn query(form: &str) -> Query {
        Query::parse(form.as_bytes())
    }

    #[tokio::test]
    async fn targets_that_are_stopped_are_refused_with_their_whole_call_until_they_run_again() {
        let (moto, memory) = (Script::answering("<R/>"), Memory::default());
        let register = query(
            "Action=RegisterTargets&Version=2015-12-01&Targets.member.1.Id=i-1&Targets.member.2.Id=i-2&Targets.member.2.Port=1",
        );
        let refused = || memory.refused_targets(&register);
        assert!(refused().is_none());
        let stop = query("Action=StopInstances&Version=2016-11-15&InstanceId.1=i-2");
        body(memory.answer(&moto, stop).await);
        assert!(
            matches!(refused(), Some(Reply::Refused("InvalidTarget", words)) if words.contains("'i-2'") && !words.contains("i-1"))
        );
        let deregister = query("Action=DeregisterTargets&Version=2015-12-01&Targets.member.1.Id=i-2");
        assert!(memory.refused_targets(&deregister).is_none());
        let start = query("Action=StartInstances&Version=2016-11-15&InstanceId.1=i-2");
        body(memory.answer(&moto, start).await);
        assert!(refused().is_none());
    }

    #[tokio::test]
    async fn topology_is_an_empty_set() {
        let moto = Script::default();
        let asked = query("Action=DescribeInstanceTopology&Version=2016-11-15");
        let answer = body(Memory::default().answer(&moto, asked).await);
        assert_eq!(answer.child("instanceSet").map(|set| set.children.len()), Some(0));
        assert!(moto.asked().is_empty());
    }

    #[tokio::test]
    async fn a_route_to_a_terminated_instance_is_a_blackhole_and_others_are_not() {
        let memory = Memory::default();
        memory.terminated(&["i-1"]);
        let route = |id: &str| format!("<item><instanceId>{id}</instanceId><state>active</state></item>");
        let moto = Script::answering(&format!(
            "<R><routeTableSet><item><routeSet>{}{}</routeSet></item></routeTableSet></R>",
            route("i-1"),
            route("i-2")
        ));
        let asked = query("Action=DescribeRouteTables&Version=2016-11-15");
        let answer = body(memory.answer(&moto, asked).await);
        let routes = answer.find("routeSet").expect("there").children.clone();
        let seen: Vec<_> = routes
            .iter()
            .map(|r| (r.value("instanceId"), r.value("state")))
            .collect();
        assert_eq!(seen, [("", "blackhole"), ("i-2", "active")]);
    }

    #[tokio::test]
    async fn interfaces_are_filtered_by_attachment_here() {
        let asked = query(
            "Action=DescribeNetworkInterfaces&Version=2016-11-15&Filter.1.Name=attachment.status&Filter.1.Value.1=attached&Filter.2.Name=private-ip-address&Filter.2.Value.1=10.0.0.1",
        );
        let moto = Script::answering(
            "<R><networkInterfaceSet><item><networkInterfaceId>eni-1</networkInterfaceId><attachment><status>attached</status></attachment></item><item><networkInterfaceId>eni-2</networkInterfaceId></item></networkInterfaceSet></R>",
        );
        let answer = body(Memory::default().answer(&moto, asked).await);
        assert_eq!(
            moto.asked()[0].parameters.filters(),
            [("private-ip-address", vec!["10.0.0.1"])]
        );
        let ids: Vec<_> = answer
            .items("networkInterfaceSet")
            .iter()
            .map(|item| item.value("networkInterfaceId"))
            .collect();
        assert_eq!(ids, ["eni-1"]);
    }
}

#[cfg(test)]
mod tests_of_tags {
    use super::super::fixture::Script;
    use super::*;

    const KNOWN: &str = "<R><reservationSet><item><instancesSet><item><instanceId>i-1</instanceId></item>\
        <item><instanceId>i-2</instanceId></item></instancesSet></item></reservationSet></R>";

    async fn refusal(resources: &[&str]) -> Option<String> {
        let moto = Script::default()
            .on("DescribeInstances", KNOWN)
            .on("CreateTags", "<R/>");
        let numbered = resources.iter().zip(1..);
        let named: String = numbered.map(|(id, n)| format!("&ResourceId.{n}={id}")).collect();
        let asked = Query::parse(format!("Action=CreateTags&Version=2016-11-15{named}").as_bytes());
        let reply = create_tags(&moto, &asked).await.expect("XML");
        let tagged = moto.asked().iter().any(|query| query.action == "CreateTags");
        match reply {
            Reply::Refused(code, message) => {
                assert_eq!((code, tagged), ("InvalidInstanceID.NotFound", false));
                Some(message)
            }
            _ => {
                assert!(tagged);
                None
            }
        }
    }

    #[tokio::test]
    async fn one_unknown_instance_fails_the_call() {
        assert_eq!(refusal(&["i-1", "i-2"]).await, None);
        assert_eq!(
            refusal(&["sg-1", "subnet-1"]).await,
            None,
            "only instances are looked for"
        );
        let one = refusal(&["i-1", "i-3"]).await;
        assert_eq!(one.as_deref(), Some("The instance ID 'i-3' does not exist"));
        let two = refusal(&["i-4", "i-1", "i-3"]).await;
        assert_eq!(two.as_deref(), Some("The instance IDs 'i-4, i-3' do not exist"));
    }
}
