//! Limits what an API server may answer. A tenant names the server of its kubeconfig, so it may be anything: without a limit
//! the client of kube keeps an endless list, or an endless line of a watch, in memory.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{Request, Response};
use hyper::body::{Body, Frame, SizeHint};
use tower::{BoxError, Layer, Service};

#[derive(Debug, thiserror::Error)]
#[error("the API server's answer, or a line of its watch, has more than {0} bytes")]
struct TooLarge(usize);

/// Ends answers that are too large with an error.
#[derive(Debug, Clone, Copy)]
pub struct AnswerLimit {
    /// Bytes of an answer; of a watch, of each line.
    pub bytes: usize,
}

impl<S> Layer<S> for AnswerLimit {
    type Service = Limited<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Limited {
            inner,
            bytes: self.bytes,
        }
    }
}

#[derive(Debug, Clone)]
pub struct Limited<S> {
    inner: S,
    bytes: usize,
}

impl<S, R, B> Service<Request<R>> for Limited<S>
where
    S: Service<Request<R>, Response = Response<B>>,
    S::Future: Send + 'static,
{
    type Response = Response<LimitedBody<B>>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<R>) -> Self::Future {
        let query = request.uri().query().unwrap_or_default();
        let (is_watch, bytes) = (query.split('&').any(|part| part == "watch=true"), self.bytes);
        let answer = self.inner.call(request);
        let limited = move |answer: Response<B>| {
            // The client reads the whole body of an error, also of a watch.
            let is_watch = is_watch && answer.status().is_success();
            answer.map(|body| LimitedBody {
                body,
                is_watch,
                bytes,
                read: 0,
            })
        };
        answer.map(move |answer| answer.map(limited)).boxed()
    }
}

#[derive(Debug)]
pub struct LimitedBody<B> {
    body: B,
    is_watch: bool,
    bytes: usize,
    /// Bytes of the answer, or of the current line, so far.
    read: usize,
}

impl<B> LimitedBody<B> {
    fn count(&mut self, data: &[u8]) -> Result<(), TooLarge> {
        let lines = data.split(|byte| *byte == b'\n').enumerate();
        for (at, line) in lines {
            if at > 0 && self.is_watch {
                self.read = 0;
            }
            self.read = self.read.saturating_add(line.len() + usize::from(at > 0));
            if self.read > self.bytes {
                return Err(TooLarge(self.bytes));
            }
        }
        Ok(())
    }
}

impl<B> Body for LimitedBody<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let Some(frame) = ready!(Pin::new(&mut self.body).poll_frame(context)) else {
            return Poll::Ready(None);
        };
        let frame = frame.map_err(Into::into)?;
        if let Some(data) = frame.data_ref() {
            self.count(data)?;
        }

        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::StreamExt as _;
    use http_body_util::StreamBody;
    use k8s_openapi::api::coordination::v1::Lease;
    use kube::api::{ListParams, WatchParams};
    use kube::client::ClientBuilder;
    use kube::{Api, Client};

    use super::*;

    const LIMIT: usize = 100_000;
    const PART: usize = 1_000;

    /// A client of a server that never stops to send this. Counts the bytes that were sent.
    fn client(status: u16, text: &'static [u8], sent: &Arc<AtomicUsize>) -> Client {
        let sent = Arc::clone(sent);
        let service = tower::service_fn(move |_: Request<kube::client::Body>| {
            let sent = Arc::clone(&sent);
            let parts = futures::stream::repeat_with(move || {
                sent.fetch_add(text.len(), Ordering::Relaxed);
                Ok::<_, Infallible>(Frame::data(Bytes::from_static(text)))
            });
            let body = StreamBody::new(parts.boxed());
            async move { Ok::<_, BoxError>(Response::builder().status(status).body(body)?) }
        });
        let limit = AnswerLimit { bytes: LIMIT };
        ClientBuilder::new(service, "default").with_layer(&limit).build()
    }

    const ENDLESS: &[u8] = &[b' '; PART];
    const EMPTY_LINES: &[u8] = &[b'\n'; PART];
    const EVENTS: &[u8] = b"{\"type\":\"BOOKMARK\",\"object\":{\"apiVersion\":\"coordination.k8s.io/v1\",\"kind\":\"Lease\",\"metadata\":{\"resourceVersion\":\"1\"}}}\n";

    #[tokio::test]
    async fn an_endless_list_is_an_error() {
        for text in [ENDLESS, EMPTY_LINES] {
            let sent = Arc::default();
            let leases: Api<Lease> = Api::all(client(200, text, &sent));
            let error = leases.list(&ListParams::default()).await.unwrap_err();
            assert!(format!("{error:?}").contains("100000"), "{error:?}");
            assert!(sent.load(Ordering::Relaxed) <= LIMIT + 2 * PART);
        }
    }

    #[tokio::test]
    async fn an_endless_line_of_a_watch_is_an_error() {
        let sent = Arc::default();
        let leases: Api<Lease> = Api::all(client(200, ENDLESS, &sent));
        let events = leases.watch(&WatchParams::default(), "0").await.unwrap();
        let first = events.boxed().next().await.unwrap();
        assert!(format!("{first:?}").contains("100000"), "{first:?}");
        assert!(sent.load(Ordering::Relaxed) <= LIMIT + 2 * PART);
    }

    #[tokio::test]
    async fn an_endless_error_is_one_also_of_a_watch() {
        for status in [403, 500] {
            let sent = Arc::default();
            let leases: Api<Lease> = Api::all(client(status, EMPTY_LINES, &sent));
            let events = leases.watch(&WatchParams::default(), "0").await;
            assert!(events.is_err());
            assert!(sent.load(Ordering::Relaxed) <= LIMIT + 2 * PART);
        }
    }

    #[tokio::test]
    async fn a_watch_may_last_for_ever() {
        let sent = Arc::default();
        let leases: Api<Lease> = Api::all(client(200, EVENTS, &sent));
        let mut events = leases.watch(&WatchParams::default(), "0").await.unwrap().boxed();
        for _ in 0..2 * LIMIT / EVENTS.len() {
            events.next().await.unwrap().unwrap();
        }
        assert!(sent.load(Ordering::Relaxed) > LIMIT);
    }
}
