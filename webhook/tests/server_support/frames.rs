//! HTTP/2 frames as no well-behaved client would send them.

use bytes::{BufMut, BytesMut};

pub const HEADERS: u8 = 1;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const CONTINUATION: u8 = 9;
pub const DATA: u8 = 0;

pub const END_STREAM: u8 = 0x1;
pub const END_HEADERS: u8 = 0x4;

/// The client's preface with settings, each of an identifier and a value.
pub fn preface(settings: &[(u16, u32)]) -> BytesMut {
    let mut bytes = BytesMut::from(&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..]);
    let mut payload = BytesMut::new();
    for (identifier, value) in settings {
        payload.put_u16(*identifier);
        payload.put_u32(*value);
    }
    frame(&mut bytes, SETTINGS, 0, 0, &payload);
    bytes
}

pub fn frame(bytes: &mut BytesMut, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    bytes.put_uint(payload.len() as u64, 3);
    bytes.put_u8(kind);
    bytes.put_u8(flags);
    bytes.put_u32(stream);
    bytes.extend_from_slice(payload);
}

/// The header block of `POST /mutate` with JSON.
pub fn post() -> Vec<u8> {
    let mut block = vec![0x83, 0x87]; // :method POST and :scheme https, from the static table
    for (index, value) in [
        (&[0x04][..], "/mutate"),
        (&[0x01], "localhost"),
        (&[0x0f, 0x10], "application/json"),
    ] {
        block.extend_from_slice(index); // :path, :authority, content-type; literal, not kept
        block.push(u8::try_from(value.len()).unwrap());
        block.extend_from_slice(value.as_bytes());
    }
    block
}

/// A header of our own, 200 bytes long.
pub fn extra() -> Vec<u8> {
    let mut block = vec![0x00, 1, b'x', 0x7f, 0x49];
    block.extend_from_slice(&[b'y'; 200]);
    block
}

/// The kinds of the frames in `bytes`, as far as they are whole.
pub fn kinds(mut bytes: &[u8]) -> Vec<u8> {
    let mut kinds = Vec::new();
    while let [a, b, c, kind, ..] = bytes {
        kinds.push(*kind);
        let length = usize::from(*a) << 16 | usize::from(*b) << 8 | usize::from(*c);
        bytes = bytes.get(9 + length..).unwrap_or_default();
    }
    kinds
}
