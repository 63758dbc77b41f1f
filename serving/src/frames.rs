//! Counts the control frames of an HTTP/2 connection. Each PING and each SETTINGS is answered, so a client that sends them
//! without end keeps the server busy for nothing (CVE-2019-9512 and CVE-2019-9515,
//! <https://github.com/Netflix/security-bulletins/blob/master/advisories/third-party/2019-002.md>). h2 does not limit them.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

/// Control frames that may come at once. An API server sends one SETTINGS and its acknowledgement, a PING each 30 s, and
/// one or two WINDOW_UPDATE for each answer.
const BURST: u64 = 200;
/// Further ones per second.
const RATE: u64 = 20;
/// Further ones for each request.
const PER_REQUEST: u64 = 4;

const PREFACE: usize = 24;
const HEADER: usize = 9;

/// Frames that are not counted: the bodies and headers of requests, which have limits of their own.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const CONTINUATION: u8 = 9;

/// A stream whose read bytes are HTTP/2 frames.
pub(crate) struct Frames<S> {
    stream: S,
    /// With what to call when there were too many control frames.
    reader: Option<(Reader, Box<dyn Fn() + Send + Sync>)>,
}

impl<S> Frames<S> {
    /// Calls `flooded` when there were too many control frames.
    pub(crate) fn new(stream: S, flooded: impl Fn() + Send + Sync + 'static) -> Self {
        Self {
            stream,
            reader: Some((Reader::new(Instant::now()), Box::new(flooded))),
        }
    }

    /// A stream that has no frames.
    pub(crate) const fn unread(stream: S) -> Self {
        Self { stream, reader: None }
    }
}

/// Finds the headers of frames in the bytes of a connection.
#[derive(Debug)]
struct Reader {
    /// Bytes before the next header.
    skip: usize,
    header: [u8; HEADER],
    /// Bytes of `header` that are there.
    filled: usize,
    allowance: Allowance,
}

#[derive(Debug)]
struct Allowance {
    left: u64,
    since: Instant,
}

impl Reader {
    const fn new(now: Instant) -> Self {
        Self {
            skip: PREFACE,
            header: [0; HEADER],
            filled: 0,
            allowance: Allowance {
                left: BURST,
                since: now,
            },
        }
    }

    /// Whether the control frames are within the allowance.
    fn take(&mut self, mut bytes: &[u8], now: Instant) -> bool {
        let mut is_permitted = true;
        loop {
            let skipped = self.skip.min(bytes.len());
            self.skip -= skipped;
            bytes = bytes.get(skipped..).unwrap_or_default();

            let missing = (HEADER - self.filled).min(bytes.len());
            if missing == 0 {
                return is_permitted;
            }
            for byte in bytes.iter().take(missing) {
                if let Some(place) = self.header.get_mut(self.filled) {
                    *place = *byte;
                }
                self.filled += 1;
            }
            bytes = bytes.get(missing..).unwrap_or_default();

            if self.filled == HEADER {
                let [a, b, c, kind, ..] = self.header;
                self.filled = 0;
                self.skip = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
                is_permitted &= self.allowance.permits(kind, now);
            }
        }
    }
}

impl Allowance {
    fn permits(&mut self, kind: u8, now: Instant) -> bool {
        match kind {
            HEADERS => self.left = (self.left + PER_REQUEST).min(BURST),
            DATA | RST_STREAM | CONTINUATION => {}
            _ => {
                let seconds = now.duration_since(self.since).as_secs();
                if seconds > 0 {
                    self.left = (self.left + seconds.saturating_mul(RATE)).min(BURST);
                    self.since = now;
                }
                match self.left.checked_sub(1) {
                    Some(left) => self.left = left,
                    None => return false,
                }
            }
        }

        true
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Frames<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;

        let read = buffer.filled().get(before..).unwrap_or_default();
        if let Some((reader, flooded)) = &mut self.reader
            && !reader.take(read, Instant::now())
        {
            flooded();
        }

        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Frames<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const PING: u8 = 6;

    fn frame(kind: u8, length: usize) -> Vec<u8> {
        let [.., a, b, c] = length.to_be_bytes();
        [&[a, b, c, kind, 0, 0, 0, 0, 1][..], &vec![kind; length]].concat()
    }

    fn connection(frames: &[Vec<u8>]) -> Vec<u8> {
        [vec![b'x'; PREFACE], frames.concat()].concat()
    }

    #[tokio::test(start_paused = true)]
    async fn frames_are_found_however_the_bytes_are_cut() {
        // The payloads look like control frames.
        let mut frames = vec![frame(DATA, 5000), frame(HEADERS, 300), frame(PING, 8)];
        frames.extend(vec![frame(PING, 8); BURST as usize - 1]);
        let bytes = connection(&frames);
        for size in [1, 7, 9, 10, 1000, bytes.len()] {
            let now = Instant::now();
            let mut reader = Reader::new(now);
            for part in bytes.chunks(size) {
                assert!(reader.take(part, now), "parts of {size}");
            }
            assert_eq!((reader.allowance.left, reader.skip, reader.filled), (0, 0, 0));
            assert!(!reader.take(&frame(PING, 8), now), "one more");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn time_and_requests_give_more() {
        let now = Instant::now();
        let mut reader = Reader::new(now);
        let all = connection(&vec![frame(4, 0); BURST as usize]);
        assert!(reader.take(&all, now));
        assert!(reader.take(&frame(HEADERS, 1), now));
        for _ in 0..PER_REQUEST {
            assert!(reader.take(&frame(8, 4), now));
        }
        assert!(!reader.take(&frame(8, 4), now));

        let later = now + Duration::from_secs(2);
        for _ in 0..2 * RATE {
            assert!(reader.take(&frame(PING, 8), later));
        }
        assert!(!reader.take(&frame(PING, 8), later));
    }
}
