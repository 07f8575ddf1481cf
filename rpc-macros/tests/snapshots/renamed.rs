/// Answers.
pub(crate) trait Service: ::my_rpc::__private::v1::Send + ::my_rpc::__private::v1::Sync + 'static {
    /// The same bytes.
    fn echo_bytes(
        &self,
        request: Request<C>,
    ) -> impl ::my_rpc::__private::v1::Future<
        Output = Result<Response<T>, Status>,
    > + ::my_rpc::__private::v1::Send;
}
/// Calls the service `echo.v1.Echo`.
///
/// Answers.
#[allow(dead_code)]
pub(crate) struct ServiceClient<C_ = ::my_rpc::__private::v1::Channel> {
    caller: C_,
}
/// Serves `echo.v1.Echo` by an implementation of [`Service`].
#[allow(dead_code)]
pub(crate) struct ServiceServer<T_> {
    handler: ::my_rpc::__private::v1::Arc<T_>,
}
#[allow(deprecated, dead_code, unused_qualifications, clippy::wrong_self_convention)]
const _: () = {
    use ::my_rpc::__private::v1 as __rpc;
    static METHODS: &[__rpc::MethodDescriptor] = &[
        __rpc::MethodDescriptor::new("echo.v1.Echo/Echo", __rpc::MethodKind::Unary)
            .with_idempotency(__rpc::Idempotency::Idempotent),
    ];
    impl<C_: __rpc::Caller> ServiceClient<C_> {
        /// A client that makes its calls on `caller`: a channel, or one in layers.
        pub(crate) fn new(caller: C_) -> Self {
            Self { caller }
        }
        /// The same bytes.
        ///
        /// Calls `echo.v1.Echo/Echo`.
        pub(crate) async fn echo_bytes(
            &self,
            request: impl __rpc::IntoRequest<C>,
        ) -> __rpc::Result<__rpc::Response<T>, __rpc::Status> {
            self.caller.unary(&METHODS[0], request.into_request()).await
        }
    }
    impl<C_: __rpc::Clone> __rpc::Clone for ServiceClient<C_> {
        fn clone(&self) -> Self {
            Self {
                caller: __rpc::Clone::clone(&self.caller),
            }
        }
    }
    impl<C_> __rpc::fmt::Debug for ServiceClient<C_> {
        fn fmt(&self, f: &mut __rpc::fmt::Formatter<'_>) -> __rpc::fmt::Result {
            f.write_str("ServiceClient")
        }
    }
    impl<T_> ServiceServer<T_> {
        /// Serves by `handler`.
        pub(crate) fn new(handler: T_) -> Self {
            Self::from_arc(__rpc::Arc::new(handler))
        }
        /// Serves by a handler that is shared with others.
        pub(crate) fn from_arc(handler: __rpc::Arc<T_>) -> Self {
            Self { handler }
        }
    }
    impl<T_> __rpc::Clone for ServiceServer<T_> {
        fn clone(&self) -> Self {
            Self {
                handler: __rpc::Clone::clone(&self.handler),
            }
        }
    }
    impl<T_> __rpc::fmt::Debug for ServiceServer<T_> {
        fn fmt(&self, f: &mut __rpc::fmt::Formatter<'_>) -> __rpc::fmt::Result {
            f.write_str("ServiceServer")
        }
    }
    impl<T_: Service> __rpc::Service for ServiceServer<T_> {
        fn name(&self) -> &'static str {
            "echo.v1.Echo"
        }
        fn methods(&self) -> &'static [__rpc::MethodDescriptor] {
            METHODS
        }
        fn call(&self, method: usize, call: __rpc::Call) -> __rpc::Handler {
            let handler = __rpc::Clone::clone(&self.handler);
            match method {
                0 => {
                    call.unary(move |request| async move {
                        <T_ as Service>::echo_bytes(&handler, request).await
                    })
                }
                _ => call.unimplemented(),
            }
        }
    }
};
