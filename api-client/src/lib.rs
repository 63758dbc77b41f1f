//! Limits of what an API server may answer. A tenant names the server of its kubeconfig, so it may be anything; and the true
//! server answers with what users wrote: a page of 500 Services can have more than a gigabyte. Without a limit the client
//! of kube keeps all of it in memory, also an endless list or an endless line of a watch.
//!
//! | answer | limit |
//! |---|---|
//! | one object, an error, a list without `limit` | `bytes` of [`AnswerLimit::new`] |
//! | a line of a watch | `bytes` |
//! | a page of a list | `page`; a larger one is asked for again with fewer objects, down to one, which may have `bytes` |

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt as _, Stream, lock, stream};
use http::{Request, Response, Uri};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Body, Frame, SizeHint};
use kube::Api;
use kube::api::ListParams;
use kube::client::Body as Sent;
use serde::de::DeserializeOwned;
use tower::{BoxError, Layer, Service, ServiceExt as _};

/// A page with too many bytes is asked for again with this part of its objects.
const FEWER: u32 = 4;

#[derive(Debug, thiserror::Error)]
#[error("the API server's answer, or a line of its watch, has more than {0} bytes")]
struct TooLarge(usize);

/// Ends answers that are too large with an error. Clones belong together.
#[derive(Debug, Clone)]
pub struct AnswerLimit {
    bytes: usize,
    page: usize,
    /// By path, how many objects the next page may have, where a page with those that were asked for was too large.
    objects: Arc<Mutex<BTreeMap<String, u32>>>,
}

impl AnswerLimit {
    /// `bytes`: of an answer; of a watch, of each line. `page`: bytes of a page of a list with more than one object.
    pub fn new(bytes: usize, page: usize) -> Self {
        Self {
            bytes,
            page,
            objects: Arc::default(),
        }
    }

    /// For a server that is trusted, with objects that users wrote. etcd takes 1.5 MiB for an object, of which JSON can
    /// make six times as much: `\u0001` for one byte.
    pub fn of_users() -> Self {
        Self::new(16 << 20, 8 << 20)
    }

    fn objects(&self, path: &str) -> Option<u32> {
        let objects = self.objects.lock().unwrap_or_else(PoisonError::into_inner);
        objects.get(path).copied()
    }

    /// Takes in that a page of so many objects, of those that were asked for, had so many bytes.
    fn learn(&self, path: &str, (objects, asked): (u32, u32), bytes: usize) {
        let is_small = bytes <= self.page / 4;
        let next = if is_small { objects.saturating_mul(2) } else { objects };
        let mut all = self.objects.lock().unwrap_or_else(PoisonError::into_inner);
        if next < asked {
            all.insert(path.to_owned(), next);
        } else {
            all.remove(path);
        }
    }
}

impl<S> Layer<S> for AnswerLimit {
    type Service = Limited<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Limited {
            inner: Arc::new(lock::Mutex::new(inner)),
            limit: self.clone(),
        }
    }
}

#[derive(Debug)]
pub struct Limited<S> {
    /// The service of kube cannot be cloned. It is locked while a request is handed over, and not until the answer.
    inner: Arc<lock::Mutex<S>>,
    limit: AnswerLimit,
}

type Answer = Response<UnsyncBoxBody<Bytes, BoxError>>;

impl<S, B> Service<Request<Sent>> for Limited<S>
where
    S: Service<Request<Sent>, Response = Response<B>> + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError> + Send,
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Answer;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Answer, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Sent>) -> Self::Future {
        let is_watch = is_watch(request.uri());
        let (inner, limit) = (Arc::clone(&self.inner), self.limit.clone());
        if let Some(objects) = objects_of_a_page(request.uri()).filter(|_| !is_watch) {
            return read_page(inner, request, objects, limit).boxed();
        }

        let limited = async move {
            let answer = send(&inner, request).await?;
            // The client reads the whole body of an error, also of a watch.
            let is_watch = is_watch && answer.status().is_success();
            Ok(answer.map(|body| LimitedBody::new(body, is_watch, limit.bytes).boxed_unsync()))
        };
        limited.boxed()
    }
}

async fn send<S: Service<Request<Sent>>>(
    inner: &lock::Mutex<S>,
    request: Request<Sent>,
) -> Result<S::Response, BoxError>
where
    S::Error: Into<BoxError>,
{
    let answer = inner.lock().await.ready().await.map_err(Into::into)?.call(request);
    answer.await.map_err(Into::into)
}

/// Whether a request asks for a watch.
pub fn is_watch(uri: &Uri) -> bool {
    parameters(uri).any(|part| part == "watch=true" || part == "watch=1")
}

/// The parameters of a request, as they are encoded.
pub fn parameters(uri: &Uri) -> impl Iterator<Item = &str> {
    uri.query().unwrap_or_default().split('&')
}

/// The objects that a request for a page of a list asks for.
fn objects_of_a_page(uri: &Uri) -> Option<u32> {
    let limit = parameters(uri).find_map(|part| part.strip_prefix("limit="))?;
    limit.parse().ok().filter(|objects| *objects > 0)
}

/// The same request for a page of so many objects.
fn with_objects(uri: &Uri, objects: u32) -> Result<Uri, BoxError> {
    let others = parameters(uri).filter(|part| !part.starts_with("limit="));
    let query: String = others.map(|part| format!("&{part}")).collect();
    Ok(format!("{}?limit={objects}{query}", uri.path()).parse()?)
}

