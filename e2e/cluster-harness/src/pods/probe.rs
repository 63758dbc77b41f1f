//! Runs readiness probes.

use std::time::Duration;

use kube::client::Body;

use super::readiness::{HttpProbe, Readiness};

impl Readiness {
    /// Tells `ready` each time that the answer changes; never returns.
    pub(super) async fn watch(&self, ready: impl Fn(bool)) {
        match self {
            Self::Alive => {
                ready(true);
                std::future::pending().await
            }
            Self::Http(probe) => probe.watch(ready).await,
        }
    }
}

impl HttpProbe {
    async fn watch(&self, ready: impl Fn(bool)) {
        tokio::time::sleep(self.initial_delay).await;

        let (mut good, mut bad) = (0, 0);
        loop {
            match tokio::time::timeout(self.timeout, self.get()).await {
                Ok(Ok(status)) if (200..400).contains(&status) => (good, bad) = (good + 1, 0),
                answer => {
                    tracing::debug!(
                        ?answer,
                        port = self.port,
                        path = self.path,
                        "the readiness probe failed"
                    );
                    (good, bad) = (0, bad + 1);
                }
            }

            if good >= self.successes {
                ready(true);
            } else if bad >= self.failures {
                ready(false);
            }

            // A process that has just started is asked often, so that a test need not wait a whole period for it.
            let pause = if good == 0 {
                self.period.min(Duration::from_millis(250))
            } else {
                self.period
            };

            tokio::time::sleep(pause).await;
        }
    }

    async fn get(&self) -> Result<u16, Box<dyn std::error::Error + Send + Sync>> {
        let mut config = kube::Config::new(format!("{}://127.0.0.1:{}", self.scheme, self.port).parse()?);
        config.accept_invalid_certs = true;
        let request = http::Request::get(self.path.as_str()).body(Body::empty())?;
        // A client of its own each time: the kubelet does not keep connections of probes either.
        Ok(kube::Client::try_from(config)?.send(request).await?.status().as_u16())
    }
}
