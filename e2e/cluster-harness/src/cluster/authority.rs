//! The certificate authority of one control plane: the API server's serving certificate and the client certificates
//! by which it knows its users.

use std::net::{IpAddr, Ipv4Addr};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    SanType,
};
use serde_json::{Value, json};

use super::error::ClusterError;

/// A Kubernetes user as a client certificate states it: the common name is the user, the organization its group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    name: String,
    group: Option<String>,
}

impl User {
    /// A user in no group but `system:authenticated`.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            group: None,
        }
    }

    /// Puts the user in a group. One is the most that such a certificate can carry here.
    #[must_use]
    pub fn in_group(mut self, group: impl Into<String>) -> Self {
        self.group = Some(group.into());
        self
    }

    /// May do everything (group `system:masters`, which is above RBAC).
    pub fn admin() -> Self {
        Self::new("admin").in_group("system:masters")
    }

    /// The controller manager, with the rights that Kubernetes' own bootstrap roles give it and no others.
    pub fn kube_controller_manager() -> Self {
        Self::new("system:kube-controller-manager")
    }

    pub fn name(&self) -> &str {
        &self.name
    }
}

/// A certificate and its private key, both PEM.
#[derive(Clone)]
pub struct Credentials {
    pub certificate: String,
    /// The private key (PKCS#8).
    pub key: String,
}

/// A certificate authority that lives as long as the test.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
}

impl Authority {
    /// Makes a self-signed authority.
    ///
    /// # Errors
    /// When rcgen cannot make a key.
    pub fn new(name: &str) -> Result<Self, ClusterError> {
        let failed = |source| ClusterError::certificate(name, source);
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::CrlSign,
            KeyUsagePurpose::DigitalSignature,
        ];

        let key = KeyPair::generate().map_err(failed)?;
        let certificate = params.self_signed(&key).map_err(failed)?.pem();
        Ok(Self {
            issuer: Issuer::new(params, key),
            certificate,
        })
    }

    /// The authority's certificate, PEM.
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// A serving certificate of an API server: for the loopback address, the names of the `kubernetes` Service, and
    /// `addresses`, which contain its cluster IP.
    ///
    /// # Errors
    /// When rcgen refuses a name.
    pub fn serving(&self, addresses: &[Ipv4Addr]) -> Result<Credentials, ClusterError> {
        let name = "kube-apiserver";
        let names = [
            "localhost",
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
        ];
        let mut params = CertificateParams::new(names.map(str::to_owned))
            .map_err(|source| ClusterError::certificate(name, source))?;

        for address in [Ipv4Addr::LOCALHOST].iter().chain(addresses) {
            params.subject_alt_names.push(SanType::IpAddress(IpAddr::V4(*address)));
        }

        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];

        self.issue(name, params)
    }

    /// A client certificate for a user.
    ///
    /// # Errors
    /// When rcgen cannot make or sign it.
    pub fn client(&self, user: &User) -> Result<Credentials, ClusterError> {
        let mut params = CertificateParams::default();
        if let Some(group) = &user.group {
            params.distinguished_name.push(DnType::OrganizationName, group.as_str());
        }
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.issue(&user.name, params)
    }

    /// A kubeconfig with a new client certificate for a user. Everything is inline, so that the file can be moved or
    /// mounted alone. JSON, which every YAML reader takes.
    ///
    /// # Errors
    /// When rcgen cannot make or sign the certificate.
    pub fn kubeconfig(&self, cluster: &str, server: &str, user: &User) -> Result<Value, ClusterError> {
        let credentials = self.client(user)?;
        let context = format!("{}@{cluster}", user.name);
        Ok(json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": cluster, "cluster": {
                "server": server,
                "certificate-authority-data": STANDARD.encode(&self.certificate),
            }}],
            "users": [{"name": user.name, "user": {
                "client-certificate-data": STANDARD.encode(&credentials.certificate),
                "client-key-data": STANDARD.encode(&credentials.key),
            }}],
            "contexts": [{"name": context, "context": {"cluster": cluster, "user": user.name}}],
            "current-context": context,
        }))
    }

    fn issue(&self, name: &str, mut params: CertificateParams) -> Result<Credentials, ClusterError> {
        let failed = |source| ClusterError::certificate(name, source);
        params.distinguished_name.push(DnType::CommonName, name);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.use_authority_key_identifier_extension = true;

        let key = KeyPair::generate().map_err(failed)?;
        let certificate = params.signed_by(&key, &self.issuer).map_err(failed)?.pem();
        Ok(Credentials {
            certificate,
            key: key.serialize_pem(),
        })
    }
}

/// The key pair that signs service account tokens: private and public half, both PEM.
///
/// # Errors
/// When rcgen cannot make a key.
pub fn service_account_keys() -> Result<(String, String), ClusterError> {
    let key = KeyPair::generate().map_err(|source| ClusterError::certificate("service account tokens", source))?;
    Ok((key.serialize_pem(), key.public_key_pem()))
}
