//! Traits in hostile surroundings: no prelude, messages named like everything the expansion uses,
//! rpc_core under another path, and no warning allowed.

#![deny(warnings, missing_docs)]

mod mock;

use mock::{Channel, IntoRequest, Request, Response, Status, ready};

/// Messages.
#[allow(non_camel_case_types)]
pub mod messages {
    macro_rules! messages {
        ($($name:ident)*) => {$(
            /// A message with a name that the expansion would like to use.
            #[derive(Clone, PartialEq, rpc_core::prost::Message)]
            #[prost(prost_path = "rpc_core::prost")]
            pub struct $name {
                /// A number.
                #[prost(uint32, tag = "1")]
                pub number: u32,
            }
        )*};
    }
    messages! { Result Option Send Sync Status Future Request Response Arc Caller C T Box Vec __rpc }
}

/// A module without the prelude where every usual name is a message.
pub mod bare {
    #![no_implicit_prelude]

    use super::messages::{
        __rpc, Arc, Box, C, Caller, Future, Option, Request, Response, Result, Send, Status, Sync,
        T, Vec,
    };

    /// Swaps messages.
    #[crate::mock::service(name = "bare.v1.Bare", crate = crate::mock)]
    pub trait Bare {
        /// A result for an option.
        async fn result(
            &self,
            request: crate::mock::Request<Result>,
        ) -> ::core::result::Result<crate::mock::Response<Option>, crate::mock::Status>;

        /// Keywords and names of everybody's methods are names of methods too.
        async fn r#type(
            &self,
            request: crate::mock::Request<C>,
        ) -> ::core::result::Result<crate::mock::Response<T>, crate::mock::Status>;

        /// A body may stay away.
        async fn clone(
            &self,
            request: crate::mock::Request<Send>,
        ) -> ::core::result::Result<crate::mock::Response<Sync>, crate::mock::Status> {
            let number = request.into_inner().number;
            ::core::result::Result::Ok(crate::mock::Response::new(Sync { number }))
        }

        /// The same in the long form.
        fn drop(
            &self,
            request: crate::mock::Request<Future>,
        ) -> impl ::core::future::Future<
            Output = ::core::result::Result<crate::mock::Response<Arc>, crate::mock::Status>,
        > + ::core::marker::Send;

        /// As a client's trait.
        #[deprecated]
        async fn unary(
            &self,
            request: crate::mock::Request<Caller>,
        ) -> ::core::result::Result<crate::mock::Response<__rpc>, crate::mock::Status>;

        /// A request whose message is a request.
        async fn from(
            &self,
            request: crate::mock::Request<Request>,
        ) -> ::core::result::Result<crate::mock::Response<Response>, crate::mock::Status>;

        /// A status that is no error.
        async fn status(
            &self,
            request: crate::mock::Request<Status>,
        ) -> ::core::result::Result<crate::mock::Response<Status>, crate::mock::Status>;

        /// As a server's.
        #[method(name = "name", idempotency = Idempotent)]
        async fn call(
            &self,
            request: crate::mock::Request<Box>,
        ) -> ::core::result::Result<crate::mock::Response<Vec>, crate::mock::Status>;
    }
}

/// Answers everything with the number it was given.
struct Echo;

#[allow(deprecated)]
impl bare::Bare for Echo {
    async fn result(
        &self,
        request: Request<messages::Result>,
    ) -> Result<Response<messages::Option>, Status> {
        Ok(Response::new(messages::Option { number: request.into_inner().number }))
    }

    async fn r#type(&self, request: Request<messages::C>) -> Result<Response<messages::T>, Status> {
        Ok(Response::new(messages::T { number: request.into_inner().number }))
    }

    async fn drop(
        &self,
        request: Request<messages::Future>,
    ) -> Result<Response<messages::Arc>, Status> {
        Ok(Response::new(messages::Arc { number: request.into_inner().number }))
    }

    async fn unary(
        &self,
        request: Request<messages::Caller>,
    ) -> Result<Response<messages::__rpc>, Status> {
        Ok(Response::new(messages::__rpc { number: request.into_inner().number }))
    }

    async fn from(
        &self,
        request: Request<messages::Request>,
    ) -> Result<Response<messages::Response>, Status> {
        Ok(Response::new(messages::Response { number: request.into_inner().number }))
    }

    async fn status(
        &self,
        request: Request<messages::Status>,
    ) -> Result<Response<messages::Status>, Status> {
        Ok(Response::new(request.into_inner()))
    }

    async fn call(
        &self,
        request: Request<messages::Box>,
    ) -> Result<Response<messages::Vec>, Status> {
        Ok(Response::new(messages::Vec { number: request.into_inner().number }))
    }
}

