//! **The published Helm charts of AWS's cloud-controller-manager, and the image that each installs.**
//!
//! Source: `charts/aws-cloud-controller-manager/{Chart,values}.yaml` of <https://github.com/kubernetes/cloud-provider-aws>
//! at each tag `helm-chart-aws-cloud-controller-manager-VERSION`; 0.0.1 has no tag, and is that of commit `da41db9f`. The
//! image tag decides the names of the manager's controllers, so it is never guessed: a chart that is not in the table
//! needs `image.tag` in its values.

use outrigger_shared::version::KubernetesVersion;
use serde_json::Value;

use super::fields::text_at;

/// The chart, and the name of the HelmChart that a HelmChartConfig extends.
pub(super) const CHART: &str = "aws-cloud-controller-manager";

/// Version of the chart, and `image.tag` of its values.
pub const CHARTS: [(&str, &str); 11] = [
    ("0.0.1", "v1.19.0-alpha.1"),
    ("0.0.2", "v1.20.0-alpha.0"),
    ("0.0.3", "v1.21.0-alpha.0"),
    ("0.0.4", "v1.22.0-alpha.0"),
    ("0.0.5", "v1.22.0-alpha.0"),
    ("0.0.6", "v1.23.0-alpha.0"),
    ("0.0.7", "v1.23.0-alpha.0"),
    ("0.0.8", "v1.27.1"),
    ("0.0.9", "v1.33.0"),
    ("0.0.10", "v1.34.0"),
    ("0.0.11", "v1.35.0"),
];

/// Charts whose template has fixed arguments: `args` of the values has no effect.
const WITHOUT_ARGS: [&str; 3] = ["0.0.1", "0.0.2", "0.0.3"];

/// Addresses of the published charts. A chart of another address may have other values, also with an equal version.
const PUBLISHED: [&str; 2] = [
    "https://kubernetes.github.io/cloud-provider-aws",
    "https://github.com/kubernetes/cloud-provider-aws/releases/download",
];

/// The chart that an object installs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Chart {
    /// As the object names it; empty for the newest.
    version: String,
    is_published: bool,
}

impl Chart {
    /// Reads `spec.chart`, `spec.repo` and `spec.version` of a HelmChart.
    pub fn of(object: &Value) -> Self {
        let text = |pointer| text_at(object, pointer).unwrap_or_default();
        let (chart, repository) = (text("/spec/chart"), text("/spec/repo"));
        // The content takes precedence over the name (https://docs.rke2.io/reference/helm).
        if !text("/spec/chartContent").is_empty() {
            return Self::default();
        }

        // An archive's address names its version.
        let archive = chart.rsplit('/').next().and_then(|file| {
            let version = file.strip_prefix(CHART)?.strip_prefix('-')?;
            version.strip_suffix(".tgz").or_else(|| version.strip_suffix(".tar.gz"))
        });
        let address = if archive.is_some() || chart.contains("://") {
            chart
        } else {
            repository
        };
        let below = |published: &str| {
            let rest = address.strip_prefix(published);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let version = archive.unwrap_or_else(|| text("/spec/version")).trim();

        Self {
            version: version.strip_prefix('v').unwrap_or(version).to_owned(),
            is_published: PUBLISHED.into_iter().any(below),
        }
    }

    fn row(&self) -> Option<(&'static str, &'static str)> {
        CHARTS.into_iter().find(|(version, _)| *version == self.version)
    }

    /// The version of the manager that the chart installs by default.
    pub fn default_image(&self) -> Option<KubernetesVersion> {
        self.row().filter(|_| self.is_published)?.1.parse().ok()
    }

    /// Whether `args` of the values has no effect.
    pub fn ignores_args(&self) -> bool {
        self.is_published && WITHOUT_ARGS.contains(&self.version.as_str())
    }

    /// Why the version of the manager is not known, with the remedy.
    pub fn unknown(&self, tag: Option<&str>) -> String {
        if let Some(tag) = tag {
            return format!(
                "image.tag {tag:?} of the chart names no version, and the names of the controllers depend on it; set image.tag \
                 in the values to a tag with the version, as v1.27.9"
            );
        }

        let what = match self.version.as_str() {
            "" => "the object names no version of the chart".to_owned(),
            version if self.is_published => format!("the image of chart version {version} is not known here"),
            version => format!("the image of chart version {version} from this repository is not known here"),
        };
        let example = self
            .row()
            .map_or_else(String::new, |(_, tag)| format!(" (the published chart has {tag})"));
        format!("{what}, and the names of the controllers depend on it; set image.tag in the values{example}")
    }
}
