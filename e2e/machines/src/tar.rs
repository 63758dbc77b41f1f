//! Writes tar archives of folders and regular files, the same bytes for the same content.

use std::io::{self, Read, Write};

/// tar pads everything to blocks of this size.
const BLOCK: u64 = 512;

/// An archive that is being written.
pub(crate) struct Archive<W> {
    output: W,
}

impl<W: Write> Archive<W> {
    pub(crate) fn new(output: W) -> Self {
        Self { output }
    }

    pub(crate) fn folder(&mut self, path: &str) -> io::Result<()> {
        self.output.write_all(&header(&format!("{path}/"), 0o755, 0, b'5')?)
    }

    /// `size` bytes of `content`.
    pub(crate) fn file(&mut self, path: &str, mode: u32, size: u64, content: impl Read) -> io::Result<()> {
        self.output.write_all(&header(path, mode, size, b'0')?)?;
        let written = io::copy(&mut content.take(size), &mut self.output)?;
        if written != size {
            return Err(io::Error::other(format!("{path} has {written} of {size} bytes")));
        }
        let padding = size.next_multiple_of(BLOCK) - size;
        io::copy(&mut io::repeat(0).take(padding), &mut self.output).map(drop)
    }

    /// Ends the archive and returns its output.
    pub(crate) fn finish(mut self) -> io::Result<W> {
        io::copy(&mut io::repeat(0).take(2 * BLOCK), &mut self.output)?;
        self.output.flush()?;
        Ok(self.output)
    }
}

/// A header in the format `ustar` of POSIX.1-1988, owned by root, of the first second of 1970.
fn header(path: &str, mode: u32, size: u64, kind: u8) -> io::Result<[u8; 512]> {
    let mut header = [0; 512];
    if path.len() > 100 {
        return Err(io::Error::other(format!("{path} has more than 100 bytes")));
    }

    let mut put = |at: usize, bytes: &[u8]| header[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, path.as_bytes());
    put(100, format!("{mode:07o}").as_bytes());
    put(108, b"0000000");
    put(116, b"0000000");
    put(124, format!("{size:011o}").as_bytes());
    put(136, b"00000000000");
    put(148, b"        "); // the checksum counts as blanks
    put(156, &[kind]);
    put(257, b"ustar\x0000");
    let sum: u32 = header.iter().copied().map(u32::from).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    Ok(header)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::Archive;

    #[test]
    fn tar_reads_the_archive() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("archive.tar");
        let mut archive = Archive::new(std::fs::File::create(&path).expect("created"));
        archive.folder("bin").expect("written");
        archive.file("bin/program", 0o755, 5, &b"hello"[..]).expect("written");
        archive.finish().expect("finished");

        let mut list = Command::new("tar");
        list.args(["--list", "--verbose", "--utc", "--file"]).arg(&path);
        let list = list.output().expect("tar");
        let list = String::from_utf8(list.stdout).expect("text");
        assert_eq!(
            list.split_whitespace().collect::<Vec<_>>().join(" "),
            "drwxr-xr-x 0/0 0 1970-01-01 00:00 bin/ -rwxr-xr-x 0/0 5 1970-01-01 00:00 bin/program"
        );

        let text = Command::new("tar")
            .arg("--extract")
            .arg("--to-stdout")
            .arg("--file")
            .arg(&path)
            .arg("bin/program")
            .output();
        assert_eq!(text.expect("tar").stdout, b"hello");
    }

    #[test]
    fn a_file_that_is_shorter_than_its_size_is_an_error() {
        let mut archive = Archive::new(Vec::new());
        assert!(archive.file("a", 0o644, 5, &b"four"[..]).is_err());
    }
}
