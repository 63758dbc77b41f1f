//! Kubernetes versions, as far as flags depend on them: major and minor.

use std::{fmt, str::FromStr};

/// A Kubernetes version, `1.26` or `1.26.13`. Two versions with the same minor differ only by their patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KubernetesVersion {
    /// Always 1 so far.
    pub major: u32,
    /// The release that decides which flags are legal.
    pub minor: u32,
    /// Missing where only the minor is known.
    pub patch: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a Kubernetes version; write it as 1.26 or v1.26.13")]
pub struct NotAVersion {
    pub text: String,
}

impl KubernetesVersion {
    #[must_use]
    pub const fn v1(minor: u32) -> Self {
        Self {
            major: 1,
            minor,
            patch: None,
        }
    }

    /// Whether a component of this version can belong to a cluster of that one. Nothing is more than three minors
    /// behind its API server (<https://kubernetes.io/releases/version-skew-policy/>), so what seems to be is no version of Kubernetes, as the
    /// `1.4.2` of a company's own numbering. How far the cluster has been upgraded since cannot be known.
    #[must_use]
    pub const fn fits_cluster(self, cluster: Self) -> bool {
        const MAX_BEHIND: u32 = 3;
        const MAX_MINOR: u32 = 99;
        self.minor.saturating_add(MAX_BEHIND) >= cluster.minor && self.minor <= MAX_MINOR
    }

    /// The version in the tag of an image reference: `registry.k8s.io/kube-apiserver:v1.26.13@sha256:…`.
    /// A port of the registry is no tag; a digest alone, or a tag such as `latest`, has no version.
    #[must_use]
    pub fn from_image(image: &str) -> Option<Self> {
        let without_digest = image.split_once('@').map_or(image, |(reference, _)| reference);
        let last = without_digest.rsplit('/').next()?;
        let (_, tag) = last.split_once(':')?;
        tag.parse().ok()
    }
}

impl FromStr for KubernetesVersion {
    type Err = NotAVersion;

    /// Reads `1.26`, `1.26.13`, a leading `v`, and whatever vendors append after the numbers (`-rke2r1`, `+k3s1`,
    /// `-alpha.1`, `_coreos.0`; EKS writes the minor as `26+`).
    fn from_str(text: &str) -> Result<Self, NotAVersion> {
        let error = || NotAVersion { text: text.to_owned() };
        let trimmed = text.trim();
        let bare = trimmed.strip_prefix('v').unwrap_or(trimmed);
        let end = bare.find(['-', '+', '_']).unwrap_or(bare.len());
        let numbers = bare.get(..end).ok_or_else(error)?;
        let mut parts = numbers.split('.').map(|part| number(part).ok_or_else(error));
        let major = parts.next().ok_or_else(error)??;
        let minor = parts.next().ok_or_else(error)??;
        let patch = parts.next().transpose()?;
        if parts.next().is_some() || major != 1 {
            return Err(error());
        }

        Ok(Self { major, minor, patch })
    }
}

fn number(text: &str) -> Option<u32> {
    text.bytes()
        .all(|byte| byte.is_ascii_digit())
        .then(|| text.parse().ok())
        .flatten()
}

impl fmt::Display for KubernetesVersion {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}", self.major, self.minor)?;
        self.patch.map_or(Ok(()), |patch| write!(formatter, ".{patch}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(minor: u32, patch: Option<u32>) -> KubernetesVersion {
        KubernetesVersion { major: 1, minor, patch }
    }

    #[test]
    fn versions_are_read_in_every_usual_spelling() {
        for (text, expected) in [
            ("1.26", version(26, None)),
            ("v1.26.13", version(26, Some(13))),
            ("1.26+", version(26, None)),
            ("v1.26.13-rke2r1", version(26, Some(13))),
            ("v1.27.0-alpha.1", version(27, Some(0))),
            ("v1.7.3_coreos.0", version(7, Some(3))),
        ] {
            assert_eq!(text.parse(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn a_component_is_at_most_three_minors_behind_its_cluster() {
        let cluster = version(26, None);
        for (minor, fits) in [
            (4, false),
            (22, false),
            (23, true),
            (26, true),
            (40, true),
            (120, false),
        ] {
            assert_eq!(version(minor, Some(2)).fits_cluster(cluster), fits, "1.{minor}");
        }
    }

    #[test]
    fn what_is_no_version_is_refused_with_its_text() {
        for text in [
            "",
            "v",
            "1",
            "latest",
            "2.26",
            "1.26.1.2",
            "1.x",
            "1.-3",
            "1.+26",
            "3.2.1",
            "1.99999999999",
        ] {
            let error = text.parse::<KubernetesVersion>().unwrap_err();
            assert_eq!(error.text, text);
        }
    }

    #[test]
    fn an_image_tells_its_version_by_the_tag_only() {
        for (image, expected) in [
            (
                "registry.k8s.io/kube-controller-manager:v1.26.13",
                Some(version(26, Some(13))),
            ),
            (
                "registry:5000/kube-apiserver:v1.29.0@sha256:0123",
                Some(version(29, Some(0))),
            ),
            ("registry:5000/kube-apiserver", None),
            ("registry:1.26/kube-apiserver", None),
            ("kube-apiserver@sha256:1.26", None),
            ("kube-apiserver:latest", None),
            (
                "rancher/hardened-kubernetes:v1.24.8-rke2r1-build20221114",
                Some(version(24, Some(8))),
            ),
        ] {
            assert_eq!(KubernetesVersion::from_image(image), expected, "{image}");
        }
    }
}
