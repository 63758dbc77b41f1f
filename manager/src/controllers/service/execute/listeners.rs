//! Changes of classic listeners without a gap where AWS permits it, and with the old listener where AWS refuses the new
//! one.

use std::slice;

use outrigger_aws::Kind;
use outrigger_aws::elb::Listener;

use super::super::error::Error;
use super::super::plan::FormerListener;
use super::{Executor, is};

const CREATE: &str = "CreateLoadBalancerListeners";

impl Executor<'_> {
    /// Without the permission the listener is created again, as in v1.37.
    pub(super) async fn set_certificate(&self, former: &FormerListener, certificate: &str) -> Result<(), Error> {
        const ACTION: &str = "SetLoadBalancerListenerSSLCertificate";

        let (name, port) = (self.load_balancer, former.listener.port);
        let call = self.context.aws.elb.set_listener_certificate(name, port, certificate);
        let set = self.write(ACTION, call).await;
        if !matches!(&set, Err(Error::Aws(error)) if error.is_denied_action()) {
            return set;
        }

        tracing::warn!(
            load_balancer = name,
            port,
            "AWS denies {ACTION}; creating the listener again, which interrupts its traffic"
        );
        let new = Listener {
            certificate: Some(certificate.to_owned()),
            ..former.listener.clone()
        };
        self.replace_listeners(slice::from_ref(former), &[new]).await?;

        // The other steps of the plan expect the policies that the listener had.
        self.set_policies(former).await
    }

    /// If AWS refuses the new listeners, for example because of their certificate, ports that the Service requests get
    /// their old ones again.
    pub(super) async fn replace_listeners(&self, old: &[FormerListener], new: &[Listener]) -> Result<(), Error> {
        let (name, elb) = (self.load_balancer, &self.context.aws.elb);
        let ports: Vec<i32> = old.iter().map(|former| former.listener.port).collect();
        let deleted = elb.delete_listeners(name, &ports);
        self.write("DeleteLoadBalancerListeners", deleted).await?;
        let created = self.write(CREATE, elb.create_listeners(name, new)).await;

        if matches!(created, Err(Error::Aws(_))) {
            let is_requested = |former: &&FormerListener| new.iter().any(|new| new.port == former.listener.port);
            for former in old.iter().filter(is_requested) {
                self.restore(former).await;
            }
        }

        created
    }

    /// A failure is logged only: the Service fails with the reason why its new listener was refused.
    async fn restore(&self, former: &FormerListener) {
        let (name, port) = (self.load_balancer, former.listener.port);
        let call = self
            .context
            .aws
            .elb
            .create_listeners(name, slice::from_ref(&former.listener));
        let created = self.write(CREATE, call).await;
        if is(&created, Kind::AlreadyExists) {
            // AWS has created the new listener, although the response was an error.
            return;
        }

        let restored = match created {
            Ok(()) => self.set_policies(former).await,
            Err(error) => Err(error),
        };
        match restored {
            Ok(()) => tracing::warn!(
                load_balancer = name,
                port,
                "created the old listener again: its replacement failed"
            ),
            Err(error) => tracing::warn!(
                load_balancer = name,
                port,
                error = error.chain(),
                "failed to create the old listener again"
            ),
        }
    }

    async fn set_policies(&self, former: &FormerListener) -> Result<(), Error> {
        let (name, elb) = (self.load_balancer, &self.context.aws.elb);
        let (port, instance_port) = (former.listener.port, former.listener.instance_port);
        if !former.policies.is_empty() {
            let call = elb.set_listener_policies(name, port, &former.policies);
            self.write("SetLoadBalancerPoliciesOfListener", call).await?;
        }

        if !former.backend_policies.is_empty() {
            let call = elb.set_backend_policies(name, instance_port, &former.backend_policies);
            self.write("SetLoadBalancerPoliciesForBackendServer", call).await?;
        }

        Ok(())
    }
}
