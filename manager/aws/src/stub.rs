//! An HTTP server with given responses, for tests of the adapters.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// The forms that were sent, in order: `Action`, `Version` and the parameters, decoded and sorted.
pub(crate) type Asked = Arc<Mutex<Vec<Vec<String>>>>;

/// Serves these answers, status and body, in turn, and closes the connection after each. Returns the URL.
pub(crate) async fn serve(answers: Vec<(u16, String)>) -> (String, Asked) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let asked = Asked::default();
    let heard = Arc::clone(&asked);

    tokio::spawn(async move {
        let mut answers = VecDeque::from(answers);
        while let Some((status, body)) = answers.pop_front() {
            let (mut stream, _) = listener.accept().await.unwrap();
            let form = form(&mut stream).await;
            heard.lock().unwrap().push(form);

            let length = body.len();
            let answer = format!(
                "HTTP/1.1 {status} x\r\nContent-Type: text/xml\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
            );
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    });

    (url, asked)
}

/// An error response of a load balancing API.
pub(crate) fn no(code: &str) -> (u16, String) {
    let error = format!("<Error><Type>Sender</Type><Code>{code}</Code><Message>no</Message></Error>");
    (
        400,
        format!("<ErrorResponse>{error}<RequestId>r</RequestId></ErrorResponse>"),
    )
}

/// An answer of a load balancing API to this action.
pub(crate) fn yes(action: &str, result: &str) -> (u16, String) {
    let result = format!("<{action}Result>{result}</{action}Result>");
    (200, format!("<{action}Response>{result}</{action}Response>"))
}

async fn form(stream: &mut TcpStream) -> Vec<String> {
    let (mut request, mut part) = (Vec::new(), [0; 8192]);
    loop {
        let text = String::from_utf8_lossy(&request).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.to_lowercase();
            let length = length
                .lines()
                .find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
            if body.len() >= length.unwrap_or(0) {
                let mut form: Vec<String> = body.split('&').map(decoded).collect();
                form.sort();
                return form;
            }
        }

        let read = stream.read(&mut part).await.unwrap();
        assert!(read > 0, "the request ends early: {text}");
        request.extend(&part[..read]);
    }
}

/// A form's text without its escapes.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        match (first, after) {
            (b'%', [high, low, ..]) => {
                let hex = [*high, *low];
                let hex = std::str::from_utf8(&hex).unwrap();
                bytes.push(u8::from_str_radix(hex, 16).unwrap());
                rest = &after[2..];
            }
            (b'+', _) => {
                bytes.push(b' ');
                rest = after;
            }
            (byte, _) => {
                bytes.push(*byte);
                rest = after;
            }
        }
    }

    String::from_utf8(bytes).unwrap()
}
