/// What may be in flight: so many calls, and so many bytes of values in them.
///
/// A value larger than the bytes allowed may go alone, so nothing waits for ever. Once a call was
/// refused for want of memory nothing starts until another has succeeded, and given its memory back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    calls_max: usize,
    bytes_max: u64,
    calls: usize,
    bytes: u64,
    refused: bool,
}

impl Window {
    /// An empty window.
    pub(crate) fn new(calls_max: usize, bytes_max: u64) -> Self {
        Self { calls_max, bytes_max, calls: 0, bytes: 0, refused: false }
    }

    /// Whether a call with a value of this length may start.
    pub(crate) fn fits(&self, len: usize) -> bool {
        self.calls == 0
            || (!self.refused
                && self.calls < self.calls_max
                && self.bytes.saturating_add(len as u64) <= self.bytes_max)
    }

    /// A call has started.
    pub(crate) fn start(&mut self, len: usize) {
        self.calls += 1;
        self.bytes += len as u64;
    }

    /// A call that had started has ended, refused for want of memory or not.
    pub(crate) fn end(&mut self, len: usize, refused: bool) {
        self.calls -= 1;
        self.bytes -= len as u64;
        self.refused = refused;
    }

    /// Whether no call is in flight.
    pub(crate) fn is_empty(&self) -> bool {
        self.calls == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_and_bytes_are_bounded() {
        let mut window = Window::new(3, 100);
        window.start(60);
        assert!(window.fits(40));
        assert!(!window.fits(41));
        window.start(40);
        window.start(0);
        assert!(!window.fits(0));
        window.end(60, false);
        assert!(window.fits(60));
    }

    #[test]
    fn a_value_over_the_bound_goes_alone() {
        let mut window = Window::new(3, 100);
        assert!(window.fits(1_000));
        window.start(1_000);
        assert!(!window.fits(0));
        window.end(1_000, false);
        assert!(window.is_empty());
    }

    #[test]
    fn after_a_refusal_nothing_starts_until_a_call_succeeds_or_none_is_left() {
        let mut window = Window::new(3, 100);
        window.start(1);
        window.start(1);
        window.start(1);
        window.end(1, true);
        assert!(!window.fits(1));
        window.end(1, false);
        assert!(window.fits(1));
        window.end(1, true);
        assert!(window.fits(1));
    }
}
