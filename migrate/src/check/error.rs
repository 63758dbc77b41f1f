//! Why the commands that look at a cluster fail.

use crate::facts::collect;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Collect(#[from] collect::Error),
    #[error("{file}: {reason}")]
    File { file: String, reason: String },
    #[error("no context of the kubeconfig has a name like {0:?}; kubectl config get-contexts lists them")]
    NoContext(String),
    #[error("--{flag}={value:?} is no check; outrigger check --explain all lists them")]
    NoCheck { flag: &'static str, value: String },
    #[error("--wait and --context={0:?}: a wait is for one cluster; name one context")]
    WaitOfSeveral(String),
    #[error("cannot start: {0}")]
    Runtime(std::io::Error),
}