/// Reads a page of at most so many objects. The token by which the answer is continued counts from its own last object.
async fn read_page<S, B>(
    inner: Arc<lock::Mutex<S>>,
    request: Request<Sent>,
    asked: u32,
    limit: AnswerLimit,
) -> Result<Answer, BoxError>
where
    S: Service<Request<Sent>, Response = Response<B>>,
    S::Error: Into<BoxError>,
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<BoxError>,
{
    let (parts, _) = request.into_parts();
    let path = parts.uri.path();
    let mut objects = limit.objects(path).map_or(asked, |objects| objects.min(asked));
    loop {
        let mut parts = parts.clone();
        parts.uri = with_objects(&parts.uri, objects)?;
        let answer = send(&inner, Request::from_parts(parts, Sent::empty())).await?;
        let (head, body) = answer.into_parts();

        let bytes = if objects > 1 { limit.page } else { limit.bytes };
        match LimitedBody::new(body, false, bytes).collect().await {
            Ok(page) => {
                let page = page.to_bytes();
                if head.status.is_success() {
                    limit.learn(path, (objects, asked), page.len());
                }
                let body = Full::new(page).map_err(|never| match never {});
                return Ok(Response::from_parts(head, body.boxed_unsync()));
            }
            Err(error) if objects > 1 && error.is::<TooLarge>() => objects = (objects / FEWER).max(1),
            Err(error) => return Err(error),
        }
    }
}

#[derive(Debug)]
struct LimitedBody<B> {
    body: B,
    is_watch: bool,
    bytes: usize,
    /// Bytes of the answer, or of the current line, so far.
    read: usize,
}

impl<B> LimitedBody<B> {
    fn new(body: B, is_watch: bool, bytes: usize) -> Self {
        Self {
            body,
            is_watch,
            bytes,
            read: 0,
        }
    }

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

/// All objects of a list, page by page. `parameters` must have a `limit`, so that a page is limited in bytes, too.
///
/// # Errors
/// Those of the requests, after which the stream ends; with status 410 the list is too old to be continued.
pub fn pages<K>(api: Api<K>, parameters: ListParams) -> impl Stream<Item = kube::Result<Vec<K>>>
where
    K: Clone + DeserializeOwned + Debug,
{
    stream::try_unfold(Some(parameters), move |parameters| {
        let api = api.clone();
        async move {
            let Some(mut parameters) = parameters else {
                return Ok(None);
            };
            let page = api.list(&parameters).await?;
            parameters.continue_token = page.metadata.continue_.filter(|token| !token.is_empty());
            let next = parameters.continue_token.is_some().then_some(parameters);
            Ok(Some((page.items, next)))
        }
    })
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::{StreamExt as _, TryStreamExt as _};
    use http_body_util::StreamBody;
    use k8s_openapi::api::coordination::v1::Lease;
    use kube::Client;
    use kube::api::WatchParams;
    use kube::client::ClientBuilder;

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
        let limit = AnswerLimit::new(LIMIT, LIMIT);
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

    /// A server with Leases of these sizes. Notes the limit of each request.
    fn server(sizes: &'static [usize], asked: &Arc<Mutex<Vec<u32>>>, limit: AnswerLimit) -> Api<Lease> {
        let asked = Arc::clone(asked);
        let service = tower::service_fn(move |request: Request<Sent>| {
            let objects = objects_of_a_page(request.uri()).unwrap();
            asked.lock().unwrap().push(objects);
            let first = parameters(request.uri()).find_map(|part| part.strip_prefix("continue="));
            let first: usize = first.map_or(0, |first| first.parse().unwrap());
            let end = sizes.len().min(first + objects as usize);
            let items = (first..end).map(|at| {
                let annotations = serde_json::json!({"a": "x".repeat(sizes[at])});
                serde_json::json!({"metadata": {"name": format!("l{at}"), "annotations": annotations}, "spec": {}})
            });
            let next = if end < sizes.len() {
                end.to_string()
            } else {
                String::new()
            };
            let list = serde_json::json!({
                "apiVersion": "coordination.k8s.io/v1", "kind": "LeaseList",
                "metadata": {"continue": next}, "items": items.collect::<Vec<_>>(),
            });
            async move { Ok::<_, BoxError>(Response::new(Full::new(Bytes::from(list.to_string())))) }
        });
        Api::all(ClientBuilder::new(service, "default").with_layer(&limit).build())
    }

    async fn listed(api: &Api<Lease>) -> kube::Result<Vec<String>> {
        let pages = pages(api.clone(), ListParams::default().limit(8));
        let names = pages.map_ok(|page| page.into_iter().filter_map(|lease| lease.metadata.name));
        let all: Vec<_> = names.try_collect().await?;
        Ok(all.into_iter().flatten().collect())
    }

    #[tokio::test]
    async fn a_page_that_is_too_large_is_asked_for_again_with_fewer_objects_and_later_with_more() {
        const SIZES: &[usize] = &[900, 900, 900, 10, 10, 10, 10, 10, 10, 10, 10, 10];
        let asked = Arc::default();
        let limit = AnswerLimit::new(3_000, 2_500);
        let api = server(SIZES, &asked, limit);
        let expected: Vec<String> = (0..SIZES.len()).map(|at| format!("l{at}")).collect();

        assert_eq!(listed(&api).await.unwrap(), expected);
        assert_eq!(*asked.lock().unwrap(), [8, 2, 2, 2, 4, 8]);
        assert_eq!(listed(&api).await.unwrap(), expected);
    }

    #[tokio::test]
    async fn one_object_has_the_limit_of_an_answer() {
        for (size, is_listed) in [(2_700, true), (4_000, false)] {
            let sizes: &'static [usize] = Box::leak(Box::new([10, 10, size]));
            let asked = Arc::default();
            let api = server(sizes, &asked, AnswerLimit::new(3_000, 2_500));
            assert_eq!(listed(&api).await.is_ok(), is_listed, "{size}");
        }
    }
}
