//! Reviews of each kind of object, and streams of them.

use bytes::Bytes;
use serde_json::{Value, json};

use super::objects;

/// The placeholder of the UID in the text of a review.
const UID: &str = "00000000-0000-4000-8000-000000000000";

/// The objects of the reviews.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Object {
    /// A Node at its creation, to which the webhook adds the taint.
    Node,
    /// An unchanged Pod.
    Pod,
    /// The Deployment of a kube-controller-manager, whose flags the webhook changes.
    ControllerManager,
    /// An unchanged Pod of 100 KiB.
    Big,
}

impl Object {
    pub const ALL: [Self; 4] = [Self::Node, Self::Pod, Self::ControllerManager, Self::Big];

    /// Whether a right answer changes it.
    pub const fn is_changed(self) -> bool {
        matches!(self, Self::Node | Self::ControllerManager)
    }

    const fn index(self) -> usize {
        match self {
            Self::Node => 0,
            Self::Pod => 1,
            Self::ControllerManager => 2,
            Self::Big => 3,
        }
    }
}

/// The order of objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stream {
    /// Always the same one.
    Only(Object),
    /// Of twenty: fifteen Pods, two Nodes, two Deployments, one big Pod.
    Mixed,
}

impl Stream {
    /// In the order of the table.
    pub const ALL: [Self; 5] = [
        Self::Only(Object::Node),
        Self::Only(Object::Pod),
        Self::Only(Object::ControllerManager),
        Self::Only(Object::Big),
        Self::Mixed,
    ];

    /// The object of the request with this number.
    pub const fn object(self, number: u64) -> Object {
        match (self, number % 20) {
            (Self::Only(object), _) => object,
            (Self::Mixed, 3 | 13) => Object::Node,
            (Self::Mixed, 7 | 17) => Object::ControllerManager,
            (Self::Mixed, 10) => Object::Big,
            (Self::Mixed, _) => Object::Pod,
        }
    }

    /// Its name in the table.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Only(Object::Node) => "Node, changed",
            Self::Only(Object::Pod) => "Pod, unchanged",
            Self::Only(Object::ControllerManager) => "Deployment, changed",
            Self::Only(Object::Big) => "Pod of 100 KiB, unchanged",
            Self::Mixed => "mixed",
        }
    }
}

/// One review, without its UID.
#[derive(Debug, Clone)]
pub struct Review {
    /// The object inside.
    pub object: Value,
    before: Bytes,
    after: Bytes,
}

impl Review {
    fn new(object: Value, group: &str, resource: &str) -> Self {
        let metadata = &object["metadata"];
        let version = "v1";
        let kind = json!({"group": group, "version": version, "kind": object["kind"]});
        let resource = json!({"group": group, "version": version, "resource": resource});
        let user = json!({"username": "system:serviceaccount:example:writer", "uid": "7d2f6a4e-8f5c-4f0e-b0a5-3f1f2b1c9d8e",
            "groups": ["system:serviceaccounts", "system:serviceaccounts:example", "system:authenticated"]});
        let request = json!({
            "uid": UID, "kind": kind, "resource": resource, "requestKind": kind, "requestResource": resource,
            "name": metadata["name"].as_str().unwrap_or_default(), "namespace": metadata["namespace"].as_str().unwrap_or_default(),
            "operation": "CREATE", "userInfo": user, "object": object, "oldObject": null, "dryRun": false,
            "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1", "fieldManager": "writer"},
        });
        let text =
            json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request}).to_string();
        let (before, after) = text.split_once(UID).unwrap_or((&text, ""));

        Self {
            before: Bytes::copy_from_slice(before.as_bytes()),
            after: Bytes::copy_from_slice(after.as_bytes()),
            object,
        }
    }

    /// The body of a request with this UID.
    pub fn body(&self, uid: &str) -> Bytes {
        [&self.before, uid.as_bytes(), &self.after].concat().into()
    }
}

/// The UID of the request with this number. All have the same length.
pub fn uid(number: u64) -> String {
    format!("0e2e0000-0000-4000-8000-{number:012x}")
}

/// One review for each object.
#[derive(Debug, Clone)]
pub struct Reviews([Review; 4]);

impl Default for Reviews {
    fn default() -> Self {
        Self(Object::ALL.map(|object| match object {
            Object::Node => Review::new(objects::node(), "", "nodes"),
            Object::Pod => Review::new(objects::small_pod(), "", "pods"),
            Object::ControllerManager => Review::new(objects::controller_manager(), "apps", "deployments"),
            Object::Big => Review::new(objects::big_pod(), "", "pods"),
        }))
    }
}

impl Reviews {
    pub const fn of(&self, object: Object) -> &Review {
        let Self(reviews) = self;
        &reviews[object.index()]
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::{Object, Reviews, Stream, uid};

    #[test]
    fn each_request_carries_its_own_uid_and_a_whole_object() {
        let reviews = Reviews::default();
        for object in Object::ALL {
            let review = reviews.of(object);
            let body: Value = serde_json::from_slice(&review.body(&uid(7))).expect("JSON");
            assert_eq!(body["request"]["uid"], "0e2e0000-0000-4000-8000-000000000007");
            assert_eq!(body["request"]["object"], review.object);
        }
        assert_ne!(uid(1), uid(2));
        assert_eq!(uid(u64::from(u32::MAX)).len(), super::UID.len());
    }

    #[test]
    fn the_big_object_has_100_kib_and_the_others_far_less() {
        let reviews = Reviews::default();
        let size = |object| reviews.of(object).body(&uid(1)).len();
        assert!(
            (100 * 1024..110 * 1024).contains(&size(Object::Big)),
            "{}",
            size(Object::Big)
        );
        assert!(size(Object::Pod) < 5000, "{}", size(Object::Pod));
    }

    #[test]
    fn the_mixed_stream_has_the_documented_shares() {
        let count = |wanted| (0..20).filter(|number| Stream::Mixed.object(*number) == wanted).count();
        assert_eq!(Object::ALL.map(count), [2, 15, 2, 1]);
    }
}
