trait Nothing: ::rpc_core::__private::v1::Send + ::rpc_core::__private::v1::Sync + 'static {}
/// Calls the service `Nothing`.
#[allow(dead_code)]
struct NothingClient<C = ::rpc_core::__private::v1::Channel> {
    caller: C,
}
/// Serves `Nothing` by an implementation of [`Nothing`].
#[allow(dead_code)]
struct NothingServer<T> {
    handler: ::rpc_core::__private::v1::Arc<T>,
}
#[allow(deprecated, dead_code, unused_qualifications, clippy::wrong_self_convention)]
const _: () = {
    use ::rpc_core::__private::v1 as __rpc;
    static METHODS: &[__rpc::MethodDescriptor] = &[];
    impl<C: __rpc::Caller> NothingClient<C> {
        /// A client that makes its calls on `caller`: a channel, or one in layers.
        fn new(caller: C) -> Self {
            Self { caller }
        }
    }
    impl<C: __rpc::Clone> __rpc::Clone for NothingClient<C> {
        fn clone(&self) -> Self {
            Self {
                caller: __rpc::Clone::clone(&self.caller),
            }
        }
    }
    impl<C> __rpc::fmt::Debug for NothingClient<C> {
        fn fmt(&self, f: &mut __rpc::fmt::Formatter<'_>) -> __rpc::fmt::Result {
            f.write_str("NothingClient")
        }
    }
    impl<T> NothingServer<T> {
        /// Serves by `handler`.
        fn new(handler: T) -> Self {
            Self::from_arc(__rpc::Arc::new(handler))
        }
        /// Serves by a handler that is shared with others.
        fn from_arc(handler: __rpc::Arc<T>) -> Self {
            Self { handler }
        }
    }
    impl<T> __rpc::Clone for NothingServer<T> {
        fn clone(&self) -> Self {
            Self {
                handler: __rpc::Clone::clone(&self.handler),
            }
        }
    }
    impl<T> __rpc::fmt::Debug for NothingServer<T> {
        fn fmt(&self, f: &mut __rpc::fmt::Formatter<'_>) -> __rpc::fmt::Result {
            f.write_str("NothingServer")
        }
    }
    impl<T: Nothing> __rpc::Service for NothingServer<T> {
        fn name(&self) -> &'static str {
            "Nothing"
        }
        fn methods(&self) -> &'static [__rpc::MethodDescriptor] {
            METHODS
        }
        fn call(&self, method: usize, call: __rpc::Call) -> __rpc::Handler {
            let _ = method;
            call.unimplemented()
        }
    }
};
