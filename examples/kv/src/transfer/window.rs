/// What may be in flight: so many calls, and so many bytes of values in them.
///
/// A value larger than the bytes allowed may go alone, so nothing waits for ever. Once a call was
/// refused for want of memory nothing starts until another has succeeded, and given its memory back. Once
/// a call had no answer in its time nothing starts until another has one; if none has, the window stays
/// shut, for a server that answers nothing would cost each further lot of calls the same time again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    calls_max: usize,
    bytes_max: u64,
    calls: usize,
    bytes: u64,
    refused: bool,
    late: bool,
}

/// How a call ended, as far as it matters to those that wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// It had an answer.
    Answered,
    /// It was refused for want of memory.
    Refused,
    /// It had no answer in its time.
    Late,
}

impl Window {
    /// An empty window.
    pub(crate) fn new(calls_max: usize, bytes_max: u64) -> Self {
        Self { calls_max, bytes_max, calls: 0, bytes: 0, refused: false, late: false }
    }

    /// Whether a call with a value of this length may start.
    pub(crate) fn fits(&self, len: usize) -> bool {
        let room = self.calls == 0
            || (!self.refused
                && self.calls < self.calls_max
                && self.bytes.saturating_add(len as u64) <= self.bytes_max);
        room && !self.late
    }

    /// A call has started.
    pub(crate) fn start(&mut self, len: usize) {
        self.calls += 1;
        self.bytes += len as u64;
    }

    /// A call that had started has ended.
    pub(crate) fn end(&mut self, len: usize, how: Ended) {
        self.calls -= 1;
        self.bytes -= len as u64;
        self.refused = how == Ended::Refused;
        self.late = how == Ended::Late;
    }

    /// Whether it stays shut: no call is in flight, and the last that were had no answer.
    pub(crate) fn is_shut(&self) -> bool {
        self.late && self.calls == 0
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
        window.end(60, Ended::Answered);
        assert!(window.fits(60));
    }

    #[test]
    fn a_value_over_the_bound_goes_alone() {
        let mut window = Window::new(3, 100);
        assert!(window.fits(1_000));
        window.start(1_000);
        assert!(!window.fits(0));
        window.end(1_000, Ended::Answered);
        assert!(window.is_empty());
    }

    #[test]
    fn after_a_refusal_nothing_starts_until_a_call_succeeds_or_none_is_left() {
        let mut window = Window::new(3, 100);
        window.start(1);
        window.start(1);
        window.start(1);
        window.end(1, Ended::Refused);
        assert!(!window.fits(1));
        window.end(1, Ended::Answered);
        assert!(window.fits(1));
        window.end(1, Ended::Refused);
        assert!(window.fits(1));
    }

    #[test]
    fn a_server_that_answers_nothing_shuts_the_window_and_an_answer_opens_it() {
        let mut window = Window::new(3, 100);
        window.start(1);
        window.start(1);
        window.end(1, Ended::Late);
        assert!(!window.fits(1) && !window.is_shut());
        window.end(1, Ended::Answered);
        assert!(window.fits(1));
        window.start(1);
        window.end(1, Ended::Late);
        assert!(!window.fits(0) && window.is_shut());
    }
}
