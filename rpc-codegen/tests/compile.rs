//! The committed output of the fixtures compiles without a warning, and its stubs call each other.

#![deny(warnings, missing_docs)]

#[path = "../../rpc-macros/tests/mock/mod.rs"]
mod mock;

/// Every fixture, in the modules their packages spell.
#[allow(deprecated)]
pub mod proto {
    include!("snapshots/fixtures/rpc_protos.rs");
}

/// The fixture with bodies and other names.
pub mod options {
    include!("snapshots/options/everything.rs");
}

use mock::{Channel, Request, Response, Service, Status, ready};
use proto::fixtures::{deprecated, shop, std_names, r#type, well_known};
use rpc_core::{Code, prost_types};

/// Serves all of them.
struct All;

type Answer<T> = Result<Response<T>, Status>;

fn typed(request: Request<r#type::v1::Self_>, add: u32) -> Answer<r#type::v1::Type> {
    let number = request.into_inner().r#type + add;
    Ok(Response::new(r#type::v1::Type { number, ..Default::default() }))
}

macro_rules! typed_methods {
    ($($name:ident = $add:literal)*) => {$(
        async fn $name(&self, request: Request<r#type::v1::Self_>) -> Answer<r#type::v1::Type> {
            typed(request, $add)
        }
    )*};
}

impl r#type::v1::Keywords for All {
    typed_methods! {
        r#type = 1 r#do = 2 self_ = 3 extern_ = 4 r#async = 5 clone = 6 drop = 7 from = 8 call = 9
        http_get = 10 lower = 11 snake_case = 12
    }
}

impl r#type::v1::HttpkvStore for All {
    typed_methods! { get = 1 }
}

#[test]
fn keywords_and_odd_case_reach_their_methods_by_their_proto_names() {
    use r#type::v1::{KeywordsClient, KeywordsServer, Self_};
    let server = KeywordsServer::new(All);
    let paths: Vec<_> = server.methods().iter().map(|method| method.method()).collect();
    assert_eq!(
        paths,
        [
            "Type",
            "Do",
            "Self",
            "Extern",
            "Async",
            "Clone",
            "Drop",
            "From",
            "Call",
            "HTTPGet",
            "lower",
            "snake_case"
        ]
    );
    let client = KeywordsClient::new(Channel::to(server));
    let ask = || Self_ { self_: 0, r#type: 100 };
    assert_eq!(ready(client.r#type(ask())).unwrap().into_inner().number, 101);
    assert_eq!(ready(client.self_(ask())).unwrap().into_inner().number, 103);
    assert_eq!(ready(client.clone(ask())).unwrap().into_inner().number, 106);
    assert_eq!(ready(client.snake_case(ask())).unwrap().into_inner().number, 112);

    let server = r#type::v1::HttpkvStoreServer::new(All);
    assert_eq!(server.methods()[0].path(), "fixtures.type.v1.HTTPKVStore/Get");
}

impl std_names::Names for All {
    async fn future(&self, request: Request<std_names::Request>) -> Answer<std_names::Response> {
        Ok(Response::new(std_names::Response { number: request.into_inner().number }))
    }

    async fn send(&self, _: Request<std_names::Result>) -> Answer<std_names::Option> {
        Err(Status::not_found("no option"))
    }

    async fn status(&self, request: Request<std_names::Status>) -> Answer<std_names::Arc> {
        Ok(Response::new(std_names::Arc { number: request.into_inner().number }))
    }

    async fn boxed(&self, request: Request<std_names::Box>) -> Answer<std_names::Vec> {
        Ok(Response::new(std_names::Vec {
            number: request.into_inner().number,
            ..Default::default()
        }))
    }

    async fn generic(&self, request: Request<std_names::C>) -> Answer<std_names::T> {
        Ok(Response::new(std_names::T { number: request.into_inner().number }))
    }
}

#[test]
fn messages_called_like_std_types_are_called() {
    let client = std_names::NamesClient::new(Channel::to(std_names::NamesServer::new(All)));
    assert_eq!(
        ready(client.future(std_names::Request { number: 7 })).unwrap().into_inner().number,
        7
    );
    assert_eq!(ready(client.generic(std_names::C { number: 8 })).unwrap().into_inner().number, 8);
    let status = ready(client.send(std_names::Result::default())).unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::NotFound, "no option"));
}

impl shop::order::v1::Orders for All {
    async fn place(
        &self,
        request: Request<shop::order::v1::order::Item>,
    ) -> Answer<shop::v1::Money> {
        let cents = request.into_inner().name.len() as u64;
        Ok(Response::new(shop::v1::Money { cents: Some(shop::v1::money::Cents { cents }) }))
    }

    async fn price(&self, _: Request<shop::v1::money::Cents>) -> Answer<shop::order::v1::Order> {
        Ok(Response::new(shop::order::v1::Order::default()))
    }
}

#[test]
fn messages_inside_messages_and_of_other_packages_are_called() {
    use shop::order::v1::{OrdersClient, OrdersServer, order::Item};
    let client = OrdersClient::new(Channel::to(OrdersServer::new(All)));
    let item = Item { name: "four".to_owned(), ..Default::default() };
    let money = ready(client.place(item)).unwrap().into_inner();
    assert_eq!(money.cents.unwrap().cents, 4);
}

impl well_known::WellKnown for All {
    async fn nothing(&self, _: Request<()>) -> Answer<()> {
        Ok(Response::new(()))
    }

    async fn when(
        &self,
        request: Request<prost_types::Timestamp>,
    ) -> Answer<prost_types::Duration> {
        Ok(Response::new(prost_types::Duration { seconds: request.into_inner().seconds, nanos: 0 }))
    }

    async fn what(&self, _: Request<prost_types::Any>) -> Answer<prost_types::Struct> {
        Ok(Response::new(prost_types::Struct::default()))
    }

    async fn which(&self, request: Request<bool>) -> Answer<String> {
        Ok(Response::new(request.into_inner().to_string()))
    }

    async fn bytes(&self, request: Request<Vec<u8>>) -> Answer<f64> {
        Ok(Response::new(request.into_inner().len() as f64))
    }

    async fn wide(&self, request: Request<u64>) -> Answer<i64> {
        Ok(Response::new(-(request.into_inner() as i64)))
    }

    async fn narrow(&self, request: Request<u32>) -> Answer<i32> {
        Ok(Response::new(-(request.into_inner() as i32)))
    }

    async fn float(&self, _: Request<f32>) -> Answer<well_known::Holder> {
        Ok(Response::new(well_known::Holder::default()))
    }
}

#[test]
fn well_known_types_are_requests_and_responses() {
    use well_known::{WellKnownClient, WellKnownServer};
    let client = WellKnownClient::new(Channel::to(WellKnownServer::new(All)));
    ready(client.nothing(())).unwrap();
    assert_eq!(ready(client.which(true)).unwrap().into_inner(), "true");
    assert_eq!(ready(client.wide(7_u64)).unwrap().into_inner(), -7);
    let when = prost_types::Timestamp { seconds: 9, nanos: 0 };
    assert_eq!(ready(client.when(when)).unwrap().into_inner().seconds, 9);
    let holder = ready(client.float(1.0_f32)).unwrap().into_inner();
    assert_eq!((holder.when, holder.text), (None, None));
}

#[test]
fn default_bodies_answer_unimplemented_under_the_new_names() {
    struct Nothing;
    impl options::BareService for Nothing {}

    let server = options::BareServiceServer::new(Nothing);
    assert_eq!(server.methods()[0].path(), "Bare/Ping");
    let client = options::BareServiceClient::new(Channel::to(server));
    let status = ready(client.is_there(options::BarePing { number: 1 })).unwrap_err();
    assert_eq!(status.code(), Code::Unimplemented);
    assert_eq!(status.message(), "Bare/Ping is not implemented by this server");
}

#[test]
fn deprecation_reaches_the_caller_and_not_the_stubs() {
    struct Mixed;
    #[allow(deprecated)]
    impl deprecated::Mixed for Mixed {
        async fn former(&self, request: Request<deprecated::Thing>) -> Answer<deprecated::Thing> {
            Ok(Response::new(request.into_inner()))
        }

        async fn current(&self, request: Request<deprecated::Thing>) -> Answer<deprecated::Thing> {
            Ok(Response::new(request.into_inner()))
        }
    }

    let client = deprecated::MixedClient::new(Channel::to(deprecated::MixedServer::new(Mixed)));
    let thing = deprecated::Thing { number: 3, ..Default::default() };
    assert_eq!(ready(client.current(thing)).unwrap().into_inner().number, 3);
    #[expect(deprecated)]
    let former = client.former(thing);
    assert_eq!(ready(former).unwrap().into_inner().number, 3);
}
