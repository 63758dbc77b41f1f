//! The project's own manifests: rendered by kustomize, applied by server-side apply, as an operator would.

use std::path::{Component, Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, bail, ensure};
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::discovery::{self, Scope};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use outrigger_cluster_harness::repository;
use outrigger_cluster_harness::tools::{Tool, Tools};

/// The field manager of what the harness applies in the operator's place.
pub(crate) const OPERATOR: &str = "operator";

pub fn folder() -> PathBuf {
    repository::root().join("manifests")
}

/// Renders a kustomization of the project, by its path below `manifests/`, through an overlay of the operator's own in
/// `run`: `patches` is the overlay's text below its `resources`.
///
/// # Errors
/// When kustomize refuses it; its message is passed on.
pub async fn render(tools: &Tools, run: &Path, name: &str, path: &str, patches: &str) -> Result<Vec<Value>> {
    let overlay = run.join("kustomize").join(name);
    std::fs::create_dir_all(&overlay)?;

    let base = relative(&overlay.canonicalize()?, &folder().join(path).canonicalize()?);
    let text = format!(
        "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n- {}\n{patches}",
        base.display()
    );
    std::fs::write(overlay.join("kustomization.yaml"), text)?;

    build(tools, &overlay).await
}

/// As [`render`], with one of the project's components, by its name.
///
/// # Errors
/// As [`render`].
pub async fn with_component(tools: &Tools, run: &Path, path: &str, component: &str) -> Result<Vec<Value>> {
    let overlay = run.join("kustomize").join(component);
    std::fs::create_dir_all(&overlay)?;

    let folder = folder().join("components").join(component).canonicalize()?;
    let path_of_component = relative(&overlay.canonicalize()?, &folder);
    let text = format!("components:\n- {}\n", path_of_component.display());
    render(tools, run, component, path, &text).await
}

/// `kustomize build`, parsed.
///
/// # Errors
/// As [`render`].
pub async fn build(tools: &Tools, overlay: &Path) -> Result<Vec<Value>> {
    let output = tokio::process::Command::new(tools.path(Tool::Kustomize)?)
        .arg("build")
        .arg(overlay)
        .stdin(Stdio::null())
        .output()
        .await
        .context("running kustomize")?;

    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "kustomize build {}: {errors}",
        overlay.display()
    );

    let text = String::from_utf8(output.stdout)?;
    let mut documents: Vec<Value> =
        serde_saphyr::from_multiple(&text).context("kustomize printed something that is no YAML")?;
    documents.retain(|document| !document.is_null());
    Ok(documents)
}

/// kustomize wants a relative path to a base outside of the overlay's folder.
fn relative(from: &Path, to: &Path) -> PathBuf {
    let both = from.components().zip(to.components());
    let common = both.take_while(|(a, b)| a == b).count();
    let up = from.components().skip(common).map(|_| Component::ParentDir);

    up.chain(to.components().skip(common)).collect()
}

/// A definition of a kind without rules: `spec` and `status` are objects with whatever fields. The first version is the
/// one that is stored.
pub fn open_definition(group: &str, kind: &str, plural: &str, namespaced: bool, versions: &[&str]) -> Value {
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {
        "apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"},
        "spec": open, "status": open,
    }}});
    let versions = versions.iter().enumerate();
    let versions: Vec<Value> = versions
        .map(|(index, name)| json!({"name": name, "served": true, "storage": index == 0, "schema": schema}))
        .collect();

    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {
            "name": format!("{plural}.{group}"),
            // Groups of Kubernetes' own domain ask for a word.
            "annotations": {"api-approved.kubernetes.io": "unapproved, a test's own"},
        },
        "spec": {
            "group": group, "scope": if namespaced { "Namespaced" } else { "Cluster" }, "versions": versions,
            "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase(), "listKind": format!("{kind}List")},
        },
    })
}

/// Applies objects in their order; a definition of a resource is waited for before objects of it follow.
///
/// # Errors
/// When the API server refuses one; the message names it.
pub async fn apply(client: &Client, objects: &[Value]) -> Result<()> {
    let params = PatchParams::apply(OPERATOR).force();
    for object in objects {
        let parsed: DynamicObject = serde_json::from_value(object.clone())?;
        let (api, what) = api_of(client, &parsed).await?;
        api.patch(&parsed.name_any(), &params, &Patch::Apply(object))
            .await
            .with_context(|| format!("applying {what}"))?;
    }
    Ok(())
}

