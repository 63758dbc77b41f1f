//! The annotations in which RKE2 and K3s write the arguments of their last start, secrets left out, as a JSON list. An
//! argument and its value are two items (<https://github.com/k3s-io/k3s/blob/v1.26.15%2Bk3s1/pkg/nodeconfig/nodeconfig.go>).

/// Of RKE2 and of K3s.
pub const ANNOTATIONS: [&str; 2] = ["rke2.io/node-args", "k3s.io/node-args"];

/// The longest annotation that is read, in bytes. All annotations of an object have at most 256 KiB.
const MAX_BYTES: usize = 64 << 10;

/// The arguments; `None` if the text is no list of texts.
#[must_use]
pub fn arguments(annotation: &str) -> Option<Vec<String>> {
    let is_short = annotation.len() <= MAX_BYTES;
    is_short.then(|| serde_json::from_str(annotation).ok()).flatten()
}

/// The values of an argument, such as `--kubelet-arg`.
pub fn values<'a>(arguments: &'a [String], name: &'a str) -> impl Iterator<Item = &'a str> {
    let following = arguments.iter().skip(1).map(Some).chain([None]);
    arguments
        .iter()
        .zip(following)
        .filter_map(move |(argument, next)| match argument.strip_prefix(name)? {
            "" => next.map(String::as_str),
            rest => rest.strip_prefix('='),
        })
}

/// The kubelet's `--cloud-provider`, if an argument of the operator sets it. The last one counts. The provider that
/// `cloud-provider-name` passes depends on the release of RKE2.
#[must_use]
pub fn kubelet_provider(annotation: &str) -> Option<String> {
    let arguments = arguments(annotation)?;
    let providers = values(&arguments, "--kubelet-arg").filter_map(|flag| flag.strip_prefix("cloud-provider="));
    providers.last().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_last_argument_of_the_kubelet_counts() {
        for (list, expected) in [
            (
                json!(["server", "--kubelet-arg", "cloud-provider=external"]),
                Some("external"),
            ),
            (json!(["agent", "--kubelet-arg=cloud-provider=aws"]), Some("aws")),
            (
                json!([
                    "server",
                    "--kubelet-arg",
                    "cloud-provider=aws",
                    "--kubelet-arg",
                    "v=2",
                    "--kubelet-arg",
                    "cloud-provider=external"
                ]),
                Some("external"),
            ),
            (json!(["server", "--cloud-provider-name", "aws"]), None),
            (
                json!(["server", "--kube-apiserver-arg", "cloud-provider=external"]),
                None,
            ),
            (json!(["server", "--kubelet-arg"]), None),
            (json!([]), None),
        ] {
            assert_eq!(kubelet_provider(&list.to_string()).as_deref(), expected, "{list}");
        }
    }

    #[test]
    fn other_texts_name_nothing() {
        let long = json!(["--kubelet-arg", "cloud-provider=external", "x".repeat(MAX_BYTES)]).to_string();
        for text in ["", "server", "{}", "[1]", &long] {
            assert_eq!(kubelet_provider(text), None);
        }
    }
}
