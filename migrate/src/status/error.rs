//! Why `outrigger status` fails.

use outrigger_shared::migration::condition;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("migrations cannot be read: {0}; kubectl auth can-i list cloudprovidermigrations")]
    NotRead(String),
    #[error("no CloudProviderMigration {name:?}; there {}", listed(.known))]
    NoSuchMigration { name: String, known: Vec<String> },
    #[error("the cluster has several CloudProviderMigrations; name one of {}", .0.join(", "))]
    Several(Vec<String>),
    #[error("{name:?} is no condition; one of {}, {}", condition::ALL.join(", "), condition::OF_WEBHOOK.join(", "))]
    NoSuchCondition { name: String },
    #[error("there is no CloudProviderMigration: Outrigger is not installed; outrigger check says what is in the way")]
    NotInstalled,
}

fn listed(names: &[String]) -> String {
    match names {
        [] => "is none".to_owned(),
        names => format!("are {}", names.join(", ")),
    }
}
