//! The same service by tonic, as its generator would write it, with its best settings.

use std::convert::Infallible;
use std::future::Ready;
use std::marker::PhantomData;
use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper_util::rt::TokioIo;
use rpc_core::prost::Message;
use tokio::net::{TcpListener, UnixListener, UnixStream};
use tonic::body::Body;
use tonic::codec::{BufferSettings, Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::{BoxFuture, Service, http};
use tonic::server::{NamedService, UnaryService};
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Request, Response, Status};

use super::service::{Blob, Handling, Keep};
use crate::failure::Failure;

/// Flow control never makes a message of 16 MiB wait.
const STREAM_WINDOW_BYTES: u32 = 64 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 256 << 20;
/// The longest frame that the peer may send: fewer frames for large messages.
const FRAME_BYTES: u32 = 1 << 20;
/// tonic's encoder gives out what it has from here on.
const ENCODE_BYTES: usize = 1 << 20;

/// The settings, as they are printed.
pub(super) fn settings() -> String {
    format!(
        "nodelay, stream window {} MiB, connection window {} MiB, frames up to {} KiB, no limit on \
         messages, `bytes` fields as Bytes",
        STREAM_WINDOW_BYTES >> 20,
        CONNECTION_WINDOW_BYTES >> 20,
        FRAME_BYTES >> 10
    )
}

/// tonic's prost codec.
struct Prost<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for Prost<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T, U> Codec for Prost<T, U>
where
    T: Message + Send + 'static,
    U: Message + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self::Encoder {
        Self::default()
    }

    fn decoder(&mut self) -> Self::Decoder {
        Self::default()
    }
}

impl<T: Message, U> Encoder for Prost<T, U> {
    type Item = T;
    type Error = Status;

    fn encode(&mut self, item: T, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        item.encode(buffer).map_err(|error| Status::internal(error.to_string()))
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::new(8 << 10, ENCODE_BYTES)
    }
}

impl<T, U: Message + Default> Decoder for Prost<T, U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        U::decode(buffer).map(Some).map_err(|error| Status::internal(error.to_string()))
    }
}

#[derive(Clone)]
struct Bulk(Arc<Handling>);

impl NamedService for Bulk {
    const NAME: &'static str = "bench.Bulk";
}

/// One method of it.
struct Method<F>(Arc<Handling>, F);

impl<Q, F: FnMut(&Handling, Q) -> Blob> UnaryService<Q> for Method<F> {
    type Response = Blob;
    type Future = Ready<Result<Response<Blob>, Status>>;

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        std::future::ready(Ok(Response::new((self.1)(&self.0, request.into_inner()))))
    }
}

impl Bulk {
    async fn unary<Q, F>(self, request: http::Request<Body>, run: F) -> http::Response<Body>
    where
        Q: Message + Default + Send + 'static,
        F: FnMut(&Handling, Q) -> Blob,
    {
        tonic::server::Grpc::new(Prost::<Blob, Q>::default())
            .max_decoding_message_size(usize::MAX)
            .unary(Method(self.0, run), request)
            .await
    }
}

impl Service<http::Request<Body>> for Bulk {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let bulk = self.clone();
        Box::pin(async move {
            Ok(match request.uri().path() {
                "/bench.Bulk/echo" => bulk.unary(request, |_, blob: Blob| blob).await,
                "/bench.Bulk/put" => bulk.unary(request, Handling::put).await,
                "/bench.Bulk/get" => bulk.unary(request, |all, _: Blob| all.get()).await,
                _ => bulk.unary(request, |all, keep: Keep| all.keep(keep)).await,
            })
        })
    }
}

/// Serves at a free port, or at `socket`; says where.
pub(super) async fn serve(socket: Option<&Path>) -> Result<(), Failure> {
    let server = Server::builder()
        .tcp_nodelay(true)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_frame_size(FRAME_BYTES)
        .add_service(Bulk(Arc::default()));
    if let Some(socket) = socket {
        let listener = UnixListener::bind(socket)?;
        println!("{}", socket.display());
        let incoming = futures_util::stream::unfold(listener, |listener| async move {
            Some((listener.accept().await.map(|(stream, _)| stream), listener))
        });
        return Ok(server.serve_with_incoming(incoming).await?);
    }
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", listener.local_addr()?);
    let incoming = futures_util::stream::unfold(listener, |listener| async move {
        let accepted = listener.accept().await;
        Some((accepted.and_then(|(stream, _)| stream.set_nodelay(true).map(|()| stream)), listener))
    });
    Ok(server.serve_with_incoming(incoming).await?)
}

/// A client of it: one connection.
#[derive(Clone)]
pub(crate) struct Client(tonic::client::Grpc<Channel>);

impl Client {
    pub(super) async fn connect(address: &str, unix: bool) -> Result<Self, Failure> {
        let uri = if unix { "http://localhost".to_owned() } else { format!("http://{address}") };
        let endpoint = Endpoint::from_shared(uri)?
            .tcp_nodelay(true)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES);
        let channel = if unix {
            let path = address.to_owned();
            let connector = tower::service_fn(move |_: http::Uri| {
                let path = path.clone();
                async move { UnixStream::connect(path).await.map(TokioIo::new) }
            });
            endpoint.connect_with_connector(connector).await?
        } else {
            endpoint.connect().await?
        };
        Ok(Self(tonic::client::Grpc::new(channel).max_decoding_message_size(usize::MAX)))
    }

    pub(super) async fn call<Q>(&self, path: &'static str, request: Q) -> Result<Blob, Failure>
    where
        Q: Message + Send + Sync + 'static,
    {
        let mut grpc = self.0.clone();
        grpc.ready().await?;
        let path = http::uri::PathAndQuery::from_static(path);
        let codec = Prost::<Q, Blob>::default();
        Ok(grpc.unary(Request::new(request), path, codec).await?.into_inner())
    }
}
