//! Reading a file that an operator names, and no more of it than such a file can have.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::Path;

/// The largest file that is read, in bytes: the limit of a ConfigMap or a Secret, from which such files are mounted.
pub const MAX_BYTES: u64 = 1024 * 1024;

/// Reads a whole file.
///
/// # Errors
/// The error of the system, or [`ErrorKind::FileTooLarge`] above [`MAX_BYTES`]. Reading stops there: a wrong path may
/// name a device without an end.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    limited(File::open(path)?)
}

fn limited(file: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_BYTES {
        let text = format!("it is larger than {MAX_BYTES} bytes, as no file of this kind is; check the path");
        return Err(io::Error::new(ErrorKind::FileTooLarge, text));
    }
    Ok(bytes)
}

/// Reads a whole file of text.
///
/// # Errors
/// As [`read()`], and [`ErrorKind::InvalidData`] where it is not UTF-8.
pub fn read_text(path: &Path) -> io::Result<String> {
    text(read(path)?)
}

fn text(bytes: Vec<u8>) -> io::Result<String> {
    String::from_utf8(bytes).map_err(|error| {
        let text = format!("it is not UTF-8 from byte {} on", error.utf8_error().valid_up_to());
        io::Error::new(ErrorKind::InvalidData, text)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_the_greatest_size_is_read_and_a_larger_one_is_not() {
        assert_eq!(
            limited(io::repeat(b'x').take(MAX_BYTES)).unwrap().len() as u64,
            MAX_BYTES
        );
        let error = limited(io::repeat(b'x').take(MAX_BYTES + 1)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::FileTooLarge);
        assert!(error.to_string().contains("1048576 bytes"), "{error}");
    }

    #[test]
    fn a_file_that_never_ends_is_refused_and_one_that_is_absent_is_not_found() {
        assert_eq!(
            read_text(Path::new("/dev/zero")).unwrap_err().kind(),
            ErrorKind::FileTooLarge
        );
        assert_eq!(
            read(Path::new("/dev/null/x")).unwrap_err().kind(),
            ErrorKind::NotADirectory
        );
    }

    #[test]
    fn what_is_no_text_is_named_by_its_place() {
        let error = text(b"ab\xff".to_vec()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData);
        assert!(error.to_string().contains("byte 2"), "{error}");
        assert_eq!(text("ä".into()).unwrap(), "ä");
    }
}
