/// A store of values under keys. Keys and values are any bytes.
///
/// Every write has a version: a number that is greater than those of all earlier writes to the store.
/// A version is never used twice, also not after the key was deleted. Version 0 means "no value".
///
/// A method that refuses says why in the status's details, as an ErrorDetail. INVALID_ARGUMENT has none:
/// such a request has a bound or form of this file against it, at any time, and its message says which.
pub trait Kv: ::core::marker::Send + ::core::marker::Sync + 'static {
    /// The value under a key, if there is one.
    fn get(
        &self,
        request: ::rpc_core::Request<GetRequest>,
    ) -> impl ::rpc_core::__private::v1::Future<
        Output = ::core::result::Result<
            ::rpc_core::Response<GetResponse>,
            ::rpc_core::Status,
        >,
    > + ::rpc_core::__private::v1::Send;
    /// Stores a value, replacing what was there. The answer leaves once the write is as safe as the store
    /// makes it: with `--data`, once it is on the disk.
    ///
    /// No method that writes has an idempotency level: with an expected version, a repeated call finds its
    /// own write and is ABORTED. Whoever expects none may repeat it.
    fn put(
        &self,
        request: ::rpc_core::Request<PutRequest>,
    ) -> impl ::rpc_core::__private::v1::Future<
        Output = ::core::result::Result<
            ::rpc_core::Response<PutResponse>,
            ::rpc_core::Status,
        >,
    > + ::rpc_core::__private::v1::Send;
    /// Removes a key.
    fn delete(
        &self,
        request: ::rpc_core::Request<DeleteRequest>,
    ) -> impl ::rpc_core::__private::v1::Future<
        Output = ::core::result::Result<
            ::rpc_core::Response<DeleteResponse>,
            ::rpc_core::Status,
        >,
    > + ::rpc_core::__private::v1::Send;
    /// The values under several keys, all as they were at one moment.
    fn batch_get(
        &self,
        request: ::rpc_core::Request<BatchGetRequest>,
    ) -> impl ::rpc_core::__private::v1::Future<
        Output = ::core::result::Result<
            ::rpc_core::Response<BatchGetResponse>,
            ::rpc_core::Status,
        >,
    > + ::rpc_core::__private::v1::Send;
    /// Stores several values: all of them, or, if one is refused, none.
    fn batch_put(
        &self,
        request: ::rpc_core::Request<BatchPutRequest>,
    ) -> impl ::rpc_core::__private::v1::Future<
        Output = ::core::result::Result<
            ::rpc_core::Response<BatchPutResponse>,
            ::rpc_core::Status,
        >,
    > + ::rpc_core::__private::v1::Send;
    /// Keys that begin with a prefix, in the order of their bytes, a page at a time.
    fn list(
        &self,
        request: ::rpc_core::Request<ListRequest>,
    ) -> impl ::rpc_core::__private::v1::Future<
        Output = ::core::result::Result<
            ::rpc_core::Response<ListResponse>,
            ::rpc_core::Status,
        >,
    > + ::rpc_core::__private::v1::Send;
    /// What the server's cores, devices, memory and store have done so far.
    fn stats(
        &self,
        request: ::rpc_core::Request<StatsRequest>,
    ) -> impl ::rpc_core::__private::v1::Future<
        Output = ::core::result::Result<
            ::rpc_core::Response<StatsResponse>,
            ::rpc_core::Status,
        >,
    > + ::rpc_core::__private::v1::Send;
}
/// Calls the service `kv.v1.Kv`.
///
/// A store of values under keys. Keys and values are any bytes.
///
/// Every write has a version: a number that is greater than those of all earlier writes to the store.
/// A version is never used twice, also not after the key was deleted. Version 0 means "no value".
///
/// A method that refuses says why in the status's details, as an ErrorDetail. INVALID_ARGUMENT has none:
/// such a request has a bound or form of this file against it, at any time, and its message says which.
#[allow(dead_code)]
pub struct KvClient<C = ::rpc_core::__private::v1::Channel> {
    caller: C,
}
/// Serves `kv.v1.Kv` by an implementation of [`Kv`].
#[allow(dead_code)]
pub struct KvServer<T> {
    handler: ::rpc_core::__private::v1::Arc<T>,
}
#[allow(deprecated, dead_code, unused_qualifications, clippy::wrong_self_convention)]
const _: () = {
    use ::rpc_core::__private::v1 as __rpc;
    static METHODS: &[__rpc::MethodDescriptor] = &[
        __rpc::MethodDescriptor::new("kv.v1.Kv/Get", __rpc::MethodKind::Unary)
            .with_idempotency(__rpc::Idempotency::NoSideEffects),
        __rpc::MethodDescriptor::new("kv.v1.Kv/Put", __rpc::MethodKind::Unary),
        __rpc::MethodDescriptor::new("kv.v1.Kv/Delete", __rpc::MethodKind::Unary),
        __rpc::MethodDescriptor::new("kv.v1.Kv/BatchGet", __rpc::MethodKind::Unary)
            .with_idempotency(__rpc::Idempotency::NoSideEffects),
        __rpc::MethodDescriptor::new("kv.v1.Kv/BatchPut", __rpc::MethodKind::Unary),
        __rpc::MethodDescriptor::new("kv.v1.Kv/List", __rpc::MethodKind::Unary)
            .with_idempotency(__rpc::Idempotency::NoSideEffects),
        __rpc::MethodDescriptor::new("kv.v1.Kv/Stats", __rpc::MethodKind::Unary)
            .with_idempotency(__rpc::Idempotency::NoSideEffects),
    ];
    impl<C: __rpc::Caller> KvClient<C> {
        /// A client that makes its calls on `caller`: a channel, or one in layers.
        pub fn new(caller: C) -> Self {
            Self { caller }
        }
        /// The value under a key, if there is one.
        ///
        /// Calls `kv.v1.Kv/Get`.
        pub async fn get(
            &self,
            request: impl __rpc::IntoRequest<GetRequest>,
        ) -> __rpc::Result<__rpc::Response<GetResponse>, __rpc::Status> {
            self.caller.unary(&METHODS[0], request.into_request()).await
        }
        /// Stores a value, replacing what was there. The answer leaves once the write is as safe as the store
        /// makes it: with `--data`, once it is on the disk.
        ///
        /// No method that writes has an idempotency level: with an expected version, a repeated call finds its
        /// own write and is ABORTED. Whoever expects none may repeat it.
        ///
        /// Calls `kv.v1.Kv/Put`.
        pub async fn put(
            &self,
            request: impl __rpc::IntoRequest<PutRequest>,
        ) -> __rpc::Result<__rpc::Response<PutResponse>, __rpc::Status> {
            self.caller.unary(&METHODS[1], request.into_request()).await
        }
        /// Removes a key.
        ///
        /// Calls `kv.v1.Kv/Delete`.
        pub async fn delete(
            &self,
            request: impl __rpc::IntoRequest<DeleteRequest>,
        ) -> __rpc::Result<__rpc::Response<DeleteResponse>, __rpc::Status> {
            self.caller.unary(&METHODS[2], request.into_request()).await
        }
        /// The values under several keys, all as they were at one moment.
        ///
        /// Calls `kv.v1.Kv/BatchGet`.
        pub async fn batch_get(
            &self,
            request: impl __rpc::IntoRequest<BatchGetRequest>,
        ) -> __rpc::Result<__rpc::Response<BatchGetResponse>, __rpc::Status> {
            self.caller.unary(&METHODS[3], request.into_request()).await
        }
        /// Stores several values: all of them, or, if one is refused, none.
        ///
        /// Calls `kv.v1.Kv/BatchPut`.
        pub async fn batch_put(
            &self,
            request: impl __rpc::IntoRequest<BatchPutRequest>,
        ) -> __rpc::Result<__rpc::Response<BatchPutResponse>, __rpc::Status> {
            self.caller.unary(&METHODS[4], request.into_request()).await
        }
        /// Keys that begin with a prefix, in the order of their bytes, a page at a time.
        ///
        /// Calls `kv.v1.Kv/List`.
        pub async fn list(
            &self,
            request: impl __rpc::IntoRequest<ListRequest>,
        ) -> __rpc::Result<__rpc::Response<ListResponse>, __rpc::Status> {
            self.caller.unary(&METHODS[5], request.into_request()).await
        }
        /// What the server's cores, devices, memory and store have done so far.
        ///
        /// Calls `kv.v1.Kv/Stats`.
        pub async fn stats(
            &self,
            request: impl __rpc::IntoRequest<StatsRequest>,
        ) -> __rpc::Result<__rpc::Response<StatsResponse>, __rpc::Status> {
            self.caller.unary(&METHODS[6], request.into_request()).await
        }
    }
    impl<C: __rpc::Clone> __rpc::Clone for KvClient<C> {
        fn clone(&self) -> Self {
            Self {
                caller: __rpc::Clone::clone(&self.caller),
            }
        }
    }
    impl<C> __rpc::fmt::Debug for KvClient<C> {
        fn fmt(&self, f: &mut __rpc::fmt::Formatter<'_>) -> __rpc::fmt::Result {
            f.write_str("KvClient")
        }
    }
    impl<T> KvServer<T> {
        /// Serves by `handler`.
        pub fn new(handler: T) -> Self {
            Self::from_arc(__rpc::Arc::new(handler))
        }
        /// Serves by a handler that is shared with others.
        pub fn from_arc(handler: __rpc::Arc<T>) -> Self {
            Self { handler }
        }
    }
    impl<T> __rpc::Clone for KvServer<T> {
        fn clone(&self) -> Self {
            Self {
                handler: __rpc::Clone::clone(&self.handler),
            }
        }
    }
    impl<T> __rpc::fmt::Debug for KvServer<T> {
        fn fmt(&self, f: &mut __rpc::fmt::Formatter<'_>) -> __rpc::fmt::Result {
            f.write_str("KvServer")
        }
    }
    impl<T: Kv> __rpc::Service for KvServer<T> {
        fn name(&self) -> &'static str {
            "kv.v1.Kv"
        }
        fn methods(&self) -> &'static [__rpc::MethodDescriptor] {
            METHODS
        }
        fn call(&self, method: usize, call: __rpc::Call) -> __rpc::Handler {
            let handler = __rpc::Clone::clone(&self.handler);
            match method {
                0 => {
                    call.unary(move |request| async move {
                        <T as Kv>::get(&handler, request).await
                    })
                }
                1 => {
                    call.unary(move |request| async move {
                        <T as Kv>::put(&handler, request).await
                    })
                }
                2 => {
                    call.unary(move |request| async move {
                        <T as Kv>::delete(&handler, request).await
                    })
                }
                3 => {
                    call.unary(move |request| async move {
                        <T as Kv>::batch_get(&handler, request).await
                    })
                }
                4 => {
                    call.unary(move |request| async move {
                        <T as Kv>::batch_put(&handler, request).await
                    })
                }
                5 => {
                    call.unary(move |request| async move {
                        <T as Kv>::list(&handler, request).await
                    })
                }
                6 => {
                    call.unary(move |request| async move {
                        <T as Kv>::stats(&handler, request).await
                    })
                }
                _ => call.unimplemented(),
            }
        }
    }
};
