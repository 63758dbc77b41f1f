//! Facts for tests.

use std::time::Duration;

use outrigger_shared::component::Form;
use outrigger_shared::leader_migration::Placement;

use crate::facts::{
    Configuration, ControllerManager, ControllerManagers, Facts, LeaseFacts, Lock, OwnSettings, WatchFailure,
};

/// A watch without the right to it.
pub fn forbidden() -> WatchFailure {
    WatchFailure {
        message: "leases is forbidden".into(),
        is_forbidden: true,
    }
}

/// A watch that fails for another reason.
pub fn broken() -> WatchFailure {
    WatchFailure {
        message: "the answer has no resourceVersion".into(),
        is_forbidden: false,
    }
}

pub fn kcm(form: Form) -> ControllerManager {
    ControllerManager {
        object: "Pod tenant/kcm-0".into(),
        host_names: vec!["kcm-0".into()],
        host_prefix: None,
        form,
        lock: Lock::Main,
        configuration: Configuration::BuiltIn,
        routes: false,
        node_ipam: Placement::NotHere,
        disabled: Vec::new(),
        running: true,
        must_change: false,
        current: true,
    }
}

pub fn seen(all: Vec<ControllerManager>) -> ControllerManagers {
    ControllerManagers {
        read: true,
        seen: all,
        unreadable: Vec::new(),
        ignored: Vec::new(),
        current: true,
    }
}

pub fn unreadable() -> ControllerManagers {
    ControllerManagers {
        unreadable: vec!["Namespace tenant: forbidden".into()],
        ..seen(Vec::new())
    }
}

pub fn held(holder: &str) -> LeaseFacts {
    LeaseFacts {
        read: true,
        live_holder: Some(holder.into()),
        holder: Some(holder.into()),
        named_holder: Some(holder.into()),
        duration: Some(Duration::from_secs(15)),
        ..LeaseFacts::default()
    }
}

/// A lease that this process may not watch.
pub fn refused() -> LeaseFacts {
    LeaseFacts {
        read: true,
        failure: Some(forbidden()),
        ..LeaseFacts::default()
    }
}

pub const GUARDED: Form = Form::InTree { leader_migration: true };
pub const UNGUARDED: Form = Form::InTree {
    leader_migration: false,
};
pub const EXTERNAL: Form = Form::External {
    leader_migration: false,
};

pub fn complete() -> Facts {
    Facts {
        controller_managers: seen(vec![kcm(GUARDED)]),
        main: held("kcm-0_a"),
        migration: held("kcm-0_a"),
        proven: Vec::new(),
        attestation: None,
        led_before: None,
        own: OwnSettings {
            routes: false,
            node_ipam: Placement::NotHere,
            renew_deadline: Duration::from_secs(10),
        },
    }
}