/// No methods at all.
#[mock::service(name = "Nothing", crate = crate::mock)]
trait Nothing {}

impl Nothing for Echo {}

fn client() -> bare::BareClient {
    bare::BareClient::new(Channel::to(bare::BareServer::new(Echo)))
}

#[test]
fn calls_reach_their_methods_whatever_the_names() {
    let client = client();
    let answer = ready(client.result(messages::Result { number: 1 })).unwrap();
    assert_eq!(answer.into_inner().number, 1);
    let answer = ready(client.r#type(Request::new(messages::C { number: 2 }))).unwrap();
    assert_eq!(answer.into_inner().number, 2);
    let answer = ready(client.clone(messages::Send { number: 3 })).unwrap();
    assert_eq!(answer.into_inner().number, 3);
    let answer = ready(client.drop(messages::Future { number: 4 })).unwrap();
    assert_eq!(answer.into_inner().number, 4);
    let answer = ready(client.from(messages::Request { number: 6 })).unwrap();
    assert_eq!(answer.into_inner().number, 6);
    let answer = ready(client.status(messages::Status { number: 7 })).unwrap();
    assert_eq!(answer.into_inner().number, 7);
    let answer = ready(client.call(messages::Box { number: 5 })).unwrap();
    assert_eq!(answer.into_inner().number, 5);
}

#[test]
fn the_table_has_the_names_on_the_wire_in_the_order_of_the_trait() {
    use mock::{Idempotency, Service};
    let server = bare::BareServer::new(Echo);
    let table: Vec<_> =
        server.methods().iter().map(|method| (method.path(), method.idempotency())).collect();
    assert_eq!(
        table,
        [
            ("bare.v1.Bare/Result", Idempotency::Unknown),
            ("bare.v1.Bare/Type", Idempotency::Unknown),
            ("bare.v1.Bare/Clone", Idempotency::Unknown),
            ("bare.v1.Bare/Drop", Idempotency::Unknown),
            ("bare.v1.Bare/Unary", Idempotency::Unknown),
            ("bare.v1.Bare/From", Idempotency::Unknown),
            ("bare.v1.Bare/Status", Idempotency::Unknown),
            ("bare.v1.Bare/name", Idempotency::Idempotent),
        ]
    );
    assert_eq!(Service::name(&server), "bare.v1.Bare");
    assert!(NothingServer::new(Echo).methods().is_empty());
}

#[test]
fn a_method_the_server_does_not_have_is_unimplemented() {
    let nothing = Channel::to(NothingServer::new(Echo));
    let client = bare::BareClient::new(nothing);
    let status = ready(client.result(messages::Result { number: 1 })).unwrap_err();
    assert_eq!(status.code(), rpc_core::Code::Unimplemented);
    let _ = NothingClient::new(Channel::to(bare::BareServer::new(Echo)));
}

#[test]
fn futures_of_a_generic_client_are_send() {
    fn send<F: Future + Send>(_: F) {}
    fn check<C: mock::Caller>(
        client: &bare::BareClient<C>,
        request: impl IntoRequest<messages::Result> + Send,
    ) {
        send(client.result(request));
    }
    check(&client(), messages::Result { number: 1 });
}

#[test]
fn stubs_are_cloned_without_cloning_the_handler_and_print_nothing_of_it() {
    let server = bare::BareServer::from_arc(std::sync::Arc::new(Echo));
    let copy = Clone::clone(&server);
    assert_eq!(format!("{copy:?}"), "BareServer");
    assert_eq!(format!("{:?}", Clone::clone(&client())), "BareClient");
}
