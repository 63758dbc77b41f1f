//! Which binary stands for which image, and what it gets in its environment.

use std::collections::BTreeMap;
use std::path::PathBuf;

/// The images that the runner knows.
#[derive(Debug, Clone, Default)]
pub struct ImageTable(Vec<Image>);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// The image's name: without a tag it stands for every tag and digest, with one for that alone.
    pub image: String,
    /// The program in it, which a container's command must name: `kube-controller-manager`. It also is the program that
    /// runs where the container has no command.
    pub component: String,
    /// The binary that runs in the program's place.
    pub binary: PathBuf,
    /// Environment that every process of this image gets on top of its container's own; these win.
    pub environment: BTreeMap<String, String>,
}

impl Image {
    pub fn new(image: impl Into<String>, component: impl Into<String>, binary: impl Into<PathBuf>) -> Self {
        Self {
            image: image.into(),
            component: component.into(),
            binary: binary.into(),
            environment: BTreeMap::new(),
        }
    }

    #[must_use]
    pub fn environment(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.environment.insert(name.into(), value.into());
        self
    }
}

impl ImageTable {
    /// A table of these images; the first that fits counts.
    pub fn new(images: impl IntoIterator<Item = Image>) -> Self {
        Self(images.into_iter().collect())
    }

    pub fn find(&self, image: &str) -> Option<&Image> {
        self.0
            .iter()
            .find(|entry| entry.image == image || entry.image == repository(image))
    }
}

/// An image reference without tag and digest. A colon before a slash is the registry's port.
fn repository(image: &str) -> &str {
    let image = image.split_once('@').map_or(image, |(name, _)| name);
    match image.rsplit_once(':') {
        Some((name, tag)) if !tag.contains('/') => name,
        _ => image,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_without_a_tag_stands_for_every_tag_and_digest() {
        let table = ImageTable::new([Image::new("localhost:5000/k8s/kcm", "kcm", "/bin/kcm")]);
        for image in [
            "localhost:5000/k8s/kcm",
            "localhost:5000/k8s/kcm:v1",
            "localhost:5000/k8s/kcm:v1@sha256:0",
        ] {
            assert!(table.find(image).is_some(), "{image}");
        }
        assert!(table.find("localhost:5000/k8s/kcm-other:v1").is_none());
    }

    #[test]
    fn an_entry_with_a_tag_stands_for_that_tag_alone() {
        let table = ImageTable::new([
            Image::new("kcm:v1.26.13", "old", "/old"),
            Image::new("kcm", "new", "/new"),
        ]);
        assert_eq!(
            table.find("kcm:v1.26.13").map(|image| image.component.as_str()),
            Some("old")
        );
        assert_eq!(
            table.find("kcm:v1.36.3").map(|image| image.component.as_str()),
            Some("new")
        );
    }
}