/// The object as the API server has it.
///
/// # Errors
/// When there is none of this kind and name, or it cannot be read.
pub async fn get(client: &Client, object: &Value) -> Result<DynamicObject> {
    let parsed: DynamicObject = serde_json::from_value(object.clone())?;
    let (api, what) = api_of(client, &parsed).await?;
    api.get(&parsed.name_any())
        .await
        .with_context(|| format!("reading {what}"))
}

/// Where objects of this kind and namespace are, and what to call this one in an error.
async fn api_of(client: &Client, object: &DynamicObject) -> Result<(Api<DynamicObject>, String)> {
    let types = object.types.clone().context("an object without apiVersion and kind")?;
    let what = format!("{} {}", types.kind, object.name_any());
    let gvk = GroupVersionKind::try_from(&types)?;
    let (resource, capabilities) = resource_of(client, &gvk).await.with_context(|| what.clone())?;
    let namespace = object.namespace().unwrap_or_else(|| "default".to_owned());
    let api = match capabilities {
        Scope::Namespaced => Api::namespaced_with(client.clone(), &namespace, &resource),
        Scope::Cluster => Api::all_with(client.clone(), &resource),
    };

    Ok((api, what))
}

pub(super) async fn resource_of(client: &Client, gvk: &GroupVersionKind) -> Result<(kube::core::ApiResource, Scope)> {
    for _ in 0..50 {
        match discovery::pinned_kind(client, gvk).await {
            Ok((resource, capabilities)) => return Ok((resource, capabilities.scope)),
            Err(_) => tokio::time::sleep(std::time::Duration::from_millis(200)).await,
        }
    }
    bail!("the API server serves no {} {}/{}", gvk.kind, gvk.group, gvk.version)
}

/// A CA and a serving certificate for the webhook, in `folder`; returns the CA's PEM.
///
/// # Errors
/// When the files cannot be written.
pub fn issue_webhook_certificate(folder: &Path, address: &str) -> Result<String> {
    use outrigger_certs::{Authority, Validity};

    let validity = Validity::starting(jiff::Timestamp::now(), std::time::Duration::from_secs(24 * 3600));
    let authority = Authority::new("outrigger e2e webhook CA", validity)?;
    let service = "outrigger-webhook.outrigger-system.svc";
    let names = [service, "localhost", "127.0.0.1", address];
    let issued = authority.issue(&names, validity)?;
    outrigger_certs::write(folder, &issued, Some(authority.certificate_pem()))?;

    Ok(authority.certificate_pem().to_owned())
}

/// The certificates of an authority in the form of `caBundle`.
pub fn ca_bundle(authority: &str) -> String {
    use base64::Engine as _;

    base64::engine::general_purpose::STANDARD.encode(authority)
}

/// Fills in what only the operator knows of the webhook's registration: the CA, and the port of its Service.
pub fn register_webhook(objects: &mut [Value], authority: &str, address: &str, port: u16) {
    set_webhook_port(objects, address, port);
    let bundle = ca_bundle(authority);
    for object in objects {
        if is_registration(object) {
            for webhook in object["webhooks"].as_array_mut().into_iter().flatten() {
                webhook["clientConfig"]["caBundle"] = Value::from(bundle.clone());
            }
        }
    }
}

/// Whether the object registers webhooks.
pub fn is_registration(object: &Value) -> bool {
    matches!(
        object["kind"].as_str(),
        Some("MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration")
    )
}

/// Sets the address and port of the webhook's Service, and of the entries that call it: 443 on a cluster address would
/// need privileges.
pub fn set_webhook_port(objects: &mut [Value], address: &str, port: u16) {
    for object in objects {
        if object["kind"] == "Service" && object["metadata"]["name"] == "outrigger-webhook" {
            object["spec"]["clusterIP"] = Value::from(address);
            object["spec"]["ports"][0]["port"] = Value::from(port);
        }
        if !is_registration(object) {
            continue;
        }

        for webhook in object["webhooks"].as_array_mut().into_iter().flatten() {
            let client = &mut webhook["clientConfig"];
            if client["service"].is_object() {
                client["service"]["port"] = Value::from(port);
            } else {
                let path = client["url"].as_str().and_then(|url| url.splitn(4, '/').nth(3));
                let path = path.unwrap_or("mutate").to_owned();
                client["url"] = Value::from(format!("https://{address}:{port}/{path}"));
            }
        }
    }
}
