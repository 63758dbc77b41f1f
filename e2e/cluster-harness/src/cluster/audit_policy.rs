//! The API server's audit policy.

/// Every change of anything, and all requests for the kinds that a migration is about: metadata only, so that the log
/// says who did what when and stays small. One line for each request, when its response is complete; watches also
/// when they begin.
pub const POLICY: &str = "\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  verbs: [create, update, patch, delete, deletecollection]
- level: Metadata
  resources:
  - group: coordination.k8s.io
    resources: [leases]
  - group: ''
    resources: [services, services/status, nodes, nodes/status]
- level: None
";
