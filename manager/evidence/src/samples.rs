//! Facts for tests.

use std::time::Duration;

use outrigger_shared::component::Form;
use outrigger_shared::leader_migration::Placement;
use outrigger_shared::migration::{Attestation, Phase};

use crate::facts::{
    Configuration, ControllerManager, ControllerManagers, Facts, LeaseFacts, Lock, OwnSettings, Reading, WatchFailure,
};
use crate::gate::{Inputs, MigrationSpec};
use crate::latch::Stored;

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

/// Phase Migrate with external kube-controller-managers and a latch, and M free.
pub fn migrating() -> Inputs {
    let mut facts = complete();
    facts.controller_managers = seen(vec![kcm(EXTERNAL)]);
    facts.migration = LeaseFacts {
        read: true,
        idle: true,
        ..LeaseFacts::default()
    };
    let spec = MigrationSpec {
        uid: "u".into(),
        generation: 4,
        phase: Phase::Migrate,
        attestation: None,
        seen_unattested: true,
    };
    Inputs {
        spec: Reading::Known(spec),
        latch: latch(Phase::Migrate, ""),
        facts,
        identity: "us".into(),
        holding: false,
        offer_due: false,
        yielded: true,
    }
}

/// A latch of this phase with further fields.
pub fn latch(phase: Phase, fields: &str) -> Stored {
    let text = format!(r#"{{"version":1,"uid":"u","phase":"{phase}","seenUnattested":true{fields}}}"#);
    let latch = Stored::read(Some(&text));
    assert!(matches!(latch, Stored::Latch(_)), "{text}");
    latch
}

pub fn attest(phase: Phase) -> Option<Attestation> {
    Some(Attestation {
        phase,
        holders: Vec::new(),
    })
}

pub fn in_phase(mut inputs: Inputs, phase: Phase) -> Inputs {
    if let Reading::Known(spec) = &mut inputs.spec {
        spec.phase = phase;
    }
    inputs
}

/// In-tree without leader migration, on another host than the holder of K.
pub fn standby() -> ControllerManager {
    ControllerManager {
        object: "Pod tenant/kcm-1".into(),
        host_names: vec!["kcm-1".into()],
        ..kcm(UNGUARDED)
    }
}

pub fn holding() -> Inputs {
    let mut inputs = migrating();
    inputs.holding = true;
    inputs
}

/// This manager has held M, and an unguarded kube-controller-manager holds K now.
pub fn beside_unguarded(mut inputs: Inputs) -> Inputs {
    inputs.latch = latch(Phase::Migrate, r#","heldBy":"us""#);
    inputs.facts.controller_managers = seen(vec![kcm(UNGUARDED)]);
    inputs
}
