use std::collections::HashMap;
use std::sync::Arc;

use super::service::{Call, CallContext, Service};
use crate::engine::{Dispatch, HandlerFuture, IncomingCall, Method};

/// The methods of a server, by their names on the wire.
pub(super) struct Router {
    services: Vec<Arc<dyn Service>>,
    methods: HashMap<&'static str, Method>,
    context: Arc<CallContext>,
}

impl Router {
    /// Takes the services; the name of one that stands there twice is returned instead.
    pub(super) fn new(
        services: Vec<Arc<dyn Service>>,
        context: Arc<CallContext>,
    ) -> Result<Self, &'static str> {
        let mut methods = HashMap::new();
        let mut names = std::collections::HashSet::new();
        for (service_index, service) in services.iter().enumerate() {
            if !names.insert(service.name()) {
                return Err(service.name());
            }
            for (index, descriptor) in service.methods().iter().enumerate() {
                let method = Method {
                    service: service_index as u32,
                    index: index as u32,
                    path: descriptor.path(),
                };
                methods.insert(descriptor.path(), method);
            }
        }
        Ok(Self { services, methods, context })
    }
}

impl Dispatch for Router {
    fn resolve(&self, name: &str) -> Option<Method> {
        self.methods.get(name).copied()
    }

    fn call(&self, method: Method, call: IncomingCall) -> HandlerFuture {
        let call = Call::new(call, Arc::clone(&self.context));
        match self.services.get(method.service as usize) {
            Some(service) => service.call(method.index as usize, call).into_future(),
            None => call.unimplemented().into_future(),
        }
    }
}
