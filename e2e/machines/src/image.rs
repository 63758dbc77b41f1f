//! Container images of static programs: archives in the OCI image layout, with one layer that is not compressed.
//! <https://github.com/opencontainers/image-spec/blob/v1.0.2/image-layout.md>

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::tar::Archive;

/// An image to be written.
#[derive(Debug, Clone)]
pub struct Image {
    /// `registry.k8s.io/pause:3.9`, for example.
    pub name: String,
    /// Static programs. They get their file names, in `/usr/local/bin`; the first one is the entry point.
    pub programs: Vec<PathBuf>,
}

impl Image {
    /// An image of one program.
    pub fn new(name: impl Into<String>, program: impl Into<PathBuf>) -> Self {
        Self {
            name: name.into(),
            programs: vec![program.into()],
        }
    }

    /// Writes the image's archive as `archive`.
    ///
    /// # Errors
    /// When a program cannot be read, or the archive cannot be written.
    pub fn write(&self, archive: &Path) -> Result<()> {
        let layer = archive.with_extension("layer");
        let (digest, size) = self.write_layer(&layer)?;
        let written = self.write_archive(archive, &layer, &digest, size);
        std::fs::remove_file(&layer).context("the file of the layer")?;
        written.with_context(|| archive.display().to_string())
    }

    fn write_layer(&self, path: &Path) -> Result<(String, u64)> {
        let output = Hashing {
            inner: BufWriter::new(File::create(path).with_context(|| path.display().to_string())?),
            hash: Sha256::new(),
            size: 0,
        };
        let mut layer = Archive::new(output);
        for folder in ["tmp", "usr", "usr/local", "usr/local/bin"] {
            layer.folder(folder)?;
        }
        for program in &self.programs {
            let file = File::open(program).with_context(|| program.display().to_string())?;
            let size = file.metadata()?.len();
            layer.file(&inside(program)?, 0o755, size, BufReader::new(file))?;
        }

        let output = layer.finish()?;
        Ok((hex(&output.hash.finalize()), output.size))
    }

    fn write_archive(&self, archive: &Path, layer: &Path, digest: &str, size: u64) -> Result<()> {
        let first = self.programs.first().context("an image without a program")?;
        let config = json!({
            "architecture": architecture(), "os": "linux",
            "config": {"Entrypoint": [format!("/{}", inside(first)?)], "Env": ["PATH=/usr/local/bin"]},
            "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{digest}")]},
        });
        let config = Blob::new(&config);
        let manifest = Blob::new(&json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": config.descriptor("application/vnd.oci.image.config.v1+json"),
            "layers": [{
                "mediaType": "application/vnd.oci.image.layer.v1.tar",
                "digest": format!("sha256:{digest}"), "size": size,
            }],
        }));
        let mut listed = manifest.descriptor("application/vnd.oci.image.manifest.v1+json");
        listed["annotations"] = json!({"io.containerd.image.name": self.name});
        let index = Blob::new(&json!({"schemaVersion": 2, "manifests": [listed]}));

        let mut output = Archive::new(BufWriter::new(File::create(archive)?));
        let layout = Blob::new(&json!({"imageLayoutVersion": "1.0.0"}));
        output.folder("blobs")?;
        output.folder("blobs/sha256")?;
        for blob in [&config, &manifest] {
            blob.write(&mut output, &format!("blobs/sha256/{}", blob.digest))?;
        }
        let layer = BufReader::new(File::open(layer)?);
        output.file(&format!("blobs/sha256/{digest}"), 0o644, size, layer)?;
        layout.write(&mut output, "oci-layout")?;
        index.write(&mut output, "index.json")?;
        output.finish()?;
        Ok(())
    }
}

/// The path of a program in the image.
fn inside(program: &Path) -> Result<String> {
    let name = program.file_name().context("a program without a file name")?;
    Ok(format!("usr/local/bin/{}", name.to_string_lossy()))
}

/// The name that Go gives the architecture.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// A small JSON document of the layout.
struct Blob {
    text: String,
    digest: String,
}

impl Blob {
    fn new(content: &Value) -> Self {
        let text = content.to_string();
        let digest = hex(&Sha256::digest(&text));
        Self { text, digest }
    }

    fn descriptor(&self, media_type: &str) -> Value {
        json!({"mediaType": media_type, "digest": format!("sha256:{}", self.digest), "size": self.text.len()})
    }

    fn write(&self, archive: &mut Archive<impl Write>, path: &str) -> io::Result<()> {
        archive.file(path, 0o644, self.text.len() as u64, self.text.as_bytes().by_ref())
    }
}

/// Counts and hashes the bytes on their way.
struct Hashing<W> {
    inner: W,
    hash: Sha256,
    size: u64,
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.hash.update(&bytes[..written]);
        self.size += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

#[cfg(test)]
mod tests {
    use super::Image;

    #[test]
    fn the_same_programs_give_the_same_archive() {
        let folder = tempfile::tempdir().expect("a folder");
        let program = folder.path().join("program");
        std::fs::write(&program, "content").expect("written");
        let image = Image::new("registry.k8s.io/program:1", &program);

        let archives = ["a.tar", "b.tar"].map(|name| folder.path().join(name));
        for archive in &archives {
            image.write(archive).expect("written");
        }
        let [a, b] = archives.map(|archive| std::fs::read(archive).expect("read"));
        assert_eq!(a, b);
        assert!(a.windows(7).any(|part| part == b"content"));
        assert_eq!(
            std::fs::read_dir(folder.path()).expect("read").count(),
            3,
            "the layer's file is gone"
        );
    }
}
