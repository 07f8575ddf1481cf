use super::{Bound, ServerBuilder};
use crate::{Channel, Status};

impl ServerBuilder {
    /// Serves inside this process, without a port: the channel's calls go through every layer, over
    /// a software device's memory link. What a unit test wants.
    ///
    /// The server ends with the last clone of the channel.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for a service that was added twice, and what connecting can fail with.
    pub async fn in_process(self) -> Result<Channel, Status> {
        let (runtime, server) = self.register()?;
        let bound = Bound::new(runtime.clone(), server, None);
        Channel::in_process(runtime, server, Box::new(bound)).await
    }
}
