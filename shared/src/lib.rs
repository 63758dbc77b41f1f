//! Types and pure rules that the webhook, the manager and the tools agree on.
