#[cfg(unix)]
#[deprecated(note = "Use Other.")]
pub trait Old: Send + Sync + 'static {
    #[deprecated]
    fn get(
        &self,
        r: Request<A>,
    ) -> impl Future<Output = Result<Response<B>, Status>> + Send;
    fn put(
        &self,
        r: Request<A>,
    ) -> impl ::rpc_core::__private::v1::Future<
        Output = Result<Response<B>, Status>,
    > + ::rpc_core::__private::v1::Send {
        async move { body(r).await }
    }
}
/// Calls the service `Old`.
#[cfg(unix)]
#[deprecated(note = "Use Other.")]
#[allow(dead_code)]
pub struct OldClient<C = ::rpc_core::__private::v1::Channel> {
    caller: C,
}
/// Serves `Old` by an implementation of [`Old`].
#[cfg(unix)]
#[deprecated(note = "Use Other.")]
#[allow(dead_code)]
pub struct OldServer<T> {
    handler: ::rpc_core::__private::v1::Arc<T>,
}
#[cfg(unix)]
#[allow(deprecated, dead_code, unused_qualifications, clippy::wrong_self_convention)]
const _: () = {
    use ::rpc_core::__private::v1 as __rpc;
    static METHODS: &[__rpc::MethodDescriptor] = &[
        __rpc::MethodDescriptor::new("Old/Get", __rpc::MethodKind::Unary),
        __rpc::MethodDescriptor::new("Old/Put", __rpc::MethodKind::Unary),
    ];
    impl<C: __rpc::Caller> OldClient<C> {
        /// A client that makes its calls on `caller`: a channel, or one in layers.
        pub fn new(caller: C) -> Self {
            Self { caller }
        }
        /// Calls `Old/Get`.
        #[deprecated]
        pub async fn get(
            &self,
            request: impl __rpc::IntoRequest<A>,
        ) -> __rpc::Result<__rpc::Response<B>, __rpc::Status> {
            self.caller.unary(&METHODS[0], request.into_request()).await
        }
        /// Calls `Old/Put`.
        pub async fn put(
            &self,
            request: impl __rpc::IntoRequest<A>,
        ) -> __rpc::Result<__rpc::Response<B>, __rpc::Status> {
            self.caller.unary(&METHODS[1], request.into_request()).await
        }
    }
    impl<C: __rpc::Clone> __rpc::Clone for OldClient<C> {
        fn clone(&self) -> Self {
            Self {
                caller: __rpc::Clone::clone(&self.caller),
            }
        }
    }
    impl<C> __rpc::fmt::Debug for OldClient<C> {
        fn fmt(&self, f: &mut __rpc::fmt::Formatter<'_>) -> __rpc::fmt::Result {
            f.write_str("OldClient")
        }
    }
    impl<T> OldServer<T> {
        /// Serves by `handler`.
        pub fn new(handler: T) -> Self {
            Self::from_arc(__rpc::Arc::new(handler))
        }
        /// Serves by a handler that is shared with others.
        pub fn from_arc(handler: __rpc::Arc<T>) -> Self {
            Self { handler }
        }
    }
    impl<T> __rpc::Clone for OldServer<T> {
        fn clone(&self) -> Self {
            Self {
                handler: __rpc::Clone::clone(&self.handler),
            }
        }
    }
    impl<T> __rpc::fmt::Debug for OldServer<T> {
        fn fmt(&self, f: &mut __rpc::fmt::Formatter<'_>) -> __rpc::fmt::Result {
            f.write_str("OldServer")
        }
    }
    impl<T: Old> __rpc::Service for OldServer<T> {
        fn name(&self) -> &'static str {
            "Old"
        }
        fn methods(&self) -> &'static [__rpc::MethodDescriptor] {
            METHODS
        }
        fn call(&self, method: usize, call: __rpc::Call) -> __rpc::Handler {
            let handler = __rpc::Clone::clone(&self.handler);
            match method {
                0 => {
                    call.unary(move |request| async move {
                        <T as Old>::get(&handler, request).await
                    })
                }
                1 => {
                    call.unary(move |request| async move {
                        <T as Old>::put(&handler, request).await
                    })
                }
                _ => call.unimplemented(),
            }
        }
    }
};
